// Text from a model: prompt in, sampled tokens out one by one, with a cache of keys and values.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/sample.h"
#include "ingot/train/stages.h"

namespace ingot {

class Generator {
 public:
  // Borrows all. Takes the memory for `context` positions. stages: where the model lies in such; all their
  // ranks then generate the same.
  Generator(const Transformer& model, ParamStore& params, Region& region, Stages* stages = nullptr);

  // What it takes for a model, known without one.
  static size_t planned_bytes(const Transformer& model);

  // Forgets the sequence.
  void reset();

  // Appends the prompt (at least one token), then up to `tokens` sampled ones, each handed to `sink` as it is
  // made; stops early after `stop` (not handed out) or when sink returns false. Token number i of the
  // sequence is drawn with number i of the key's stream, so equal seeds give equal text. Where the context is
  // full, the last half of it is read again and generation goes on from there.
  void run(std::span<const TokenId> prompt, int64_t tokens, const SampleConfig& config, uint64_t seed,
           std::optional<TokenId> stop, const std::function<bool(TokenId)>& sink);

 private:
  void append(std::span<const int32_t> tokens);
  void make_room();

  const Transformer& model_;
  ParamStore& params_;
  Region& region_;
  Stages* stages_;
  Stream stream_;
  Arena caches_arena_, scratch_;
  std::vector<KvCache> caches_;
  std::vector<float> logits_;            // (Vp)
  std::vector<int32_t> sample_scratch_;  // (V)
  std::vector<int32_t> sequence_;        // all tokens so far
};

// Prompt and continuation as text, in valid UTF-8, piece by piece: write(piece) as soon as its characters are
// whole. An empty prompt starts from the end-of-text token, or a newline where there is none.
void generate_text(Generator& generator, const Tokenizer& tokenizer, std::string_view prompt, int64_t tokens,
                   const SampleConfig& config, uint64_t seed,
                   const std::function<void(std::string_view)>& write);

}  // namespace ingot
