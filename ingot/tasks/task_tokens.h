// TaskEncoder turns prompts into tokens, of which the last ones are scored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/tasks/task_file.h"

namespace ingot {

// The log-likelihood of tokens[first ...] after tokens[0 .. first) is asked for. 0 < first < tokens.size().
struct ScoreRequest {
  std::vector<int32_t> tokens = {};
  size_t first = 0;
  size_t record = 0;    // requests of one record begin alike and follow each other
  bool is_cut = false;  // tokens were left out at the left

  int64_t scored() const { return std::ssize(tokens) - static_cast<int64_t>(first); }
};

struct Score {
  double log_likelihood = 0;  // of the scored tokens, the sum in nats
  bool is_greedy = true;      // each of them is the likeliest token, of equal ones that of the lowest id
};

class TaskEncoder {
 public:
  // The tokens with which a text begins. every: before every text; empty: before an empty context, and before
  // the texts of CORE.
  struct Starts {
    std::optional<TokenId> every, empty;
  };
  // Reads them from the text of the tokenizer.json of a model, and from the tokenizer's side files.
  static Starts starts_of(const Tokenizer& tokenizer, const std::string& tokenizer_json);

  // Borrows the tokenizer. context, vocab: those of the model.
  TaskEncoder(const Tokenizer& tokenizer, const Starts& starts, int64_t context, int64_t vocab);

  int64_t context() const { return context_; }

  // Returns the request of a prompt, as lm-evaluation-harness makes it: white space at the end of the context
  // moves to the continuation; both are encoded together, and what follows the tokens of the context alone is
  // scored. kData error: nothing to score, or more than fits into the context.
  ScoreRequest request(const TaskPrompt& prompt) const;

  // Returns the requests of a record of CORE, as nanochat makes them: of choices the tokens behind their
  // common beginning are scored, of a schema the common tokens at the end, and of a text those behind the
  // tokens of the context alone. Errors as above.
  std::vector<ScoreRequest> core_requests(TaskShape shape, std::span<const TaskPrompt> prompts) const;

 private:
  // Returns the tokens of the text, with the start before them unless the text begins with it.
  std::vector<int32_t> encoded(std::string_view text, std::optional<TokenId> start) const;
  // Cuts a request at the left so that all tokens but the last fit into the context.
  ScoreRequest fitted(std::vector<int32_t> tokens, size_t first) const;

  const Tokenizer& tokenizer_;
  Starts starts_;
  int64_t context_, vocab_;
};

}  // namespace ingot
