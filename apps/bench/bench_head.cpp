#include "apps/bench/bench_head.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"

namespace ingot {
namespace {

HeadPrecision precision_of(const std::string& name) {
  if (name == "f32") return HeadPrecision::kF32;
  if (name == "bf16") return HeadPrecision::kBf16;
  if (name == "fp8") return HeadPrecision::kFp8;
  fail(ErrorKind::kUsage, "--precision must be f32, bf16 or fp8, got {}", name);
}

Device device_of(const std::string& name) {
  if (name == "cpu") return Device::kCpu;
  if (name == "cuda") return Device::kCuda;
  fail(ErrorKind::kUsage, "--device must be cpu or cuda, got {}", name);
}

}  // namespace

void print_head_bench(const HeadBenchArguments& a) {
  HeadBenchOptions o = a.options;
  o.precision = precision_of(a.precision);
  o.device = device_of(a.device);
  const std::vector<HeadBenchRow> rows = bench_head(o);
  const double dense_bytes = static_cast<double>(rows[0].scratch_bytes);
  nlohmann::ordered_json json = {{"tokens", o.tokens},
                                 {"vocab", o.vocab},
                                 {"width", o.width},
                                 {"precision", a.precision},
                                 {"device", a.device},
                                 {"threads", num_threads()},
                                 {"rows", nlohmann::ordered_json::array()}};
  if (!a.is_json)
    fmt::print("loss and gradients of {} tokens, vocabulary {}, width {}, {}, {}\n", o.tokens, o.vocab,
               o.width, a.precision,
               o.device == Device::kCuda ? "cuda" : fmt::format("{} threads", num_threads()));
  for (const HeadBenchRow& row : rows) {
    const double bytes = static_cast<double>(row.scratch_bytes), time_ratio = row.ms / rows[0].ms;
    json["rows"].push_back({{"kind", row.kind},
                            {"scratch_bytes", row.scratch_bytes},
                            {"scratch_ratio", bytes / dense_bytes},
                            {"ms", row.ms},
                            {"time_ratio", time_ratio},
                            {"loss", row.loss}});
    if (!a.is_json)
      fmt::print("{:<10} scratch {:>10} {:6.2f}%   {:9.2f} ms {:6.3f}x   loss {:.6f}\n", row.kind,
                 format_bytes(bytes), 100 * bytes / dense_bytes, row.ms, time_ratio, row.loss);
  }
  if (a.is_json) fmt::print("{}\n", json.dump());
}

}  // namespace ingot
