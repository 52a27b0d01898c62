#include "ingot/tasks/task_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// Returns the special token that a post-processor puts before every text.
std::optional<TokenId> first_special(const Json& processor) {
  if (!processor.is_object()) return std::nullopt;
  if (processor.value("type", Json()) == "Sequence") {
    for (const Json& part : processor.value("processors", Json::array()))
      if (const auto found = first_special(part)) return found;
    return std::nullopt;
  }
  const Json steps = processor.value("single", Json());
  if (!steps.is_array() || steps.empty() || !steps[0].is_object() || !steps[0].contains("SpecialToken"))
    return std::nullopt;
  const Json name = steps[0]["SpecialToken"].value("id", Json());
  const Json known = processor.value("special_tokens", Json::object());
  if (!name.is_string() || !known.contains(name.get<std::string>())) return std::nullopt;
  const Json ids = known[name.get<std::string>()].value("ids", Json());
  if (!ids.is_array() || ids.empty() || !ids[0].is_number_unsigned()) return std::nullopt;
  return ids[0].get<TokenId>();
}

// Returns the number of equal tokens from the beginning of all requests on, or from their end.
size_t common_length(std::span<const std::vector<int32_t>> all, bool is_at_end) {
  for (size_t i = 0;; ++i)
    for (const std::vector<int32_t>& tokens : all) {
      if (i == tokens.size()) return i;
      const auto at = [&](const std::vector<int32_t>& t) { return is_at_end ? t[t.size() - 1 - i] : t[i]; };
      if (at(tokens) != at(all[0])) return i;
    }
}

}  // namespace

TaskEncoder::Starts TaskEncoder::starts_of(const Tokenizer& tokenizer, const std::string& tokenizer_json) {
  Starts starts;
  const Json json = Json::parse(tokenizer_json, nullptr, false);
  if (json.is_object()) starts.every = first_special(json.value("post_processor", Json()));
  const TokenizerSideFiles& side = tokenizer.side_files();
  starts.empty = starts.every;
  if (const auto bos = side.tokens.find("bos_token"); !starts.empty && bos != side.tokens.end())
    if (const auto ids = encode_with_special(tokenizer, bos->second); ids.size() == 1) starts.empty = ids[0];
  if (!starts.empty) starts.empty = side.bos_id ? side.bos_id : tokenizer.end_of_text();
  if (const auto ends = tokenizer.eos_ids(); !starts.empty && !ends.empty()) starts.empty = ends[0];
  return starts;
}

TaskEncoder::TaskEncoder(const Tokenizer& tokenizer, const Starts& starts, int64_t context, int64_t vocab)
    : tokenizer_(tokenizer), starts_(starts), context_(context), vocab_(vocab) {}

std::vector<int32_t> TaskEncoder::encoded(std::string_view text, std::optional<TokenId> start) const {
  std::vector<TokenId> ids;
  if (!text.empty()) tokenizer_.encode_with_special(text, ids);
  if (start && (ids.empty() || ids[0] != *start)) ids.insert(ids.begin(), *start);
  for (const TokenId id : ids)
    if (id >= vocab_)
      fail(
          ErrorKind::kData,
          "the tokenizer gives the token {}, and the model's vocabulary ends at {}; use the tokenizer it was "
          "trained with",
          id, vocab_ - 1);
  return {ids.begin(), ids.end()};
}

ScoreRequest TaskEncoder::fitted(std::vector<int32_t> tokens, size_t first) const {
  if (first >= tokens.size())
    fail(ErrorKind::kData, "the tokenizer leaves no token for the answer; leave the record out");
  const size_t most = static_cast<size_t>(context_) + 1, cut = tokens.size() - std::min(tokens.size(), most);
  if (first == 0 && cut == 0)
    fail(ErrorKind::kData,
         "the context is empty, and the tokenizer has no token that begins a text; leave the record out");
  if (cut >= first)
    fail(ErrorKind::kData,
         "the answer has {} tokens, and the context of the model {}; leave the record out, or take a "
         "model of a "
         "longer context",
         tokens.size() - first, context_);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(cut));
  return {.tokens = std::move(tokens), .first = first - cut, .is_cut = cut > 0};
}

ScoreRequest TaskEncoder::request(const TaskPrompt& prompt) const {
  const std::string_view context = without_trailing_space(prompt.context);
  const std::optional<TokenId> start = context.empty() ? starts_.empty : starts_.every;
  return fitted(encoded(prompt.text(), start), encoded(context, start).size());
}

std::vector<ScoreRequest> TaskEncoder::core_requests(TaskShape shape,
                                                     std::span<const TaskPrompt> prompts) const {
  std::vector<std::vector<int32_t>> all;
  size_t shortest = std::string::npos;
  for (const TaskPrompt& prompt : prompts) {
    all.push_back(encoded(prompt.text(), starts_.empty));
    shortest = std::min(shortest, all.back().size());
  }
  if (shortest < 2)
    fail(ErrorKind::kData, "an option has {} tokens, and 2 are needed to predict one; leave the record out",
         shortest);
  size_t shared = common_length(all, shape == TaskShape::kCoreSchema);
  if (shape == TaskShape::kCoreText) {
    const std::string before = prompts[0].context + prompts[0].delimiter;
    const std::vector<std::vector<int32_t>> pair{all[0], encoded(without_outer_space(before), starts_.empty)};
    shared = common_length(pair, false);
  }
  // Every option has a token before the first one that is scored, and one that is scored.
  shared = std::clamp<size_t>(shared, 1, shortest - 1);
  std::vector<ScoreRequest> requests;
  for (std::vector<int32_t>& tokens : all) {
    const size_t first = shape == TaskShape::kCoreSchema ? tokens.size() - shared : shared;
    requests.push_back(fitted(std::move(tokens), first));
  }
  return requests;
}

}  // namespace ingot
