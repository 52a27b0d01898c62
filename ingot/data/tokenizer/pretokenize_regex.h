// Wraps PCRE2 with its JIT, for the patterns that have no scanner.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

// A compiled expression. It matches UTF-8, \s \d \w use Unicode properties, and $ matches only at the
// very end.
class Regex {
 public:
  explicit Regex(const std::string& expression);  // kData error names the place in the expression
  // Compiles an expression of a tokenizer.json, as Oniguruma understands it (oniguruma.h).
  static std::shared_ptr<const Regex> from_oniguruma(const std::string& expression);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  const std::string& expression() const { return expression_; }

 private:
  friend class RegexMatch;
  std::string expression_;
  void* code_;  // pcre2_code
};

// Working memory of one thread for matching the pieces of one text, whose time is limited from its
// construction on.
class RegexMatch {
 public:
  explicit RegexMatch(const Regex& regex);  // borrowed
  ~RegexMatch();
  RegexMatch(const RegexMatch&) = delete;
  RegexMatch& operator=(const RegexMatch&) = delete;

  struct Found {
    size_t begin, end;
  };
  // Returns the first non-empty match in `text` from `begin` on, or nullopt. kData error if the match
  // needs too many backtracking steps, or all matches together more than 10 s and 10 us per byte of `text`.
  // REQUIRES: `text` is valid UTF-8.
  std::optional<Found> find(std::string_view text, size_t begin);
  // Does the same, but an empty match counts too.
  std::optional<Found> find_also_empty(std::string_view text, size_t begin);

 private:
  std::optional<Found> match(std::string_view text, size_t begin, uint32_t options);
  std::optional<Found> match_until(std::string_view text, size_t begin, size_t last, uint32_t options);
  const Regex* regex_;
  size_t starts_at_once_;
  std::chrono::steady_clock::time_point begin_;
  void* data_;             // pcre2_match_data
  void* context_;          // pcre2_match_context
  void* stack_ = nullptr;  // pcre2_jit_stack; created when first needed
};

}  // namespace ingot
