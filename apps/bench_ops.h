// Times the ops that a training step is made of, each alone, on this machine.
#pragma once

namespace ingot {

// Prints a table, or one JSON object {threads, rows: [{op, dtype, shape, ms, rate, unit}]}.
void bench_ops(bool is_json);

}  // namespace ingot
