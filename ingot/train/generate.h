// Generator samples text from a model token by token, with a key-value cache.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/sample.h"

namespace ingot {

class Generator {
 public:
  // Has the signature of Transformer::infer.
  using Infer = std::function<void(LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches,
                                   const Tensor& logits)>;

  // Borrows the first three arguments and allocates memory for `context` positions. infer: computes the
  // logits; by default the model does. With that of an Executor, all ranks generate the same tokens.
  Generator(const Transformer& model, ParamStore& params, Region& region, Infer infer = {});

  // Bytes that a Generator of this model needs; a model without weights is enough.
  static size_t planned_bytes(const Transformer& model);

  // Samples ids below `count` only. A model of Hugging Face may have more rows than its tokenizer has ids.
  void limit_ids(int64_t count) { most_ids_ = count; }

  // Clears the sequence and the cache.
  void reset();

  // Appends the prompt (at least one token), then up to `tokens` sampled tokens, and passes each to
  // `sink` as it is made. Stops early at `stop` (which is not passed on) or if `sink` returns false. The
  // token at position i of the sequence is drawn with step i of the random key, so equal seeds give equal
  // text. When the context is full, the model reads the last half of it again and generation continues
  // from there.
  void run(std::span<const TokenId> prompt, int64_t tokens, const SampleConfig& config, uint64_t seed,
           std::optional<TokenId> stop, const std::function<bool(TokenId)>& sink);

 private:
  void append(std::span<const int32_t> tokens);
  void make_room();

  const Transformer& model_;
  ParamStore& params_;
  Region& region_;
  Infer infer_;
  Stream stream_;
  Arena caches_arena_, scratch_;
  std::vector<KvCache> caches_;
  int64_t most_ids_ = std::numeric_limits<int64_t>::max();
  std::vector<float> logits_;            // (Vp)
  std::vector<int32_t> sample_scratch_;  // (V)
  std::vector<int32_t> sequence_;        // all tokens so far
};

// Calls write(text) with the prompt and then with the continuation, in valid UTF-8, as soon as characters
// are complete. An empty prompt starts from the end-of-text token, or from a newline if the tokenizer has
// none.
void generate_text(Generator& generator, const Tokenizer& tokenizer, std::string_view prompt, int64_t tokens,
                   const SampleConfig& config, uint64_t seed,
                   const std::function<void(std::string_view)>& write);

}  // namespace ingot
