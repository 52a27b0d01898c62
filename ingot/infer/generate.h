// Generator samples text from a model token by token, with a cache of keys and values, for several sequences
// at once.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/infer/infer_engine.h"
#include "ingot/nn/transformer.h"
#include "ingot/ops/sample.h"

namespace ingot {

class Generator {
 public:
  // Borrows the first four arguments and allocates memory on the stream's device for `slots` sequences of
  // `context` positions. infer: computes the logits; by default the model does. With that of an Executor, all
  // ranks generate the same tokens. Without it, a CUDA device replays the passes of single tokens as CUDA
  // graphs. REQUIRES: on a CUDA device bring_to_device was called and the weights are there.
  Generator(const Transformer& model, ParamStore& params, Region& region, Stream& stream, int64_t slots = 1,
            Transformer::Infer infer = {});

  // Returns what a Generator of this model takes; a model without weights is enough.
  static InferBytes planned_bytes(const Transformer& model, int64_t slots, Device device);

  // Samples ids below `count` only. A model of Hugging Face may have more rows than its tokenizer has ids.
  void limit_ids(int64_t count) { most_ids_ = count; }

  // From now on, a sequence leaves its keys and values in its slot, and a prompt that begins with the same
  // tokens reads only the others. REQUIRES: the weights do not change afterwards.
  void keep_caches() { kept_.resize(static_cast<size_t>(engine_.shape().slots)); }
  // Returns the number of tokens that the model has read since the Generator was made.
  int64_t tokens_read() const { return tokens_read_; }

  struct Prompt {
    std::vector<TokenId> tokens;  // at least one
    uint64_t seed = 0;
  };
  // Receives the index of a prompt and a token that follows it. Returns false to end the sequence.
  using Sink = std::function<bool(size_t prompt, TokenId token)>;

  // Appends up to `tokens` sampled tokens to every prompt and passes each to `sink` as it is made. `slots`
  // sequences advance together; the weights are read once for all of them, and the next prompt takes the slot
  // of a sequence that has ended. A sequence ends early at a token of `stops` (which is not passed on) or if
  // `sink` returns false. The token at position i of a sequence is drawn with step i of its seed's random
  // key, so the sequences of other prompts and the number of slots do not matter, apart from the rounding of
  // products of more rows. When the context is full, the model reads the last half of it again and generation
  // continues from there. `ended`, if set, is called with the prompt of a sequence that has ended.
  void run(std::span<const Prompt> prompts, int64_t tokens, const SampleConfig& config,
           std::span<const TokenId> stops, const Sink& sink, const std::function<void(size_t)>& ended = {});

 private:
  // A sequence that is being continued.
  struct Sequence {
    size_t prompt = 0;
    int64_t slot = 0;
    RandomKey key;
    std::vector<int32_t> tokens;  // all so far
    size_t read = 0;              // number of them that have gone to the model
    int64_t cached = 0;           // positions filled in the slot
    int64_t wanted = 0;           // tokens still to be sampled

    int64_t pending() const { return static_cast<int64_t>(tokens.size() - read); }
  };
  void check_prompts(std::span<const Prompt> prompts) const;
  void start(const Prompt& prompt, size_t index, int64_t tokens);
  // Chooses the free slot whose kept tokens serve the sequence most, and among equal ones the slot that keeps
  // the fewest. Takes over what serves.
  void take_slot(Sequence& sequence);
  // Notes which tokens have their keys and values in the sequence's slot.
  void keep(const Sequence& sequence);
  // Appends tokens of all sequences to the caches and returns those whose logits are known then, in order of
  // the rows of the host's logits.
  std::vector<Sequence*> advance();
  // Returns the token that the row of the host's logits gives a sequence.
  int32_t draw(size_t row, const Sequence& sequence, const SampleConfig& config);
  // Reads the last half of the context again, from position 0.
  void make_room(Sequence& sequence) const;

  InferEngine engine_;
  int64_t most_ids_ = std::numeric_limits<int64_t>::max();
  std::vector<int32_t> sample_scratch_;  // (slots, V)
  std::vector<Sequence> sequences_;
  std::vector<std::vector<int32_t>>
      kept_;  // per slot: the tokens of its first positions; empty: none is kept
  int64_t tokens_read_ = 0;
};

// Texts for generate_texts. Sequence i is drawn with seed + i.
struct TextRequest {
  std::vector<std::string> prompts;
  int64_t tokens = 0;  // to sample for each
  SampleConfig sample = {};
  uint64_t seed = 0;
};
// Receives the index of a prompt and text in valid UTF-8: first the prompt, then what follows it as soon as
// characters are complete. is_last: the text of this prompt ends here; the piece may be empty then.
using TextSink = std::function<void(size_t prompt, std::string_view piece, bool is_last)>;

// Continues the prompts, up to a token that ends a text (Tokenizer::eos_ids and end_of_text). An empty one
// starts from the end-of-text token, or from a newline if the tokenizer has none, or from its first token.
void generate_texts(Generator& generator, const Tokenizer& tokenizer, const TextRequest& request,
                    const TextSink& write);

// Continues a single prompt, and passes on its text alone.
void generate_text(Generator& generator, const Tokenizer& tokenizer, std::string_view prompt, int64_t tokens,
                   const SampleConfig& config, uint64_t seed,
                   const std::function<void(std::string_view)>& write);

}  // namespace ingot
