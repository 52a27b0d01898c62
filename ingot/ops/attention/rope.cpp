#include "ingot/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/attention/head_view.h"
#include "ingot/ops/attention/rope_row.h"

namespace ingot {

namespace cuda {  // rope.cu
void rope(const Tensor& x, const Tensor& table, int64_t position_offset, float direction, Stream& stream);
}  // namespace cuda

namespace {

constexpr int64_t kGrainRows = 16;  // minimum number of the B*T rows per thread

void rotate(const Tensor& x, const Tensor& table, int64_t position_offset, float direction, const char* op,
            const char* operand, [[maybe_unused]] Stream& stream) {
  check_heads(x, op, operand);
  INGOT_CHECK(table, "{}: no table", op);
  const int64_t B = x.dim(0), T_ = x.dim(1), H = x.dim(2);
  const RopeRows rows(table, x.dim(3), T_, position_offset, op);
  INGOT_CHECK(!x.amax || rows.rotated_dims() == x.dim(3), "{}: amax of heads of {} dims, {} of them rotated",
              op, x.dim(3), rows.rotated_dims());
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::rope(x, table, position_offset, direction, stream);
  }
  const int64_t R = rows.rotated_dims();
  with_dtype(x.dtype, __func__, [&]<typename T>() {
    const HeadView<T> heads(x);
    parallel_for(B * T_, kGrainRows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t h = 0; h < H; ++h) {
          T* head = heads.at(row / T_, row % T_, h);
          rotate_row(head, rows.at(row % T_), direction, R, R,
                     [head](auto load, int64_t first) { return load(head + first); });
        }
    });
  });
}

}  // namespace

RopeRows::RopeRows(const Tensor& table, int64_t D, int64_t T, int64_t position_offset, const char* op) {
  if (!table) return;
  INGOT_CHECK(table.dtype == DType::f32 && table.rank() == 2 && table.is_contiguous(),
              "{}: table must be f32 (T_max, R) and contiguous, got {} {}", op, name(table.dtype),
              table.shape.to_string());
  R_ = table.dim(1);
  INGOT_CHECK(R_ % 2 == 0 && R_ <= D, "{}: rotated dims must be even and at most D = {}, got {}", op, D, R_);
  INGOT_CHECK(position_offset >= 0 && position_offset + T <= table.dim(0),
              "{}: positions {} to {} do not fit a table of {}", op, position_offset, position_offset + T - 1,
              table.dim(0));
  rows_ = table.as<float>() + position_offset * R_;
}

namespace {

// Returns the index i, in general between two whole numbers, whose f_i turns `turns` times in the original
// context.
double index_of_turns(double turns, int64_t R, double theta, const RopeScaling& s) {
  const double context = static_cast<double>(s.original_context);
  return static_cast<double>(R) * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

// `period` is 1 / f_i before scaling.
float yarn_frequency(float period, int64_t i, int64_t R, double theta, const RopeScaling& s) {
  const double first = std::max(0.0, std::floor(index_of_turns(s.beta_fast, R, theta, s)));
  double last = std::min(static_cast<double>(R - 1), std::ceil(index_of_turns(s.beta_slow, R, theta, s)));
  if (last == first) last += 0.001;  // as transformers avoids a division by zero
  const float ramp = std::clamp(
      (static_cast<float>(i) - static_cast<float>(first)) / static_cast<float>(last - first), 0.0f, 1.0f);
  const float stays = 1 - ramp;
  return 1.0f / (static_cast<float>(s.factor) * period) * (1 - stays) + 1.0f / period * stays;
}

float llama3_frequency(float frequency, const RopeScaling& s) {
  const auto factor = static_cast<float>(s.factor);
  const double context = static_cast<double>(s.original_context);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > static_cast<float>(context / s.low_freq_factor)) return frequency / factor;
  if (wavelength < static_cast<float>(context / s.high_freq_factor)) return frequency;
  const float smooth = (static_cast<float>(context) / wavelength - static_cast<float>(s.low_freq_factor)) /
                       static_cast<float>(s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// Returns f_i after scaling, with transformers' f32 roundings. `period` is the inverse of f_i before it.
float scaled_frequency(float period, int64_t i, int64_t R, double theta, const RopeScaling& s) {
  const float frequency = 1.0f / period;
  switch (s.kind) {
    case RopeScaling::Kind::kLinear:
      return frequency / static_cast<float>(s.factor);
    case RopeScaling::Kind::kLlama3:
      return llama3_frequency(frequency, s);
    case RopeScaling::Kind::kYarn:
      return yarn_frequency(period, i, R, theta, s);
    case RopeScaling::Kind::kNone:
      break;
  }
  return frequency;
}

}  // namespace

double RopeScaling::q_and_k_factor() const {
  if (kind != Kind::kYarn) return 1;
  return attention_factor > 0 ? attention_factor : 0.1 * std::log(factor) + 1;
}

void rope_table(const Tensor& table, double theta, const RopeScaling& scaling) {
  INGOT_CHECK(table && table.dtype == DType::f32 && table.rank() == 2 && table.is_contiguous() &&
                  table.dim(1) % 2 == 0,
              "rope_table: table must be f32 (T_max, R), R even, got {} {}", name(table.dtype),
              table.shape.to_string());
  INGOT_CHECK(theta > 0, "rope_table: theta must be above 0, got {}", theta);
  INGOT_CHECK(scaling.kind != RopeScaling::Kind::kYarn || theta > 1,
              "rope_table: theta must be above 1 for YaRN, got {}", theta);
  const int64_t R = table.dim(1), half = R / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(R);
    const auto period = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    const float frequency = scaled_frequency(period, i, R, theta, scaling);
    for (int64_t t = 0; t < table.dim(0); ++t) {
      const float angle = static_cast<float>(t) * frequency;
      float* row = table.as<float>() + t * R;
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void rope_forward(const Tensor& x, const Tensor& table, int64_t position_offset, Stream& stream) {
  const OpSpan span(stream, "rope", traffic({x, x}));
  if (span.plans()) return;
  rotate(x, table, position_offset, 1.0f, "rope_forward", "x", stream);
}

void rope_backward(const Tensor& dy, const Tensor& table, int64_t position_offset, Stream& stream) {
  const OpSpan span(stream, "rope", traffic({dy, dy}));
  if (span.plans()) return;
  rotate(dy, table, position_offset, -1.0f, "rope_backward", "dy", stream);
}

}  // namespace ingot
