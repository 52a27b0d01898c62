// Generator samples text from a model token by token, with a cache of keys and values, for several sequences
// at once. run() continues a list of prompts; start() and step() let others join while some are continued.
#pragma once

#include <algorithm>
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

// The sequences that a Generator continues at the same time.
struct GeneratorShape {
  int64_t slots = 1;
  bool has_scores = false;  // There is memory for requests with scores.
};

// A prompt, and how it is continued.
struct SequenceRequest {
  std::vector<TokenId> tokens;  // of the prompt, at least one
  uint64_t seed = 0;
  int64_t wanted = 0;  // tokens to sample; 0: the prompt is read only
  SampleConfig sample = {};
  bool has_scores = false;  // the prompt's tokens are passed on with their logits, too
};

// A token of a sequence and the logits that predict it.
struct SequenceToken {
  size_t sequence = 0;  // as returned by start()
  size_t position = 0;  // in the sequence; less than the prompt's length for a token of the prompt
  TokenId token = 0;
  std::span<const float> logits;  // (vocab), capped; valid until the next step
};

class Generator {
 public:
  // Borrows the first four arguments and allocates memory on the stream's device for sequences of `context`
  // positions. infer: computes the logits; by default the model does. With that of an Executor, all ranks
  // generate the same tokens. Without it, a CUDA device replays the passes of single tokens as CUDA graphs.
  // REQUIRES: on a CUDA device bring_to_device was called and the weights are there.
  Generator(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
            GeneratorShape shape = {}, Transformer::Infer infer = {});

  // Returns what a Generator of this model takes; a model without weights is enough.
  static InferBytes planned_bytes(const Transformer& model, GeneratorShape shape, Device device);

  // Samples ids below `count` only. A model of Hugging Face may have more rows than its tokenizer has ids.
  void limit_ids(int64_t count) { most_ids_ = count; }

  // From now on, a sequence leaves its keys and values in its slot, and a prompt that begins with the same
  // tokens reads only the others. REQUIRES: the weights do not change afterwards.
  void keep_caches() { kept_.resize(static_cast<size_t>(engine_.shape().slots)); }
  // Returns the number of tokens that the model has read since the Generator was made.
  int64_t tokens_read() const { return tokens_read_; }

  // Throws a kData error if the prompt has a token that the model has not, a kUsage error for a bad sample.
  void check(const SequenceRequest& request) const;
  bool is_full() const { return std::ssize(sequences_) == engine_.shape().slots; }
  bool is_idle() const { return sequences_.empty(); }
  // Gives a slot to a sequence and returns its number; later ones have higher numbers. REQUIRES: check(), not
  // is_full(), and has_scores only if the shape has it and the prompt fits into the context.
  size_t start(const SequenceRequest& request);
  // Frees the sequence's slot. Does nothing if the sequence has ended.
  void end(size_t sequence);
  // Runs one pass, which appends tokens of all sequences to the caches, as many as one pass has. Calls `sink`
  // for each token that was sampled and for each of a prompt with scores, in order of their positions; the
  // sequence ends if it returns false. Calls `ended` for each sequence that has ended in this step, and frees
  // its slot. The token at position i of a sequence is drawn with step i of its seed's random key, so other
  // sequences and the number of slots do not matter, apart from the rounding of products of more rows. When
  // the context is full, the model reads the last half of it again and the sequence is continued from there.
  using TokenSink = std::function<bool(const SequenceToken&)>;
  void step(const TokenSink& sink, const std::function<void(size_t)>& ended);

  struct Prompt {
    std::vector<TokenId> tokens;  // at least one
    uint64_t seed = 0;
  };
  // Receives the index of a prompt and a token that follows it. Returns false to end the sequence.
  using Sink = std::function<bool(size_t prompt, TokenId token)>;

  // Appends up to `tokens` sampled tokens to every prompt by step(), and passes each to `sink` as it is made.
  // The next prompt takes the slot of a sequence that has ended. A sequence ends early at a token of `stops`
  // (which is not passed on) or if `sink` returns false. `ended`, if set, is called with the prompt of a
  // sequence that has ended.
  void run(std::span<const Prompt> prompts, int64_t tokens, const SampleConfig& config,
           std::span<const TokenId> stops, const Sink& sink, const std::function<void(size_t)>& ended = {});

 private:
  // A sequence that is being continued.
  struct Sequence {
    size_t number = 0;
    int64_t slot = 0;
    RandomKey key;
    SampleConfig sample;
    std::vector<int32_t> tokens;  // all so far
    size_t prompt = 0;            // number of them that were given
    size_t passed = 0;            // the first one that the sink is still to receive
    size_t read = 0;              // number of them that have gone to the model
    int64_t cached = 0;           // positions filled in the slot
    int64_t wanted = 0;           // tokens still to be sampled
    bool has_ended = false;       // by the sink

    bool is_over() const { return has_ended || (wanted == 0 && read >= prompt); }
    int64_t pending() const { return static_cast<int64_t>(tokens.size() - read); }
    // Returns the rows of logits that are needed of its next `count` tokens, the last ones.
    int64_t logits_of(int64_t count) const {
      return std::clamp<int64_t>(static_cast<int64_t>(read + 1 - passed) + count, 0, count);
    }
  };
  // A row of logits.
  struct Row {
    Sequence* sequence;
    size_t position;  // of the token that they predict
    int32_t token;    // that one, of the prompt or drawn; -1: it is not drawn
  };
  // Chooses the free slot whose kept tokens serve the sequence most, and among equal ones the slot that keeps
  // the fewest. Takes over what serves.
  void take_slot(Sequence& sequence);
  // Notes which tokens have their keys and values in the sequence's slot.
  void keep(const Sequence& sequence);
  // Appends tokens of all sequences to the caches and returns the rows of the host's logits.
  std::vector<Row> advance();
  // Caps the logits of row i, and draws its token unless it is one of the prompt.
  void draw(size_t i, Row& row);
  // Reads the last half of the context again, from position 0.
  void make_room(Sequence& sequence) const;

  InferEngine engine_;
  int64_t most_ids_ = std::numeric_limits<int64_t>::max();
  std::vector<int32_t> sample_scratch_;  // (slots, V)
  std::vector<Sequence> sequences_;
  size_t next_number_ = 0;
  std::vector<std::vector<int32_t>>
      kept_;  // per slot: the tokens of its first positions; empty: none is kept
  int64_t tokens_read_ = 0;
};

// Texts for generate_texts. Sequence i is drawn with seed + i.
struct TextRequest {
  std::vector<std::string> prompts;
  bool finds_special = false;  // special tokens that the prompts spell are tokens
  int64_t tokens = 0;          // to sample for each
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
