// ingot bench ops: matrix products in GFLOP/s, memory-bound ops in GB/s, compared with a memory copy.
#include "apps/bench/bench_ops.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/median.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/activation.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/norm.h"
#include "ingot/optim/optimizer.h"

namespace ingot {
namespace {

constexpr int64_t kRows = 1024, kWidth = 768, kHidden = 3072;  // a block of GPT-2 124M

struct Row {
  std::string op, dtype, shape;
  double ms = 0;    // median
  double rate = 0;  // in `unit`
  std::string unit;
};

// Median time of a call, over at least 5 calls and 0.2 s.
double median_s(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();  // warm-up
  std::vector<double> times;
  double total_s = 0;
  while (times.size() < 5 || total_s < 0.2) {
    const auto start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total_s += times.back();
  }
  return median(times);
}

// Fills t with values in (0, 1]: zeros run faster on some processors, and denormals slower.
void fill(const Tensor& t) {
  parallel_for(t.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = static_cast<float>(i % 61 + 1) / 61.0f;
      if (t.dtype == DType::f32)
        t.as<float>()[i] = value;
      else
        t.as<bf16>()[i] = bf16(value);
    }
  });
}

class OpsBench {
 public:
  OpsBench() : arena_("bench", size_t{256} << 20) {}

  std::vector<Row> run() {
    copy();
    for (const DType dtype : {DType::f32, DType::bf16}) {
      product("matmul forward", dtype, MatmulForm::kNT, {kRows, kHidden, kWidth});
      product("matmul data gradient", dtype, MatmulForm::kNN, {kRows, kWidth, kHidden});
      product("matmul weight gradient", dtype, MatmulForm::kTN, {kHidden, kWidth, kRows});
      elementwise(dtype);
    }
    adamw();
    return rows_;
  }

 private:
  struct Mnk {
    int64_t m, n, k;
  };

  Tensor tensor(DType dtype, const Shape& shape) {
    const Tensor t = arena_.alloc(dtype, shape);
    fill(t);
    return t;
  }

  void add(const char* op, std::string_view dtype, const std::string& shape, double time_s, double work,
           const char* unit) {
    rows_.push_back({op, std::string(dtype), shape, 1e3 * time_s, work / time_s / 1e9, unit});
    arena_.release_to(0);
  }

  void copy() {
    const Shape shape{16 << 20};
    const Tensor from = tensor(DType::f32, shape), to = tensor(DType::f32, shape);
    const double time_s = median_s([&] {
      parallel_for(shape.elements(), 1 << 16, [&](int64_t begin, int64_t end) {
        std::memcpy(to.as<float>() + begin, from.as<float>() + begin,
                    static_cast<size_t>(end - begin) * sizeof(float));
      });
    });
    add("memory copy", "f32", shape.to_string(), time_s, 2.0 * static_cast<double>(from.bytes()), "GB/s");
  }

  void product(const char* op, DType dtype, MatmulForm form, Mnk s) {
    const bool is_weight_gradient = form == MatmulForm::kTN;
    const Tensor a = tensor(dtype, is_weight_gradient ? Shape{s.k, s.m} : Shape{s.m, s.k});
    const Tensor b = tensor(dtype, form == MatmulForm::kNT ? Shape{s.n, s.k} : Shape{s.k, s.n});
    const Tensor c = tensor(is_weight_gradient ? DType::f32 : dtype, {s.m, s.n});
    const double time_s = median_s([&] { matmul(c, a, b, form, is_weight_gradient, stream_); });
    add(op, name(dtype), fmt::format("{} x {} x {}", s.m, s.n, s.k), time_s,
        2.0 * static_cast<double>(s.m * s.n * s.k), "GFLOP/s");
  }

  void elementwise(DType dtype) {
    {
      const Tensor x = tensor(dtype, {4 * kRows, kWidth}), y = tensor(dtype, {4 * kRows, kWidth});
      const Tensor w = tensor(DType::f32, {kWidth}), rstd = tensor(DType::f32, {4 * kRows});
      const double time_s =
          median_s([&] { rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .w = w, .eps = 1e-5f}, stream_); });
      add("rmsnorm forward", name(dtype), x.shape.to_string(), time_s, 2.0 * static_cast<double>(x.bytes()),
          "GB/s");
    }
    const Tensor x = tensor(dtype, {kRows, 2 * kHidden}), y = tensor(dtype, {kRows, kHidden});
    const double time_s = median_s([&] { swiglu_forward(y, x, stream_); });
    add("swiglu forward", name(dtype), x.shape.to_string(), time_s,
        static_cast<double>(x.bytes() + y.bytes()), "GB/s");
  }

  void adamw() {
    const Shape shape{8 << 20};
    const Tensor w = tensor(DType::f32, shape), compute = tensor(DType::bf16, shape),
                 g = tensor(DType::f32, shape);
    Optimizer optimizer({}, {{.name = "w", .shape = shape, .w = w, .compute = compute, .g = g}});
    const double time_s = median_s([&] { optimizer.step({.lr = 1e-6}, 1, stream_); });
    add("adamw update", "f32", shape.to_string(), time_s, 34.0 * static_cast<double>(shape.elements()),
        "GB/s");
  }

  Arena arena_;
  Stream stream_;
  std::vector<Row> rows_;
};

}  // namespace

void bench_ops(bool is_json) {
  const std::vector<Row> rows = OpsBench().run();
  if (!is_json) {
    fmt::print("products: f32 by {}, bf16 by {}; {} threads\n", matmul_engine(DType::f32),
               matmul_engine(DType::bf16), num_threads());
    for (const Row& row : rows)
      fmt::print("{:<24} {:<5} {:<22} {:9.3f} ms {:9.1f} {}\n", row.op, row.dtype, row.shape, row.ms,
                 row.rate, row.unit);
    return;
  }
  nlohmann::ordered_json json = {{"threads", num_threads()}, {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows)
    json["rows"].push_back({{"op", row.op},
                            {"dtype", row.dtype},
                            {"shape", row.shape},
                            {"ms", row.ms},
                            {"rate", row.rate},
                            {"unit", row.unit}});
  fmt::print("{}\n", json.dump());
}

}  // namespace ingot
