#include "ingot/data/chat/chat_data.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iterator>
#include <list>
#include <optional>
#include <unordered_set>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/data/corpus.h"
#include "ingot/formats/jsonl.h"

namespace ingot {
namespace {

// Returns for every token where its bytes end in the text; nullopt if the bytes of the tokens are not the
// text, as with a tokenizer that normalizes.
std::optional<std::vector<size_t>> token_ends(std::string_view text, std::span<const TokenId> ids,
                                              const Tokenizer& tokenizer) {
  std::vector<size_t> ends;
  std::string bytes;
  for (const TokenId id : ids) {
    tokenizer.append_bytes(id, bytes);
    ends.push_back(bytes.size());
  }
  if (bytes != text) return std::nullopt;
  return ends;
}

// Returns the first token that differs from the tokens of the text before `end`.
size_t first_changed(std::string_view text, size_t end, std::span<const TokenId> ids,
                     const Tokenizer& tokenizer) {
  const std::vector<TokenId> before = encode_with_special(tokenizer, text.substr(0, end));
  return static_cast<size_t>(std::ranges::mismatch(ids, before).in1 - ids.begin());
}

bool spells_special(const ChatPart& part, const Tokenizer& tokenizer) {
  return part.is_written && encode(tokenizer, part.text) != encode_with_special(tokenizer, part.text);
}

ChatTokens tokenize_apart(std::span<const ChatPart> parts, const Tokenizer& tokenizer) {
  ChatTokens out;
  for (const ChatPart& part : parts) {
    if (part.is_written)
      tokenizer.encode(part.text, out.ids);
    else
      tokenizer.encode_with_special(part.text, out.ids);
    out.is_target.resize(out.ids.size(), part.is_target);
  }
  return out;
}

// One conversation on its way from a line to tokens.
class ChatLine {
 public:
  ChatLine(std::string_view line, std::string place, const ChatTemplate* chat_template,
           const ChatFormat& format)
      : conversation_(parse_conversation(line, place)),
        place_(std::move(place)),
        template_(conversation_.parts.empty() ? chat_template : nullptr),
        format_(format) {
    if (!template_ && conversation_.parts.empty())
      fail(ErrorKind::kData,
           "{}: is not rendered, as the first line of the file is; render all lines, or none", place_);
    if (template_)
      for (size_t i = 0; i < conversation_.messages.size(); ++i)
        if (conversation_.messages[i].role == ChatRole::kAssistant) exchanges_.push_back(i + 1);
    const std::vector<ChatPart>& parts = conversation_.parts;
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts[i].is_target && (i + 1 == parts.size() || !parts[i + 1].is_target))
        exchanges_.push_back(i + 1);
    if (exchanges_.empty() && format_.loss_on == LossOn::kAssistant)
      fail(ErrorKind::kData,
           "{}: has no assistant's turn, so that every token would be masked; leave the line out, or set "
           "data.loss_on = \"all\"",
           place_);
  }

  // Returns the tokens of as many turns as fit; nullopt if not even the first exchange does.
  std::optional<ChatTokens> tokens(bool& is_cut) const {
    const size_t all = template_ ? conversation_.messages.size() : conversation_.parts.size();
    ChatTokens whole = tokens_of(all);
    is_cut = std::ssize(whole.ids) > format_.context;
    if (!is_cut) return whole;
    std::optional<ChatTokens> longest;
    for (size_t low = 0, high = exchanges_.size(); low < high;) {
      const size_t middle = (low + high) / 2;
      ChatTokens some = tokens_of(exchanges_[middle]);
      const bool fits = std::ssize(some.ids) <= format_.context;
      if (fits) longest = std::move(some);
      (fits ? low : high) = fits ? middle + 1 : middle;
    }
    return longest;
  }

 private:
  // The tokens of the first messages, or parts.
  ChatTokens tokens_of(size_t count) const {
    std::vector<ChatPart> rendered;
    if (template_) rendered = template_->render(std::span(conversation_.messages).first(count), place_);
    const std::span<const ChatPart> parts =
        template_ ? rendered : std::span(conversation_.parts).first(count);
    ChatTokens tokens = tokenize_parts(parts, format_.tokenizer);
    if (format_.loss_on == LossOn::kAll) tokens.is_target.assign(tokens.ids.size(), true);
    if (!tokens.is_target.empty()) tokens.is_target[0] = false;  // nothing in the conversation predicts it
    return tokens;
  }

