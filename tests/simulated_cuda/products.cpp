// Stand-ins for the products of cuBLASLt, which needs a device. They compute on the host, so that
// the code around them can run.
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/float8.h"
#include "ingot/ops/fp8/cuda_fp8.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/tf32.h"

namespace ingot::cuda {
namespace {

void multiply(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode) {
  const auto value = [](const Tensor& t, int64_t row, int64_t k) {
    const int64_t at = row * t.strides[0] + k;
    return t.dtype == DType::f8e5m2 ? static_cast<float>(t.as<f8e5m2>()[at])
                                    : static_cast<float>(t.as<f8e4m3>()[at]);
  };
  // An operand has one inverse scale in all or one per row.
  const auto inverse = [](const Fp8Operand& of, int64_t row) {
    return of.inverse.as<float>()[of.inverse.elements() == 1 ? 0 : row];
  };
  for (int64_t m = 0; m < c.dim(0); ++m)
    for (int64_t n = 0; n < c.dim(1); ++n) {
      float sum = 0;
      for (int64_t k = 0; k < a.codes.dim(1); ++k) sum += value(a.codes, m, k) * value(b.codes, n, k);
      const float factor = inverse(a, m) * inverse(b, n) * mode.alpha;
      const int64_t at = m * c.strides[0] + n;
      if (c.dtype == DType::bf16)
        c.as<bf16>()[at] = bf16(sum * factor);
      else if (c.dtype == DType::f16)
        c.as<f16>()[at] = f16(sum * factor);
      else
        c.as<float>()[at] = sum * factor + (mode.accumulate ? c.as<float>()[at] : 0.0f);
    }
}

// Returns an f32 operand rounded to nearest even with the 10 mantissa bits of tf32. Returns an empty
// vector if is_wanted is false or the operands are not f32.
std::vector<float> tf32(const MatmulProblem& p, const void* operand, bool is_wanted) {
  if (!is_wanted || p.in != DType::f32) return {};
  const bool is_a = operand == p.a;
  const int64_t rows =
      is_a ? (p.form == MatmulForm::kTN ? p.K : p.M) : (p.form == MatmulForm::kNT ? p.N : p.K);
  std::vector<float> rounded(static_cast<size_t>(rows * (is_a ? p.lda : p.ldb)));
  const auto* values = static_cast<const float*>(operand);
  for (size_t i = 0; i < rounded.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    rounded[i] = std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
  }
  return rounded;
}

void multiply(const MatmulProblem& p, bool is_tf32) {
  const std::vector<float> a = tf32(p, p.a, is_tf32), b = tf32(p, p.b, is_tf32);
  MatmulProblem rounded = p;
  if (!a.empty()) {
    rounded.a = a.data();
    rounded.b = b.data();
  }
  static Stream host;  // holds the panels of the host's products
  portable::matmul(rounded, host);
}

float read(const void* place, DType dtype, int64_t at) {
  float value = 0;
  INGOT_DISPATCH(dtype, T, { value = static_cast<float>(static_cast<const T*>(place)[at]); });
  return value;
}

void write(void* place, DType dtype, int64_t at, float value) {
  INGOT_DISPATCH(dtype, T, { static_cast<T*>(place)[at] = T(value); });
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  constexpr double kStep = 1e-5;
  return (gelu(x + kStep) - gelu(x - kStep)) / (2 * kStep);
}

// Writes c, and the epilogue's other output if it has one, from the product's sums.
void finish(const MatmulProblem& p, const MatmulEpilogue& epilogue, const std::vector<float>& sums) {
  using Kind = MatmulEpilogue::Kind;
  for (int64_t m = 0; m < p.M; ++m)
    for (int64_t n = 0; n < p.N; ++n) {
      const int64_t at = m * p.ldc + n, aux_at = m * epilogue.aux_ld + n;
      float value = sums[static_cast<size_t>(m * p.N + n)];
      if (p.accumulate) value += static_cast<float*>(p.c)[at];
      if (epilogue.kind == Kind::kBias || epilogue.kind == Kind::kGelu)
        value += read(epilogue.bias, p.out, n);
      if (epilogue.kind == Kind::kGelu) {
        write(epilogue.aux, p.out, aux_at, value);
        value = static_cast<float>(gelu(static_cast<double>(value)));
      }
      if (epilogue.kind == Kind::kGeluBackward)
        value *= static_cast<float>(gelu_slope(static_cast<double>(read(epilogue.aux, p.out, aux_at))));
      write(p.c, p.out, at, value);
    }
  if (epilogue.kind != Kind::kBiasGradient) return;
  for (int64_t m = 0; m < p.M; ++m) {
    float sum = 0;
    for (int64_t k = 0; k < p.K; ++k) sum += read(p.a, p.in, k * p.lda + m);
    static_cast<float*>(epilogue.bias)[m] = sum;
  }
}

}  // namespace

void matmul(const MatmulProblem& p, Stream& stream) {
  simulated_cuda::enqueue(queue_of(stream), [p, is_tf32 = allows_tf32(stream)] { multiply(p, is_tf32); });
}

// Like cuBLASLt, it supports an epilogue with a second matrix only if that matrix's rows are multiples of
// 16 bytes. Returns false if not.
bool matmul_with(const MatmulProblem& p, const MatmulEpilogue& epilogue, Stream& stream) {
  if (epilogue.aux && epilogue.aux_ld % 8 != 0) return false;
  simulated_cuda::enqueue(queue_of(stream), [p, epilogue, is_tf32 = allows_tf32(stream)] {
    std::vector<float> sums(static_cast<size_t>(p.M * p.N));
    MatmulProblem plain = p;
    plain.accumulate = false;
    plain.out = DType::f32;
    plain.c = sums.data();
    plain.ldc = p.N;
    multiply(plain, is_tf32);
    finish(p, epilogue, sums);
  });
  return true;
}

// Like cuBLASLt, it requires dims, strides and addresses that are multiples of 16, and
// it refuses two e5m2 operands.
void matmul_fp8(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode,
                Stream& stream) {
  INGOT_CHECK(a.codes.dim(1) == b.codes.dim(1) && c.dim(0) == a.codes.dim(0) && c.dim(1) == b.codes.dim(0),
              "matmul_fp8: {} from {} and {}", c.shape.to_string(), a.codes.shape.to_string(),
              b.codes.shape.to_string());
  const auto is_whole = [](int64_t n) { return n % 16 == 0; };
  for (const Tensor* t : {&a.codes, &b.codes})
    INGOT_CHECK(is_whole(t->dim(1)) && is_whole(t->strides[0]) &&
                    is_whole(static_cast<int64_t>(reinterpret_cast<uintptr_t>(t->data))),
                "matmul_fp8: an operand {} with rows of {} is not aligned", t->shape.to_string(),
                t->strides[0]);
  INGOT_CHECK(is_whole(c.dim(1)) && (a.codes.dtype == DType::f8e4m3 || b.codes.dtype == DType::f8e4m3),
              "matmul_fp8: N {}, or two operands of e5m2", c.dim(1));
  const bool is_by_row = a.inverse.elements() > 1 || b.inverse.elements() > 1;
  INGOT_CHECK(a.inverse.elements() == (is_by_row ? c.dim(0) : 1) &&
                  b.inverse.elements() == (is_by_row ? c.dim(1) : 1),
              "matmul_fp8: {} and {} scales", a.inverse.elements(), b.inverse.elements());
  simulated_cuda::enqueue(queue_of(stream), [=] { multiply(c, a, b, mode); });
}

}  // namespace ingot::cuda
