#include "ingot/api/api_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/infer/prompt.h"

namespace ingot {
namespace {

using nlohmann::json;

// A completion has so many tokens by default. A chat's answer takes what the context has left.
constexpr int64_t kDefaultTokens = 16;

[[noreturn]] void refuse(const std::string& key, const std::string& what) {
  throw ApiError(400, fmt::format("{} {}", key, what), key);
}

// The members of a request. A member that is null counts as absent.
class Members {
 public:
  explicit Members(const json& object) : object_(object) {}

  const json* find(const char* key) {
    taken_.emplace_back(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool flag(const char* key) {
    const json* value = find(key);
    if (value && !value->is_boolean()) refuse(key, "must be true or false");
    return value && value->get<bool>();
  }
  double number(const char* key, double otherwise, double least, double most) {
    const json* value = find(key);
    if (!value) return otherwise;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= least && number <= most))
      refuse(key, fmt::format("must be a number from {} to {}", least, most));
    return number;
  }
  std::optional<int64_t> whole(const char* key, int64_t least, int64_t most) {
    const json* value = find(key);
    if (!value) return std::nullopt;
    const bool is_whole =
        value->is_number_integer() &&
        (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    if (!is_whole || value->get<int64_t>() < least || value->get<int64_t>() > most)
      refuse(key, fmt::format("must be a whole number from {} to {}", least, most));
    return value->get<int64_t>();
  }
  // Accepts a key whose function Ingot does not have, if its value changes nothing.
  void ignore(const char* key, const std::vector<json>& neutral) {
    const json* value = find(key);
    if (value && std::ranges::find(neutral, *value) == neutral.end())
      refuse(key, fmt::format("is not supported; leave it out, or give {}",
                              neutral.empty() ? "null" : neutral.front().dump()));
  }
  void require_all_taken() const {
    for (const auto& [key, value] : object_.items())
      if (std::ranges::find(taken_, key) == taken_.end())
        throw ApiError(
            400,
            fmt::format("{} is no key that is supported; leave it out", visible_line(key.substr(0, 100))),
            key.substr(0, 100));
  }

 private:
  const json& object_;
  std::vector<std::string> taken_;
};

ApiPrompt prompt_of_text(const std::string& text, const ApiModel& model) {
  ApiPrompt prompt{.tokens = {}, .text = text};
  try {
    prompt.tokens = encode(model.tokenizer, text);
  } catch (const Error& error) {
    refuse("prompt", fmt::format("cannot be tokenized: {}", error.what()));
  }
  if (prompt.tokens.empty()) prompt.tokens = empty_prompt(model.tokenizer);
  return prompt;
}

ApiPrompt prompt_of_ids(const json& ids, const ApiModel& model) {
  ApiPrompt prompt;
  const int64_t count = model.tokenizer.vocab_size();
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(count))
      refuse("prompt", fmt::format("must have token ids from 0 to {}", count - 1));
    prompt.tokens.push_back(id.get<TokenId>());
  }
  if (prompt.tokens.empty()) refuse("prompt", "must have at least one token");
  try {
    model.tokenizer.append_text(prompt.tokens, prompt.text);
  } catch (const Error& error) {
    refuse("prompt", fmt::format("has an id without a token: {}", error.what()));
  }
  return prompt;
}

// A text, a list of texts, a list of ids, or a list of lists of ids.
std::vector<ApiPrompt> prompts_of(const json* value, const ApiModel& model) {
  constexpr const char* kShapes =
      "must be a text, a list of texts, a list of token ids, or a list of such lists";
  if (!value) refuse("prompt", "is missing");
  std::vector<ApiPrompt> prompts;
  if (value->is_string()) return {prompt_of_text(value->get_ref<const std::string&>(), model)};
  if (!value->is_array() || value->empty()) refuse("prompt", kShapes);
  if (value->front().is_number()) return {prompt_of_ids(*value, model)};
  if (std::ssize(*value) > ApiRequest::kMaxChoices)
    refuse("prompt", fmt::format("must have at most {} texts", ApiRequest::kMaxChoices));
  for (const json& one : *value) {
    if (one.is_string())
      prompts.push_back(prompt_of_text(one.get_ref<const std::string&>(), model));
    else if (one.is_array())
      prompts.push_back(prompt_of_ids(one, model));
    else
      refuse("prompt", kShapes);
  }
  return prompts;
}

// Returns a message's text: a string, or a list of parts of type "text".
std::string content_of(const json& message) {
  const auto found = message.find("content");
  if (found != message.end() && found->is_string()) return found->get<std::string>();
  std::string text;
  if (found == message.end() || !found->is_array()) refuse("messages", "must have a text as content each");
  for (const json& part : *found) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.value("text", json()).is_string())
      refuse("messages", "may have parts of type \"text\" only");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

ApiPrompt prompt_of_messages(const json* value, const ApiModel& model) {
  if (!model.chat) throw ApiError(400, model.no_chat);
  if (!value || !value->is_array() || value->empty())
    refuse("messages", "must be a list of messages with role and content");
  std::vector<ChatMessage> messages;
  for (const json& message : *value) {
    if (!message.is_object()) refuse("messages", "must have objects with role and content only");
    const json role = message.value("role", json());
    if (role == "system" || role == "developer")
      messages.push_back({ChatRole::kSystem, content_of(message)});
    else if (role == "user")
      messages.push_back({ChatRole::kUser, content_of(message)});
    else if (role == "assistant")
      messages.push_back({ChatRole::kAssistant, content_of(message)});
    else
      refuse("messages", "must have a role each: system, developer, user or assistant");
  }
  try {
    return {.tokens = chat_prompt(*model.chat, model.tokenizer, messages), .text = {}};
  } catch (const Error& error) {
    refuse("messages", fmt::format("cannot be written as the model reads them: {}", error.what()));
  }
}

std::vector<std::string> stops_of(const json* value) {
  std::vector<std::string> stops;
  if (!value) return stops;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& stop : list) {
    if (!stop.is_string()) refuse("stop", "must be a text, or a list of texts");
    if (!stop.get_ref<const std::string&>().empty()) stops.push_back(stop.get<std::string>());
  }
  if (stops.size() > ApiRequest::kMaxStops)
    refuse("stop", fmt::format("must have at most {} texts", ApiRequest::kMaxStops));
  return stops;
}