  Conversation conversation_;
  std::string place_;
  const ChatTemplate* template_;   // null if the conversation has parts
  std::vector<size_t> exchanges_;  // the numbers of messages, or parts, that end with an assistant's turn
  const ChatFormat& format_;
};

// Returns the parts of a prompt with an answer; the targets are all behind the prompt.
std::vector<ChatPart> answer_parts(const AnswerPair& pair, std::span<const ChatMessage> answer,
                                   const ChatTemplate* chat_template, const ChatFormat& format,
                                   const std::string& place) {
  if (!chat_template) {
    std::string end;
    const std::vector<TokenId> ends = format.tokenizer.eos_ids();
    if (!ends.empty()) format.tokenizer.append_bytes(ends.front(), end);
    return {{.text = pair.prompt.front().content, .is_written = true},
            {.text = answer.front().content, .is_written = true, .is_target = true},
            {.text = end, .is_target = true}};
  }
  std::vector<ChatMessage> messages = pair.prompt;
  messages.insert(messages.end(), answer.begin(), answer.end());
  std::vector<ChatPart> parts = chat_template->render(messages, place);
  auto turns = std::ranges::count(pair.prompt, ChatRole::kAssistant, &ChatMessage::role);
  bool is_answer = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool ends_turn = parts[i].is_target && (i + 1 == parts.size() || !parts[i + 1].is_target);
    is_answer |= parts[i].is_target && turns == 0;
    if (ends_turn) --turns;
    parts[i].is_target = is_answer;
  }
  if (!is_answer)
    fail(ErrorKind::kData, "{}: an answer has no assistant's turn; correct the line or leave it out", place);
  return parts;
}

// Returns the tokens of both answers; nullopt if they do not fit into the context.
std::optional<ChatTokens> pair_tokens(std::string_view line, const std::string& place,
                                      const ChatTemplate* chat_template, const ChatFormat& format) {
  const AnswerPair pair = parse_answer_pair(line, place);
  if (!pair.is_text && !chat_template)
    fail(ErrorKind::kData, "{}: has messages, and the first line of the file texts; use one form", place);
  ChatTokens both;
  for (const std::vector<ChatMessage>* answer : {&pair.chosen, &pair.rejected}) {
    ChatTokens one = tokenize_parts(
        answer_parts(pair, *answer, pair.is_text ? nullptr : chat_template, format, place), format.tokenizer);
    if (!one.is_target.empty()) one.is_target[0] = false;
    if (std::ranges::find(one.is_target, true) == one.is_target.end())
      fail(ErrorKind::kData, "{}: an answer is empty; leave the line out", place);
    both.rejected_at = both.ids.size();
    both.ids.insert(both.ids.end(), one.ids.begin(), one.ids.end());
    both.is_target.insert(both.is_target.end(), one.is_target.begin(), one.is_target.end());
  }
  if (std::ssize(both.ids) > format.context) return std::nullopt;
  return both;
}

struct NumberedLine {
  std::string_view text;
  int64_t number;
};

class ChatReader {
 public:
  explicit ChatReader(const ChatFormat& format) : format_(format) {}

