#include "ingot/api/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"
#include "ingot/infer/log_likelihood.h"
#include "ingot/infer/prompt.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string new_id(bool is_chat) {
  static std::atomic<uint64_t> count = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}-{:x}{:04x}", is_chat ? "chatcmpl" : "cmpl", now, ++count & 0xffff);
}

// Returns the bytes of a token; none if the vocabulary leaves the id out.
std::string bytes_of(const Tokenizer& tokenizer, TokenId id) {
  std::string bytes;
  try {
    tokenizer.append_bytes(id, bytes);
  } catch (const Error&) {
  }
  return bytes;
}

// Returns the bytes as text; those that are not UTF-8 as OpenAI writes them: "bytes:\xe2\x80".
std::string shown(const std::string& bytes) {
  if (valid_utf8_end(bytes, 0) == bytes.size()) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

// Returns the number of characters that begin in UTF-8 text, or in a part of it.
int64_t characters(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Returns the length of the longest end of the text that is a proper beginning of a stop.
size_t held_back(std::string_view text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops)
    for (size_t n = std::min(stop.size() - 1, text.size()); n > most; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) most = n;
  return most;
}

// JSON has no numbers for infinities; OpenAI writes this number for a probability of 0.
double finite(double log_probability) { return std::max(log_probability, -9999.0); }

const char* finish_reason(const ApiChoice& choice) {
  return choice.end == ApiChoice::End::kLength ? "length" : "stop";
}

ordered_json head_json(const ApiRequest& request, const ApiIdentity& identity, bool is_chunk) {
  const char* object = !request.is_chat ? "text_completion"
                       : is_chunk       ? "chat.completion.chunk"
                                        : "chat.completion";
  ordered_json json = {{"id", identity.id},
                       {"object", object},
                       {"created", identity.created_s},
                       {"model", identity.model},
                       {"choices", nullptr}};
  if (is_chunk && request.has_usage) json["usage"] = nullptr;
  return json;
}

ordered_json usage_json(const ApiRequest& request, std::span<const ApiChoice> choices) {
  int64_t read = 0, written = 0;
  for (const ApiPrompt& prompt : request.prompts) read += std::ssize(prompt.tokens);
  for (const ApiChoice& choice : choices) written += choice.tokens;
  return {{"prompt_tokens", read}, {"completion_tokens", written}, {"total_tokens", read + written}};
}

ordered_json scores_json(const ApiRequest& request, const Tokenizer& tokenizer,
                         std::span<const TokenScore> scores) {
  if (!request.top) return nullptr;
  const auto text_of = [&](TokenId id) { return shown(bytes_of(tokenizer, id)); };
  if (request.is_chat) {
    const auto entry = [&](TokenId id, double log_probability) -> ordered_json {
      const std::string bytes = bytes_of(tokenizer, id);
      return {{"token", shown(bytes)},
              {"logprob", finite(log_probability)},
              {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
    };
    ordered_json content = ordered_json::array();
    for (const TokenScore& score : scores) {
      content.push_back(entry(score.token, score.log_probability));
      content.back()["top_logprobs"] = ordered_json::array();
      for (const auto& [id, value] : score.top) content.back()["top_logprobs"].push_back(entry(id, value));
    }
    return {{"content", content}};
  }
  ordered_json tokens = ordered_json::array(), values = tokens, tops = tokens, offsets = tokens;
  for (const TokenScore& score : scores) {
    tokens.push_back(text_of(score.token));
    offsets.push_back(score.offset);
    if (std::isnan(score.log_probability)) {
      values.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    values.push_back(finite(score.log_probability));
    ordered_json top = ordered_json::object();
    for (const auto& [id, value] : score.top) top.emplace(text_of(id), finite(value));
    top.emplace(text_of(score.token), finite(score.log_probability));
    tops.push_back(std::move(top));
  }
  return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

// A choice without its scores.
ordered_json choice_json(const ApiRequest& request, size_t index, const std::string& text,
                         const char* finish_reason) {
  ordered_json json = {{"index", index}};
  if (!request.is_chat)
    json["text"] = text;
  else if (!request.is_stream)
    json["message"] = {{"role", "assistant"}, {"content", text}};
  else if (finish_reason)
    json["delta"] = ordered_json::object();
  else
    json["delta"] = {{"content", text}};
  json["logprobs"] = nullptr;
  json["finish_reason"] = finish_reason ? ordered_json(finish_reason) : ordered_json();
  return json;
}

}  // namespace

HttpAnswer api_refusal(int status, const std::string& message, const std::string& param) {
  ordered_json error = {{"message", message},
                        {"type", status < 500 ? "invalid_request_error" : "server_error"},
                        {"param", param.empty() ? ordered_json() : ordered_json(param)},
                        {"code", nullptr}};
  return {.status = status, .type = "application/json", .body = dumped({{"error", error}}) + "\n"};
}

Completion::Completion(ApiRequest request, const ApiModel& model)
    : request_(std::move(request)),
      model_(model),
      identity_{.id = new_id(request_.is_chat),
                .created_s = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count(),
                .model = model.name},
      begin_(std::chrono::steady_clock::now()),
      ends_(request_.is_chat ? answer_ends(model.tokenizer, *model.chat) : text_ends(model.tokenizer)),
      choices_(static_cast<size_t>(request_.all_choices())),
      left_(choices_.size()) {
  if (!request_.has_echo) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].text = prompt_of(i).text;
    if (request_.is_stream) send(i, choices_[i].text, nullptr);
  }
}

double Completion::age_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

const ApiPrompt& Completion::prompt_of(size_t choice) const {
  return request_.prompts[choice / static_cast<size_t>(request_.choices)];
}

SequenceRequest Completion::sequence(size_t choice) const {
  const std::vector<TokenId>& tokens = prompt_of(choice).tokens;
  // The last token that is sampled is not read.
  return {.tokens = tokens,
          .seed = request_.seed + choice,
          .wanted = std::min(request_.tokens, model_.context - std::ssize(tokens) + 1),
          .sample = request_.sample,
          .has_scores = request_.has_echo && request_.top};
}

void Completion::add_score(ApiChoice& choice, TokenId id, std::span<const float> logits) const {
  TokenScore score{.token = id, .offset = choice.offset};
  choice.offset += characters(bytes_of(model_.tokenizer, id));
  if (!logits.empty()) {
    const LogLikelihood likelihood(logits);
    const auto is_likelier = [&](TokenId a, TokenId b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    std::vector<TokenId> ids(logits.size());
    std::iota(ids.begin(), ids.end(), TokenId{0});
    const auto count = std::min<std::ptrdiff_t>(*request_.top, std::ssize(ids));
    std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), is_likelier);
    score.log_probability = likelihood.of(logits[id]);
    for (const TokenId top : std::span(ids).first(static_cast<size_t>(count)))
      score.top.emplace_back(top, likelihood.of(logits[top]));
  }
  choice.scores.push_back(std::move(score));
}

// The first token of a prompt has no logits that predict it.
void Completion::begin_scores(size_t index) {
  if (request_.has_echo && request_.top && choices_[index].scores.empty())
    add_score(choices_[index], prompt_of(index).tokens.front(), {});
}

bool Completion::take(size_t index, const SequenceToken& token) {
  ApiChoice& choice = choices_[index];
  begin_scores(index);
  if (request_.top) add_score(choice, token.token, token.logits);
  if (token.position < prompt_of(index).tokens.size()) return true;
  ++choice.tokens;
  if (std::ranges::find(ends_, token.token) == ends_.end())
    return pass(index, choice.utf8.push(bytes_of(model_.tokenizer, token.token)));
  choice.end = ApiChoice::End::kToken;
  return false;
}

bool Completion::pass(size_t index, const std::string& piece) {
  ApiChoice& choice = choices_[index];
  choice.held += piece;
  size_t stop = std::string::npos;
  for (const std::string& text : request_.stops) stop = std::min(stop, choice.held.find(text));
  if (stop != std::string::npos) {
    choice.end = ApiChoice::End::kText;
    choice.held.erase(stop);
    write(index, choice.held.size());
    return false;
  }
  write(index, choice.held.size() - held_back(choice.held, request_.stops));
  return true;
}

void Completion::write(size_t index, size_t bytes) {
  ApiChoice& choice = choices_[index];
  const std::string text = choice.held.substr(0, bytes);
  choice.held.erase(0, bytes);
  choice.text += text;
  if (request_.is_stream && !text.empty()) send(index, text, nullptr);
}

void Completion::end(size_t index) {
  ApiChoice& choice = choices_[index];
  begin_scores(index);
  if (choice.end != ApiChoice::End::kText && pass(index, choice.utf8.flush()))
    write(index, choice.held.size());
  if (request_.is_stream) send(index, "", finish_reason(choice));
  if (--left_ == 0) finish();
}

void Completion::fail(int status, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  answer_ = api_refusal(status, message);
  events_ += "data: " + answer_->body + "\n";
  is_over_ = true;
}

std::optional<HttpAnswer> Completion::answer() {
  const std::lock_guard lock(mutex_);
  return std::move(answer_);
}

std::string Completion::events(HttpStreamState& state) {
  const std::lock_guard lock(mutex_);
  if (is_over_) state = HttpStreamState::kEnded;
  return std::exchange(events_, {});
}

void Completion::send(size_t index, const std::string& text, const char* finish_reason) {
  ApiChoice& choice = choices_[index];
  ordered_json event = head_json(request_, identity_, true);
  std::string events;
  if (request_.is_chat && !std::exchange(choice.has_role, true)) {
    event["choices"] = ordered_json::array({choice_json(request_, index, "", nullptr)});
    event["choices"][0]["delta"]["role"] = "assistant";
    events += "data: " + dumped(event) + "\n\n";
  }
  event["choices"] = ordered_json::array({choice_json(request_, index, text, finish_reason)});
  event["choices"][0]["logprobs"] =
      scores_json(request_, model_.tokenizer, std::span(choice.scores).subspan(choice.sent_scores));
  choice.sent_scores = choice.scores.size();
  events += "data: " + dumped(event) + "\n\n";
  const std::lock_guard lock(mutex_);
  events_ += events;
}

void Completion::finish() {
  ordered_json last = head_json(request_, identity_, request_.is_stream);
  last["choices"] = ordered_json::array();
  for (size_t i = 0; i < choices_.size() && !request_.is_stream; ++i) {
    ordered_json choice = choice_json(request_, i, choices_[i].text, finish_reason(choices_[i]));
    choice["logprobs"] = scores_json(request_, model_.tokenizer, choices_[i].scores);
    last["choices"].push_back(std::move(choice));
  }
  last["usage"] = usage_json(request_, choices_);
  const std::lock_guard lock(mutex_);
  if (request_.has_usage) events_ += "data: " + dumped(last) + "\n\n";
  events_ += "data: [DONE]\n\n";
  answer_ = {.type = "application/json", .body = dumped(last) + "\n"};
  is_over_ = true;
}

}  // namespace ingot
