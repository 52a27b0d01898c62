#include "tests/simulated_cuda/products.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "ingot/core/dispatch.h"
#include "ingot/core/float8.h"

namespace simulated_cuda {
namespace {

using namespace ingot;  // NOLINT: the file computes Ingot's products

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

// The value at an index of an operand or result.
float read(const void* place, DType dtype, int64_t at) {
  float value = 0;
  with_dtype(dtype, __func__,
             [&]<typename T>() { value = static_cast<float>(static_cast<const T*>(place)[at]); });
  return value;
}

void write(void* place, DType dtype, int64_t at, float value) {
  with_dtype(dtype, __func__, [&]<typename T>() { static_cast<T*>(place)[at] = T(value); });
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
      if (p.addend) value += read(p.addend, p.out, at);
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

void multiply_fp8(const Product& product) {
  const MatmulProblem& p = product.problem;
  const auto value = [](const void* codes, DType dtype, int64_t at) {
    return dtype == DType::f8e5m2 ? static_cast<float>(static_cast<const f8e5m2*>(codes)[at])
                                  : static_cast<float>(static_cast<const f8e4m3*>(codes)[at]);
  };
  const auto scale = [&](const float* scales, int64_t row) {
    return scales ? scales[product.is_by_row ? row : 0] : 1.0f;
  };
  for (int64_t m = 0; m < p.M; ++m)
    for (int64_t n = 0; n < p.N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < p.K; ++k)
        sum += value(p.a, p.in, m * p.lda + k) * value(p.b, product.b, n * p.ldb + k);
      const int64_t at = m * p.ldc + n;
      float old = p.accumulate ? read(p.c, p.out, at) : p.addend ? read(p.addend, p.out, at) : 0.0f;
      if (product.epilogue.kind == MatmulEpilogue::Kind::kBias)
        old += read(product.epilogue.bias, product.bias, n);
      write(p.c, p.out, at, sum * (scale(product.a_scale, m) * scale(product.b_scale, n) * p.alpha) + old);
    }
}

}  // namespace

void compute(const Product& product) {
  const MatmulProblem& p = product.problem;
  if (p.in == DType::f8e4m3 || p.in == DType::f8e5m2) return multiply_fp8(product);
  if (product.epilogue.kind == MatmulEpilogue::Kind::kNone && !p.addend) return multiply(p, product.is_tf32);
  std::vector<float> sums(static_cast<size_t>(p.M * p.N));
  MatmulProblem plain = p;
  plain.accumulate = false;
  plain.out = DType::f32;
  plain.c = sums.data();
  plain.ldc = p.N;
  multiply(plain, product.is_tf32);
  finish(p, product.epilogue, sums);
}

}  // namespace simulated_cuda