  // Adds the conversations of the lines, which all threads tokenize.
  void add(std::span<const NumberedLine> lines, const std::string& file) {
    struct Result {
      std::optional<ChatTokens> tokens;
      bool is_cut = false;
      std::exception_ptr error;
    };
    if (!template_ && !lines.empty() && needs_template(lines[0], file))
      template_.emplace(format_.template_name, format_.tokenizer, format_.source);
    const ChatTemplate* chat_template = template_ ? &*template_ : nullptr;
    std::vector<Result> results(lines.size());
    parallel_for(std::ssize(lines), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          const std::string at = place(file, lines[i]);
          results[i].tokens =
              *has_pairs_ ? pair_tokens(lines[i].text, at, chat_template, format_)
                          : ChatLine(lines[i].text, at, chat_template, format_).tokens(results[i].is_cut);
        } catch (...) {
          results[i].error = std::current_exception();
        }
      }
    });
    for (Result& result : results) {
      if (result.error) std::rethrow_exception(result.error);
      keep(std::move(result.tokens), result.is_cut);
    }
  }

  Chats take() { return std::move(chats_); }

 private:
  static std::string place(const std::string& file, const NumberedLine& line) {
    return fmt::format("{}:{}", file, line.number);
  }

  bool needs_template(const NumberedLine& line, const std::string& file) {
    if (!has_pairs_) has_pairs_ = is_answer_pair(line.text, place(file, line));
    return *has_pairs_ ? !parse_answer_pair(line.text, place(file, line)).is_text
                       : parse_conversation(line.text, place(file, line)).parts.empty();
  }

  void keep(std::optional<ChatTokens> tokens, bool is_cut) {
    if (!tokens) {
      ++chats_.left_out;
      return;
    }
    chats_.cut += is_cut ? 1 : 0;
    chats_.conversations.push_back(std::move(*tokens));
  }

  const ChatFormat& format_;
  std::optional<ChatTemplate> template_;
  std::optional<bool> has_pairs_;  // as the first line of all files
  Chats chats_;
};

int64_t bytes_of_files(std::span<const std::filesystem::path> files) {
  int64_t sum = 0;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(file, error);
    sum += error ? 0 : static_cast<int64_t>(bytes);
  }
  return sum;
}

}  // namespace

ChatTokens tokenize_parts(std::span<const ChatPart> parts, const Tokenizer& tokenizer) {
  if (std::ranges::any_of(parts, [&](const ChatPart& part) { return spells_special(part, tokenizer); }))
    return tokenize_apart(parts, tokenizer);
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  ChatTokens out{.ids = encode_with_special(tokenizer, text), .is_target = {}};
  out.is_target.assign(out.ids.size(), false);
  const std::optional<std::vector<size_t>> ends = token_ends(text, out.ids, tokenizer);
  size_t begin = 0;
  for (size_t i = 0; i < parts.size();) {
    size_t end = begin, next = i;  // They pass all parts that are targets like this one.
    for (; next < parts.size() && parts[next].is_target == parts[i].is_target; ++next)
      end += parts[next].text.size();
    if (parts[i].is_target) {
      // From the first token that ends behind `begin` to the first that reaches `end`.
      const size_t first = ends ? static_cast<size_t>(std::ranges::upper_bound(*ends, begin) - ends->begin())
                                : first_changed(text, begin, out.ids, tokenizer);
      size_t last = ends ? static_cast<size_t>(std::ranges::lower_bound(*ends, end) - ends->begin()) + 1
                         : first_changed(text, end, out.ids, tokenizer);
      last = std::min(last, out.ids.size());
      for (size_t t = first; t < last; ++t) out.is_target[t] = true;
    }
    begin = end;
    i = next;
  }
  return out;
}

Chats read_chats(std::span<const std::string> specs, const ChatFormat& format,
                 const std::function<void(int64_t done, int64_t total)>& progress) {
  constexpr size_t kLinesAtOnce = 4096, kBytesAtOnce = size_t{8} << 20;
  const std::vector<std::filesystem::path> files = expand_paths(specs);
  const int64_t total = bytes_of_files(files);
  int64_t done = 0;
  ChatReader chats(format);
  for (const std::filesystem::path& file : files) {
    JsonlReader reader(file);
    while (reader.fill(kBytesAtOnce)) {
      std::vector<NumberedLine> lines;
      const auto flush = [&] {
        chats.add(lines, file.string());
        lines.clear();
        if (progress) progress(done + static_cast<int64_t>(reader.position()), total);
      };
      for (std::string_view line; reader.next_line(line);) {
        lines.push_back({line, reader.line()});
        if (lines.size() == kLinesAtOnce) flush();
      }
      flush();
    }
    done += static_cast<int64_t>(reader.position());
  }
  Chats result = chats.take();
  if (result.conversations.empty())
    fail(ErrorKind::kData, "{}: {}", files.front().string(),
         result.left_out == 0
             ? std::string("holds no conversation; give a file with some")
             : fmt::format(
                   "none of the {} conversations fits into model.context = {}; choose a longer context",
                   result.left_out, format.context));
  return result;
}

