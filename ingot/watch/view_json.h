// Writes the JSON that the page of `ingot serve` requests. Numbers that are not finite become null, and bytes
// that are not UTF-8 are replaced.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/watch/run_set.h"

namespace ingot {

// {"host", "runs": [{"id", "name", "status", "steps", "total_steps", "loss", "val_loss", "tokens_per_s",
// "eta_s", "last_sign", "age_s", "remark", "incidents", "has_ended"}]}.
std::string runs_json(RunSet& runs);

// {"config": {key: value}, "record": [[name, value]], "incidents": [text], "samples": [file]}.
std::string run_json(const RunView& run);

// {"run", "generation", "line", "fraction", "series": {key: {"x": [], "mean": [], "low": [], "high": []}},
// "events": [[step, name, reason]]}. low and high are left out where every bucket holds one point.
std::string snapshot_json(size_t id, const RunView& run);
// The series of a store alone, those of `keys` if it is not empty.
std::string series_json(const MetricsStore& store, const std::vector<std::string>& keys);

// {"run", "lines": [[step, {key: value}]], "events": [...]}: the lines after `line` and the events after
// `event`. REQUIRES: the store still has them.
std::string lines_json(size_t id, const MetricsStore& store, int64_t line, int64_t event);

// {"run", "samples": [file]}
std::string samples_json(size_t id, const std::vector<std::string>& files);

}  // namespace ingot
