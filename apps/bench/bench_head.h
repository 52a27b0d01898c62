// `ingot bench head`: compares the kinds of loss head (profile/bench_head.h) as a table or JSON.
#pragma once

#include <string>

#include "ingot/profile/bench_head.h"

namespace ingot {

struct HeadBenchArguments {
  HeadBenchOptions options;
  std::string precision = "bf16";  // f32, bf16 or fp8
  std::string device = "cpu";      // cpu or cuda
  bool is_json = false;
};

// Prints a table, or one JSON object {tokens, vocab, width, precision, device, threads, rows: [{kind,
// scratch_bytes, scratch_ratio, ms, time_ratio, loss}]}; ratios are relative to the dense head.
void print_head_bench(const HeadBenchArguments& arguments);

}  // namespace ingot