Chats split_off_chats(Chats& train, double val_fraction) {
  const auto count = std::ssize(train.conversations);
  if (val_fraction == 0 || count < 2)
    fail(ErrorKind::kUsage,
         "data: there is no conversation for validation; set data.val or a data.val_fraction above 0");
  const int64_t wanted = std::llround(static_cast<double>(count) * val_fraction);
  const auto first = train.conversations.end() - std::clamp<int64_t>(wanted, 1, count - 1);
  Chats val;
  val.conversations.assign(std::make_move_iterator(first),
                           std::make_move_iterator(train.conversations.end()));
  train.conversations.erase(first, train.conversations.end());
  return val;
}

int64_t conversations_also_in(const Chats& chats, const Chats& others) {
  const auto hash = [](const ChatTokens& one) {
    return XXH3_64bits(one.ids.data(), one.ids.size() * sizeof(TokenId));
  };
  std::unordered_set<uint64_t> known;
  for (const ChatTokens& one : others.conversations) known.insert(hash(one));
  return std::ranges::count_if(chats.conversations,
                               [&](const ChatTokens& one) { return known.contains(hash(one)); });
}

TokenSource pack(std::span<const ChatTokens> conversations, int64_t context, int64_t vocab_size) {
  std::vector<uint32_t> tokens;
  std::vector<bool> is_target;
  DocumentStarts documents;
  std::list<const ChatTokens*> left;
  for (const ChatTokens& one : conversations) left.push_back(&one);
  while (!left.empty()) {
    const size_t end = tokens.size() + static_cast<size_t>(context);
    size_t seen = 0;
    for (auto next = left.begin(); next != left.end() && seen < kPackingLookAhead; ++seen) {
      const ChatTokens& one = **next;
      const bool fits = tokens.size() + one.ids.size() <= end;
      INGOT_CHECK(fits || seen > 0, "pack: a conversation has {} tokens, the windows {}", one.ids.size(),
                  context);
      if (fits) {
        documents.positions.push_back(std::ssize(tokens));
        if (one.rejected_at > 0)
          documents.positions.push_back(std::ssize(tokens) + static_cast<int64_t>(one.rejected_at));
        tokens.insert(tokens.end(), one.ids.begin(), one.ids.end());
        is_target.insert(is_target.end(), one.is_target.begin(), one.is_target.end());
      }
      next = fits ? left.erase(next) : std::next(next);
    }
    if (tokens.size() < end) documents.positions.push_back(std::ssize(tokens));
    tokens.resize(end, 0);
    is_target.resize(end, false);
  }
  tokens.push_back(0);
  is_target.push_back(false);
  TokenSource source;
  if (vocab_size <= 1 << 16)
    source.add(std::vector<uint16_t>(tokens.begin(), tokens.end()));
  else
    source.add(std::move(tokens));
  source.set_documents(std::move(documents));
  source.set_targets(std::move(is_target));
  if (!conversations.empty() && conversations.front().rejected_at > 0) source.set_pairs();
  return source;
}

std::string summary_of(const Chats& chats, int64_t windows, int64_t context) {
  int64_t tokens = 0, targets = 0;
  for (const ChatTokens& one : chats.conversations) {
    tokens += std::ssize(one.ids);
    targets += std::ranges::count(one.is_target, true);
  }
  const auto percent = [](int64_t part, int64_t whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  };
  return fmt::format(
      "{} {} in {} windows ({:.1f} % full), {:.1f} % of their tokens are targets; {} were cut at "
      "model.context, {} left out",
      chats.conversations.size(), chats.conversations.front().rejected_at > 0 ? "pairs" : "conversations",
      windows, percent(tokens, windows * context), percent(targets, tokens), chats.cut, chats.left_out);
}

}  // namespace ingot
