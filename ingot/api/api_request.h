// Requests of `ingot api`: bodies of POST /v1/completions and /v1/chat/completions, as OpenAI defines them.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ingot/data/chat/chat_template.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/ops/sample.h"

namespace ingot {

// A request that is refused: a status of HTTP, and the key that is wrong, if it is one.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string param_;
};

// The model that answers. It borrows the tokenizer.
struct ApiModel {
  std::string name;
  const Tokenizer& tokenizer;
  std::optional<ChatTemplate> chat = {};
  std::string no_chat = {};  // the reason why there is no template
  int64_t context = 0;       // tokens of a prompt and its continuation together
};

struct ApiPrompt {
  std::vector<TokenId> tokens;  // 1 to context
  std::string text;             // An answer with `echo` begins with it.
};

// "Choice" is OpenAI's word for one continuation of a prompt.
struct ApiRequest {
  static constexpr int64_t kMaxChoices = 256;  // A request has at most so many, over all its prompts.
  static constexpr int64_t kMaxTop = 20;
  static constexpr size_t kMaxStops = 16;

  bool is_chat = false;
  std::vector<ApiPrompt> prompts;
  int64_t choices = 1;              // Each prompt has so many (n).
  int64_t tokens = 0;               // A choice has at most so many tokens.
  SampleConfig sample = {};         // Choice i, counted over all prompts, is drawn with seed + i.
  uint64_t seed = 0;                // It is drawn at random if the request has none.
  std::vector<std::string> stops;   // A text ends before the first of them.
  std::optional<int64_t> top = {};  // Each token has its log-probability, and so many alternatives.
  bool has_echo = false;            // A text begins with its prompt.
  bool is_stream = false;
  bool has_usage = false;  // The stream ends with the numbers of tokens.

  int64_t all_choices() const { return std::ssize(prompts) * choices; }
};

// Throws an ApiError (400) that names the key and says what it must be. A key that Ingot does not know is
// refused, too, unless its value changes nothing.
ApiRequest parse_api_request(const std::string& body, bool is_chat, const ApiModel& model);

}  // namespace ingot
