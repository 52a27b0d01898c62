#include "ingot/run/chat_session.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/infer/prompt.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string_view role_name(ChatRole role) {
  return role == ChatRole::kSystem ? "system" : role == ChatRole::kUser ? "user" : "assistant";
}

}  // namespace

ChatSession::ChatSession(const std::filesystem::path& model, const ChatOptions& options)
    : options_(options),
      served_(model, options.model),
      template_(options.template_name, served_.tokenizer(), served_.path().string()),
      stops_(answer_ends(served_.tokenizer(), template_)) {
  reset();
  const InferBytes bytes = Generator::planned_bytes(served_.model(), {}, options.model.device);
  served_.make_ready(bytes.host, bytes.device, "keys and values of a whole context");
  generator_.emplace(served_.model(), served_.params(), region_, served_.stream());
  generator_->limit_ids(served_.tokenizer().vocab_size());
  generator_->keep_caches();
}

void ChatSession::reset() {
  messages_.clear();
  if (!options_.system.empty()) messages_.push_back({ChatRole::kSystem, options_.system});
}

std::vector<TokenId> ChatSession::prompt(int64_t& forgotten) const {
  const int64_t context = served_.model().config().context,
                room = context - std::max<int64_t>(1, context / 4);
  const auto system = options_.system.empty() ? 0 : 1;
  for (forgotten = 0;; forgotten += 2) {
    std::vector<ChatMessage> messages = messages_;
    messages.erase(messages.begin() + system, messages.begin() + system + forgotten);
    std::vector<TokenId> tokens = chat_prompt(template_, served_.tokenizer(), messages);
    if (std::ssize(tokens) <= room) return tokens;
    if (std::ssize(messages) == system + 1)
      fail(ErrorKind::kData,
           "the question has {} tokens, and the model reads {} before an answer; shorten it", tokens.size(),
           room);
  }
}

ChatAnswer ChatSession::ask(std::string question, const std::function<bool(std::string_view piece)>& write) {
  messages_.push_back({ChatRole::kUser, std::move(question)});
  ChatAnswer answer;
  Generator::Prompt prompt{.tokens = {}, .seed = options_.seed + turns_};
  try {
    prompt.tokens = this->prompt(answer.forgotten);
  } catch (...) {
    messages_.pop_back();
    throw;
  }
  ++turns_;
  const int64_t room = served_.model().config().context - std::ssize(prompt.tokens),
                most = std::min(options_.tokens, room);
  const Clock::time_point begin = Clock::now();
  Clock::time_point first = begin;
  const int64_t read_before = generator_->tokens_read();
  std::string text;
  Utf8Stream utf8;
  bool is_stopped = false;
  const auto pass = [&](const std::string& piece) {
    text += piece;
    if (!piece.empty() && !write(piece)) is_stopped = true;
  };
  const auto sink = [&](size_t, TokenId id) {
    if (answer.tokens++ == 0) {
      first = Clock::now();
      answer.read = generator_->tokens_read() - read_before;
    }
    std::string bytes;
    served_.tokenizer().append_bytes(id, bytes);
    pass(utf8.push(bytes));
    return !is_stopped;
  };
  generator_->run(std::span(&prompt, 1), most, options_.sample, stops_, sink);
  pass(utf8.flush());
  const Clock::time_point end = Clock::now();
  if (answer.tokens == 0) {
    first = end;
    answer.read = generator_->tokens_read() - read_before;
  }
  answer.read_s = seconds_between(begin, first);
  answer.answer_s = seconds_between(first, end);
  if (is_stopped)
    answer.end = ChatAnswer::End::kStopped;
  else if (answer.tokens == most)
    answer.end = most < options_.tokens ? ChatAnswer::End::kContext : ChatAnswer::End::kCut;
  messages_.push_back({ChatRole::kAssistant, std::move(text)});
  return answer;
}

std::string chat_line(std::span<const ChatMessage> messages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", role_name(message.role)}, {"content", message.content}});
  return nlohmann::ordered_json{{"messages", list}}.dump(-1, ' ', false,
                                                         nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ingot
