// Times each op of a training step by itself on this machine.
#pragma once

namespace ingot {

// Prints a table, or one JSON object {threads, rows: [{op, dtype, shape, ms, rate, unit}]}.
void bench_ops(bool is_json);

}  // namespace ingot
