// The timer of device_bench: tensors with random numbers, medians of events, and a line per figure.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/philox.h"

namespace ingot {

// The dims of a model's step. The logits are those of one chunk of tokens.
struct Model {
  std::string name;
  int64_t B, T, C, F, H, D;
  int64_t V;      // padded
  bool is_llama;  // SwiGLU, no biases
  int64_t rows() const { return B * T; }
};
inline const std::vector<Model> kModels = {
    {"gpt2-124m", 64, 1024, 768, 3072, 12, 64, 50304, false},
    {"llama-350m", 16, 2048, 1024, 2816, 16, 64, 32000, true},
    {"llama-1.3b", 8, 2048, 2048, 5632, 16, 128, 32000, true},
};
inline const std::vector<Model> kTinyModels = {{"tiny-gpt2", 2, 16, 32, 128, 2, 16, 512, false},
                                               {"tiny-llama", 2, 16, 32, 96, 2, 16, 512, true}};

// What --tiny changes.
struct Size {
  int64_t B = 64, T = 1024, C = 768, F = 3072, H = 12, D = 64, V = 50304, vocab = 50257;  // GPT-2 124M
  int64_t N = B * T;
  int64_t wide_norm = 4096;
  int64_t chunk = 4096, weights = int64_t{64} << 20;
  int64_t copy_rows = 1 << 15, copy_columns = 1 << 16;
  size_t arena_bytes = size_t{12} << 30;
  int64_t peak = 8192;  // dims of the product that stands for the peak
  int warm_ups = 3, runs = 20;
  bool is_tiny = false;
};
inline Size tiny() {
  Size s;
  s.B = 2, s.T = 16, s.C = 32, s.F = 128, s.H = 2, s.D = 16, s.V = 512, s.vocab = 509, s.N = s.B * s.T;
  s.wide_norm = 64, s.chunk = 16, s.weights = 1024, s.copy_rows = 64, s.copy_columns = 256;
  s.arena_bytes = size_t{256} << 20, s.warm_ups = 1, s.runs = 3, s.peak = 64, s.is_tiny = true;
  return s;
}

inline double bytes_of(std::initializer_list<Tensor> tensors) {
  double total = 0;
  for (const Tensor& t : tensors) total += static_cast<double>(t.bytes());
  return total;
}

struct Row {
  std::string name;
  double time_s = 0;  // median
  double bytes = 0;
  double flops = 0;  // floating-point operations of a product; 0 for other ops
};

class Bench {
 public:
  Bench(const Size& size, const char* json_path)
      : z(size), arena_("bench", size.arena_bytes, Memory::kDevice) {
    if (json_path) json_.open(json_path, std::ios::app);
    if (json_path && !json_) fail(ErrorKind::kUsage, "{} cannot be written", json_path);
  }

  Tensor tensor(DType dtype, const Shape& shape, double low = -2, double high = 2) {
    const Tensor t = arena_.alloc(dtype, shape);
    std::vector<char> values(1 << 20);
    const int64_t held =
        std::min<int64_t>(t.elements(), static_cast<int64_t>(values.size() / size_bytes(dtype)));
    for (int64_t i = 0; i < held; ++i) {
      const double u =
          low + (high - low) * static_cast<double>(random_uniform({.seed = 1}, static_cast<uint64_t>(i)));
      if (dtype == DType::bf16)
        reinterpret_cast<bf16*>(values.data())[i] = bf16(static_cast<float>(u));
      else if (dtype == DType::f32)
        reinterpret_cast<float*>(values.data())[i] = static_cast<float>(u);
      else if (dtype == DType::i32)
        reinterpret_cast<int32_t*>(values.data())[i] = static_cast<int32_t>(u);
    }
    const size_t piece = static_cast<size_t>(held) * size_bytes(dtype);
    for (size_t at = 0; at < t.bytes(); at += piece) {
      const int64_t bytes = static_cast<int64_t>(std::min(piece, t.bytes() - at));
      copy(Tensor(static_cast<char*>(t.data) + at, DType::u8, {bytes}, Device::kCuda),
           Tensor(values.data(), DType::u8, {bytes}), stream);
      synchronize(stream);
    }
    return t;
  }

  // Times a call that must move `bytes` bytes.
  void time(const std::string& name, double bytes, const std::function<void()>& call) {
    rows.push_back({name, median_s(call), bytes});
    const double rate = bytes / rows.back().time_s;
    fmt::print("{:<44} {:>9.1f} us {:>8.0f} GB/s {:>6.1f} % of the copy\n", name, rows.back().time_s * 1e6,
               rate * 1e-9, 100 * rate / copy_rate());
    write(fmt::format(R"({{"name":"{}","us":{:.2f},"gb_s":{:.1f},"of_copy":{:.4f}}})", name,
                      rows.back().time_s * 1e6, rate * 1e-9, rate / copy_rate()));
  }
  // Times a product of `flops` operations.
  void time_product(const std::string& name, double flops, const std::function<void()>& call) {
    rows.push_back({name, median_s(call), 0, flops});
    fmt::print("{:<44} {:>9.1f} us {:>8.1f} TFLOP/s\n", name, rows.back().time_s * 1e6,
               flops / rows.back().time_s * 1e-12);
    write(fmt::format(R"({{"name":"{}","us":{:.2f},"tflop_s":{:.1f}}})", name, rows.back().time_s * 1e6,
                      flops / rows.back().time_s * 1e-12));
  }
  // Times two ways to do the same in alternation, and prints the ratio of their medians.
  void compare(const std::string& name, const std::string& one_name, const std::function<void()>& one,
               const std::string& other_name, const std::function<void()>& other) {
    std::vector<double> ones, others;
    for (int i = 0; i < z.warm_ups; ++i) one(), other();
    for (int i = 0; i < z.runs; ++i) {
      ones.push_back(time_s(one));
      others.push_back(time_s(other));
    }
    const double a = median(ones), b = median(others);
    fmt::print("{:<44} {} {:.1f} us, {} {:.1f} us, ratio {:.3f}\n", name, one_name, a * 1e6, other_name,
               b * 1e6, a / b);
    write(fmt::format(R"({{"name":"{}","{}_us":{:.2f},"{}_us":{:.2f},"ratio":{:.4f}}})", name, one_name,
                      a * 1e6, other_name, b * 1e6, a / b));
  }

  double copy_rate() const { return rows.front().bytes / rows.front().time_s; }
  void release() { arena_.release_to(0); }

  Stream stream = cuda::make_stream();
  std::vector<Row> rows;
  const Size z;

 private:
  static double median(std::vector<double> times) {
    std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }
  double time_s(const std::function<void()>& call) {
    cuda::Event begin, end;
    begin.record(stream);
    call();
    end.record(stream);
    end.synchronize();
    return end.seconds_since(begin);
  }
  double median_s(const std::function<void()>& call) {
    for (int i = 0; i < z.warm_ups; ++i) call();
    std::vector<double> times;
    for (int i = 0; i < z.runs; ++i) times.push_back(time_s(call));
    return median(times);
  }
  void write(const std::string& line) {
    std::fflush(stdout);
    if (json_.is_open()) json_ << line << std::endl;  // flushed, because the program may be ended early
  }

  Arena arena_;
  std::ofstream json_;
};

}  // namespace ingot