std::optional<int64_t> top_of(Members& members, bool is_chat) {
  if (!is_chat) return members.whole("logprobs", 0, ApiRequest::kMaxTop);
  const bool has_scores = members.flag("logprobs");
  const std::optional<int64_t> top = members.whole("top_logprobs", 0, ApiRequest::kMaxTop);
  if (top && !has_scores) refuse("top_logprobs", "needs logprobs = true");
  return has_scores ? std::optional(top.value_or(0)) : std::nullopt;
}

std::optional<int64_t> tokens_of(Members& members, bool is_chat) {
  constexpr int64_t kMax = int64_t{1} << 31;  // more than any context has
  std::optional<int64_t> tokens = members.whole("max_tokens", is_chat ? 1 : 0, kMax);
  if (!is_chat) return tokens.value_or(kDefaultTokens);
  if (const std::optional<int64_t> newer = members.whole("max_completion_tokens", 1, kMax)) tokens = newer;
  return tokens;
}

void ignore_what_changes_nothing(Members& members, bool is_chat) {
  members.find("model");  // there is one
  members.find("user");
  members.find("metadata");
  members.find("store");
  members.ignore("presence_penalty", {0});
  members.ignore("frequency_penalty", {0});
  members.ignore("logit_bias", {json::object()});
  if (!is_chat) return members.ignore("suffix", {""});
  members.ignore("tools", {json::array()});
  members.ignore("tool_choice", {"none", "auto"});
  members.ignore("response_format", {json{{"type", "text"}}});
}

json parsed(const std::string& body) {
  try {
    json root = json::parse(body);
    if (root.is_object()) return root;
  } catch (const json::exception& error) {
    throw ApiError(
        400, fmt::format("the body is no JSON: {}", visible_line(std::string(error.what()).substr(0, 200))));
  }
  throw ApiError(400, "the body must be a JSON object");
}

}  // namespace

ApiRequest parse_api_request(const std::string& body, bool is_chat, const ApiModel& model) {
  const json root = parsed(body);
  Members members(root);
  ApiRequest request;
  request.is_chat = is_chat;
  if (is_chat)
    request.prompts = {prompt_of_messages(members.find("messages"), model)};
  else
    request.prompts = prompts_of(members.find("prompt"), model);
  request.choices = members.whole("n", 1, ApiRequest::kMaxChoices).value_or(1);
  if (const auto best = members.whole("best_of", 1, ApiRequest::kMaxChoices);
      best && *best != request.choices)
    refuse("best_of", "must be n, or be left out");
  if (request.all_choices() > ApiRequest::kMaxChoices)
    refuse("n", fmt::format("times the number of prompts must be at most {}", ApiRequest::kMaxChoices));
  const std::optional<int64_t> tokens = tokens_of(members, is_chat);
  request.sample.temperature = static_cast<float>(members.number("temperature", 1, 0, 100));
  request.sample.top_p = static_cast<float>(members.number("top_p", 1, 0, 1));
  request.sample.top_p = std::max(request.sample.top_p, 1e-6F);  // 0 stands for the likeliest token
  request.sample.top_k = members.whole("top_k", -1, INT32_MAX).value_or(0);
  request.sample.top_k = std::max<int64_t>(request.sample.top_k, 0);
  const auto seed = members.whole("seed", INT64_MIN, INT64_MAX);
  std::random_device entropy;
  request.seed = seed ? static_cast<uint64_t>(*seed) : (uint64_t{entropy()} << 32 | entropy());
  request.stops = stops_of(members.find("stop"));
  request.top = top_of(members, is_chat);
  request.has_echo = !is_chat && members.flag("echo");
  request.is_stream = members.flag("stream");
  if (const json* options = members.find("stream_options")) {
    if (!options->is_object()) refuse("stream_options", "must be an object");
    request.has_usage = Members(*options).flag("include_usage");
  }
  ignore_what_changes_nothing(members, is_chat);
  members.require_all_taken();

  int64_t longest = 0;
  for (const ApiPrompt& prompt : request.prompts) longest = std::max(longest, std::ssize(prompt.tokens));
  if (longest > model.context)
    throw ApiError(
        400,
        fmt::format("the prompt has {} tokens, and the model's context is {} tokens long; shorten it",
                    longest, model.context),
        is_chat ? "messages" : "prompt");
  request.tokens = tokens.value_or(model.context);
  if (request.tokens == 0 && !request.has_echo) refuse("max_tokens", "may be 0 only with echo");
  return request;
}

}  // namespace ingot
