#include "ingot/sweep/result_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace ingot {

using nlohmann::ordered_json;

ordered_json number_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json interval_json(const std::optional<Interval>& interval) {
  return interval ? ordered_json{interval->low, interval->high} : ordered_json(nullptr);
}

}  // namespace ingot
