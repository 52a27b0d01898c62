#include "ingot/core/error.h"

#include <deque>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ingot {
namespace {

using Argument = fmt::basic_format_arg<fmt::format_context>;

// A message quotes 200 bytes of a text that is longer than any list of Ingot's names, so that a value of
// megabytes does not hide what is wrong with it.
constexpr size_t kMaxWholeBytes = 1000, kMaxBytes = 200, kEndBytes = 60;

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// Returns the begin and the end of a text that is too long, cut between characters.
std::string excerpt(std::string_view text) {
  size_t begin = kMaxBytes - kEndBytes, end = text.size() - kEndBytes;
  for (int i = 0; i < 3 && !begins_character(text[begin]); ++i) --begin;
  for (int i = 0; i < 3 && !begins_character(text[end]); ++i) ++end;
  return fmt::format("{} [... {} bytes ...] {}", text.substr(0, begin), end - begin, text.substr(end));
}

std::string_view text_of(const Argument& argument) {
  return fmt::visit_format_arg(
      [](auto value) -> std::string_view {
        if constexpr (std::is_same_v<decltype(value), fmt::string_view>) return {value.data(), value.size()};
        if constexpr (std::is_same_v<decltype(value), const char*>) return value ? value : "";
        return {};
      },
      argument);
}

}  // namespace

void fail_formatted(ErrorKind kind, fmt::string_view format, fmt::format_args args) {
  std::vector<Argument> bounded;
  std::deque<std::string> excerpts;
  for (int i = 0; const Argument argument = args.get(i); ++i) {
    bounded.push_back(argument);
    const std::string_view text = text_of(argument);
    if (text.size() <= kMaxWholeBytes) continue;
    const fmt::string_view shown = excerpts.emplace_back(excerpt(text));
    bounded.back() = fmt::format_args(fmt::make_format_args(shown)).get(0);
  }
  throw Error(fmt::vformat(format, {bounded.data(), static_cast<int>(bounded.size())}), kind);
}

}  // namespace ingot
