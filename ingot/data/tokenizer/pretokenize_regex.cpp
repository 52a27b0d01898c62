#include "ingot/data/tokenizer/pretokenize_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/oniguruma.h"

namespace ingot {
namespace {

constexpr uint32_t kMatchLimit = 20'000'000;  // maximum number of backtracking steps per match
// A document may take this long, far more than any expression that does not backtrack over and over.
constexpr double kBudgetS = 10, kBudgetSPerByte = 1e-5;
constexpr size_t kStartsAtOnce = 64;  // positions where a match may begin, between two looks at the clock
constexpr size_t kJitStackBytes = size_t{64} << 20;  // address space; memory grows on demand

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

Regex::Regex(const std::string& expression) : expression_(expression) {
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_USE_OFFSET_LIMIT;
  int error = 0;
  size_t offset = 0;
  auto* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), kOptions,
                             &error, &offset, nullptr);
  if (!code)
    fail(ErrorKind::kData, "pattern '{}': {} at byte {}; give a regular expression that PCRE2 reads",
         shown_pattern(expression), message_of(error), offset);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT, the interpreter matches
  code_ = code;
}

std::shared_ptr<const Regex> Regex::from_oniguruma(const std::string& expression) {
  return std::make_shared<const Regex>(pcre2_from_oniguruma(expression));
}

Regex::~Regex() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

RegexMatch::RegexMatch(const Regex& regex)
    : regex_(&regex),
      // \G matches where a search begins, so that one with it cannot be divided.
      starts_at_once_(regex.expression().find("\\G") == std::string::npos ? kStartsAtOnce : SIZE_MAX),
      begin_(std::chrono::steady_clock::now()) {
  auto* data = pcre2_match_data_create(1, nullptr);
  auto* context = pcre2_match_context_create(nullptr);
  data_ = data, context_ = context;
  if (!data || !context)
    fail(ErrorKind::kMemory, "pattern '{}': no memory to match", shown_pattern(regex.expression()));
  pcre2_set_match_limit(context, kMatchLimit);
}

RegexMatch::~RegexMatch() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context_));
  pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(stack_));
}

std::optional<RegexMatch::Found> RegexMatch::find(std::string_view text, size_t begin) {
  const std::optional<Found> found = match(text, begin, PCRE2_NOTEMPTY);
  if (found && found->end == found->begin) return std::nullopt;
  return found;
}

std::optional<RegexMatch::Found> RegexMatch::find_also_empty(std::string_view text, size_t begin) {
  return match(text, begin, 0);
}

// The match limit holds for each position where a match may begin, so they are tried some at a time.
std::optional<RegexMatch::Found> RegexMatch::match(std::string_view text, size_t begin, uint32_t options) {
  for (size_t from = begin;;) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    if (spent.count() > kBudgetS + kBudgetSPerByte * static_cast<double>(text.size()))
      fail(ErrorKind::kData,
           "pattern '{}': took {:.0f} s for a text of {} bytes and is at byte {}; simplify the pattern",
           shown_pattern(regex_->expression()), spent.count(), text.size(), from);
    const size_t last =
        from < text.size() && starts_at_once_ < text.size() - from ? from + starts_at_once_ : text.size();
    if (const std::optional<Found> found = match_until(text, from, last, options)) return found;
    if (last == text.size()) return std::nullopt;
    for (from = last + 1; from < text.size() && (static_cast<uint8_t>(text[from]) & 0xc0) == 0x80;) ++from;
  }
}

// Returns the first match that begins in [begin, last].
std::optional<RegexMatch::Found> RegexMatch::match_until(std::string_view text, size_t begin, size_t last,
                                                         uint32_t options) {
  auto* data = static_cast<pcre2_match_data*>(data_);
  auto* context = static_cast<pcre2_match_context*>(context_);
  pcre2_set_offset_limit(context, last);
  const auto run = [&] {
    return pcre2_match(static_cast<const pcre2_code*>(regex_->code_),
                       reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                       PCRE2_NO_UTF_CHECK | options, data, context);
  };
  int count = run();
  if (count == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {  // the default 32 KiB stack was too small
    auto* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);
    stack_ = stack;
    pcre2_jit_stack_assign(context, nullptr, stack);
    count = run();
  }
  if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (count < 0)
    fail(ErrorKind::kData, "pattern '{}': {} at byte {} of the text; simplify the pattern",
         shown_pattern(regex_->expression()), message_of(count), begin);
  const size_t* bounds = pcre2_get_ovector_pointer(data);
  // \K can put the start after the end; such a match counts as no match.
  if (bounds[1] < bounds[0] || bounds[0] < begin) return std::nullopt;
  return Found{bounds[0], bounds[1]};
}

}  // namespace ingot
