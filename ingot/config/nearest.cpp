#include "ingot/config/nearest.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace ingot {

int edit_distance(std::string_view a, std::string_view b) {
  // The rows i - 2, i - 1 and i of the table d[i][j], the number of edits from a[..i] to b[..j].
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names) {
  constexpr size_t kMax = 3;
  constexpr size_t kLongest = 200;  // a longer name is not a typing error
  if (name.size() > kLongest) return {};
  int best = std::min(2, static_cast<int>(name.size() + 1) / 2);
  std::vector<std::string> found;
  for (const std::string& candidate : names) {
    const auto longer = static_cast<std::ptrdiff_t>(candidate.size() - name.size());
    if (std::abs(longer) > best) continue;  // lower bound of the distance
    const int distance = edit_distance(name, candidate);
    if (distance < best) found.clear();
    if (distance <= best) {
      best = distance;
      found.push_back(candidate);
    }
  }
  if (found.size() > kMax) found.resize(kMax);
  return found;
}

std::string did_you_mean(std::span<const std::string> nearest) {
  if (nearest.empty()) return "";
  std::string text = "; did you mean ";
  for (size_t i = 0; i < nearest.size(); ++i) {
    if (i > 0) text += i + 1 == nearest.size() ? " or " : ", ";
    text += nearest[i];
  }
  return text + "?";
}

std::string list_names(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace ingot
