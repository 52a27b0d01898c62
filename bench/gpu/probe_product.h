// One small product of a kind on the device, compared with sums in double precision. For bench/gpu/probe.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/float8.h"
#include "ingot/core/philox.h"
#include "ingot/ops/matmul/cublaslt_product.h"

namespace ingot {

// Returns the product that a fallback computes in place of a special one.
inline cuda::Product stripped(cuda::Product product) {
  product.problem.accumulate = false;
  product.problem.addend = nullptr;
  product.epilogue = {};
  product.fp8.is_fast = false;
  return product;
}

// A matrix of random numbers in [-1, 1), as a dtype holds them.
class Matrix {
 public:
  Matrix(DType dtype, int64_t elements, uint32_t stream)
      : dtype_(dtype), bytes_(size_t(elements) * size_bytes(dtype)) {
    const RandomKey key{.seed = 1, .purpose = Purpose::kSample, .stream = stream, .step = 0};
    for (int64_t i = 0; i < elements; ++i)
      put(i, static_cast<float>(random_word(key, uint64_t(i)) >> 8) * 0x1p-23f - 1);
  }
  double at(int64_t i) const {
    if (dtype_ == DType::f8e4m3) return double(float(as<f8e4m3>()[i]));
    if (dtype_ == DType::f8e5m2) return double(float(as<f8e5m2>()[i]));
    double value = 0;
    with_dtype(dtype_, __func__, [&]<typename T>() { value = double(float(as<T>()[i])); });
    return value;
  }
  Tensor bytes() { return {bytes_.data(), DType::u8, {std::ssize(bytes_)}}; }

 private:
  void put(int64_t i, float value) {
    if (dtype_ == DType::f8e4m3) {
      as<f8e4m3>()[i] = f8e4m3(value);
    } else if (dtype_ == DType::f8e5m2) {
      as<f8e5m2>()[i] = f8e5m2(value);
    } else {
      with_dtype(dtype_, __func__, [&]<typename T>() { as<T>()[i] = T(value); });
    }
  }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes_.data());
  }

  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Half of the distance between 1 and the next number.
inline double roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-24;
}

// A small product of a kind, on the device and in double precision. For kinds whose epilogue leaves D as the
// sum of the product, a matrix and a bias, and for gradients of a bias, which are not compared.
class SmallProduct {
 public:
  SmallProduct(const cuda::Product& kind, Stream& stream)
      : arena_("products", size_t{1} << 20, Memory::kDevice),
        stream_(stream),
        product_(kind),
        a_(kind.a, kM * kK, 1),
        b_(kind.b, kN * kK, 2),
        old_(kind.problem.out, kM * kN, 3),
        addend_(kind.problem.out, kM * kN, 4),
        bias_(kind.problem.out, kN, 5),
        scales_(DType::f32, kM + kN, 6) {
    MatmulProblem& p = product_.problem;
    const bool is_tn = p.form == MatmulForm::kTN, is_nt = p.form == MatmulForm::kNT;
    p.M = kM, p.N = kN, p.K = kK, p.alpha = 0.5f;
    p.lda = is_tn ? kM : kK, p.ldb = is_nt ? kK : kN, p.ldc = kN;
    p.a = put(a_).data, p.b = put(b_).data;
    c_ = put(old_);
    p.c = c_.data;
    if (p.addend) p.addend = put(addend_).data;
    if (product_.epilogue.bias) product_.epilogue.bias = put(bias_, kM * 4).data;
    if (product_.fp8.a) {
      product_.fp8.a = static_cast<const float*>(put(scales_).data);
      product_.fp8.b = product_.fp8.a + (product_.fp8.is_by_row ? kM : 1);
    }
  }

  // Returns the largest error relative to what rounding may cause, or nullopt if the library refuses the
  // product.
  std::optional<double> error(const cuda::Product& product) {
    const MatmulProblem& p = product.problem;
    copy(c_, old_.bytes(), stream_);
    if (!cuda::run(product, stream_)) return std::nullopt;
    Matrix got(p.out, kM * kN, 7);
    copy(got.bytes(), c_, stream_);
    synchronize(stream_);
    double worst = 0;
    for (int64_t m = 0; m < kM; ++m)
      for (int64_t n = 0; n < kN; ++n) {
        const int64_t at = m * kN + n;
        double want = 0.5 * scale(product, m, n) * sum(p.form, m, n);
        if (p.accumulate) want += old_.at(at);
        if (p.addend) want += addend_.at(at);
        if (product.epilogue.kind == MatmulEpilogue::Kind::kBias) want += bias_.at(n);
        // The result is rounded once; fast sums keep 14 bits, and tf32 rounds operands to 11.
        const double each = product.is_tf32 ? 0x1p-10 : product.fp8.is_fast ? 0x1p-13 : 0x1p-20;
        const double bound = 2 * roundoff(p.out) * (1 + std::fabs(want)) + each * std::sqrt(double{kK});
        const double off = std::fabs(got.at(at) - want) / bound;
        worst = off <= worst ? worst : off;  // also NaN
      }
    return worst;
  }
  const cuda::Product& product() const { return product_; }

 private:
  static constexpr int64_t kM = 48, kN = 64, kK = 96;

  Tensor put(Matrix& host, size_t least_bytes = 0) {
    const Tensor from = host.bytes();
    const auto bytes = static_cast<int64_t>(std::max(least_bytes, from.bytes()));
    const Tensor to = arena_.alloc(DType::u8, {bytes}).rows(0, from.dim(0));
    copy(to, from, stream_);
    synchronize(stream_);
    return to;
  }
  double sum(MatmulForm form, int64_t m, int64_t n) const {
    double total = 0;
    for (int64_t k = 0; k < kK; ++k)
      total += a_.at(form == MatmulForm::kTN ? k * kM + m : m * kK + k) *
               b_.at(form == MatmulForm::kNT ? n * kK + k : k * kN + n);
    return total;
  }
  double scale(const cuda::Product& product, int64_t m, int64_t n) const {
    if (!product.fp8.a) return 1;
    if (!product.fp8.is_by_row) return scales_.at(0) * scales_.at(1);
    return scales_.at(m) * scales_.at(kM + n);
  }

  Arena arena_;
  Stream& stream_;
  cuda::Product product_;
  Matrix a_, b_, old_, addend_, bias_, scales_;
  Tensor c_;
};

}  // namespace ingot
