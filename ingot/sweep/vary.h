// Parses --vary: a key of the configuration with the values that a sweep tries.
//
//   KEY=a,b,c           the values a, b and c; each may be whatever --set takes
//   KEY=lo..hi:log:n    n values from lo to hi, each a fixed factor above the one before
//   KEY=lo..hi:linear:n n values from lo to hi at equal distances
// Values of a range have four significant digits; those of a key that takes whole numbers are rounded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct Vary {
  std::string key;                  // "optimizer.lr"
  std::vector<std::string> values;  // as config.toml has them, without quotes; no two are equal
  bool is_log = false;              // the values came from a range over factors

  // Returns the values as numbers; nullopt if one is none.
  std::optional<std::vector<double>> numbers() const;
  // Returns true if the values are best drawn over a logarithmic axis: they are positive and span a factor of
  // 8.
  bool spans_factors() const;
};

// Throws a kUsage error that names the option, what is wrong and the nearest valid key or form.
Vary parse_vary(std::string_view text);

// Adds the values of `more` that `vary` lacks, and sorts them if all are numbers. REQUIRES: the same key.
void merge(Vary& vary, const Vary& more);

}  // namespace ingot
