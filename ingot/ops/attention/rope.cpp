#include "ingot/ops/rope.h"

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
  if constexpr (kHasCuda) {
    if (x.device == Device::kCuda) return cuda::rope(x, table, position_offset, direction, stream);
  }
  const int64_t R = rows.rotated_dims();
  INGOT_DISPATCH(x.dtype, T, {
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

// Returns f_i after scaling, with transformers' f32 roundings.
float scaled_frequency(float frequency, const RopeScaling& s) {
  if (s.linear_factor != 1) return frequency / static_cast<float>(s.linear_factor);
  if (!s.is_llama3) return frequency;
  const auto factor = static_cast<float>(s.factor);
  const double context = static_cast<double>(s.original_context);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > static_cast<float>(context / s.low_freq_factor)) return frequency / factor;
  if (wavelength < static_cast<float>(context / s.high_freq_factor)) return frequency;
  const float smooth = (static_cast<float>(context) / wavelength - static_cast<float>(s.low_freq_factor)) /
                       static_cast<float>(s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

void rope_table(const Tensor& table, double theta, const RopeScaling& scaling) {
  INGOT_CHECK(table && table.dtype == DType::f32 && table.rank() == 2 && table.is_contiguous() &&
                  table.dim(1) % 2 == 0,
              "rope_table: table must be f32 (T_max, R), R even, got {} {}", name(table.dtype),
              table.shape.to_string());
  INGOT_CHECK(theta > 0, "rope_table: theta must be above 0, got {}", theta);
  const int64_t R = table.dim(1), half = R / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(R);
    const float frequency =
        scaled_frequency(1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent))), scaling);
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
