// ingot bench checkpointing: time and activation memory of every policy, compared with keeping everything.
#include "apps/bench/bench_checkpointing.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "ingot/console/console.h"

namespace ingot {

void print_checkpointing(const CheckpointingBench& result, bool is_json) {
  if (!is_json) {
    fmt::print("{} {}: {} layers, batch {} x {}, median of {} rounds\n", result.preset, result.dtype,
               result.layers, result.batch_size, result.context, result.rounds);
    fmt::print("{:<28} {:>10} {:>12} {:>8} {:>17} {:>14} {:>12}\n", "computed again", "step", "of it again",
               "time", "95 % interval", "activations", "bytes");
    for (const CheckpointingBench::Row& row : result.rows)
      fmt::print("{:<28} {:>7.2f} ms {:>9.2f} ms {:>+7.1f}% {:>+7.1f} to {:>+5.1f}% {:>14} {:>+11.1f}%\n",
                 row.policy, row.step_ms, row.recompute_ms, 100 * row.time_change, 100 * row.time_change_low,
                 100 * row.time_change_high, format_bytes(static_cast<double>(row.activation_bytes)),
                 100 * row.bytes_change);
    return;
  }
  nlohmann::ordered_json json = {{"preset", result.preset},
                                 {"dtype", result.dtype},
                                 {"rounds", result.rounds},
                                 {"layers", result.layers},
                                 {"batch_size", result.batch_size},
                                 {"context", result.context},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const CheckpointingBench::Row& row : result.rows)
    json["rows"].push_back({{"policy", row.policy},
                            {"step_ms", row.step_ms},
                            {"recompute_ms", row.recompute_ms},
                            {"time_change", row.time_change},
                            {"time_change_low", row.time_change_low},
                            {"time_change_high", row.time_change_high},
                            {"activation_bytes", row.activation_bytes},
                            {"bytes_change", row.bytes_change}});
  fmt::print("{}\n", json.dump());
}

}  // namespace ingot
