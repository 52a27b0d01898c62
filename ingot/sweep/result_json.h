// Figures as JSON for the results of sweeps, range tests and comparisons: what is missing or not finite is null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "ingot/sweep/statistics.h"

namespace ingot {

nlohmann::ordered_json number_json(const std::optional<double>& value);
nlohmann::ordered_json interval_json(const std::optional<Interval>& interval);

}  // namespace ingot
