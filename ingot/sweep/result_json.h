// Figures as JSON for the results of sweeps, range tests and comparisons: what is missing or not finite is null.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "ingot/sweep/statistics.h"

namespace ingot {

inline nlohmann::ordered_json number_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

inline nlohmann::ordered_json interval_json(const std::optional<Interval>& interval) {
  return interval ? nlohmann::ordered_json{interval->low, interval->high} : nlohmann::ordered_json(nullptr);
}

}  // namespace ingot
