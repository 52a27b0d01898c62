// One product as cuBLASLt is asked for it. Internal to ops; bench/gpu/probe.cpp asks with it, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/dtype.h"
#include "ingot/core/tensor.h"
#include "ingot/ops/matmul/matmul_engines.h"

namespace ingot::cuda {

// Scales and mode of an FP8 product.
struct Fp8Scales {
  const float *a = nullptr, *b = nullptr;  // on the device: factors of the decoded values
  bool is_by_row = false;  // true: one factor per row of both operands; false: one factor each
  bool is_fast = false;
};

struct Product {
  MatmulProblem problem;
  DType a, b;
  Fp8Scales fp8 = {};
  MatmulEpilogue epilogue = {};
  bool is_tf32 = false;

  // Returns everything that the choice of a kernel may depend on.
  std::string key() const;
  // Returns in words everything except sizes and alignments on which the library's answer depends.
  std::string kind() const;
  // True if something else can replace the product: an 8-bit one, or one that is fused with what follows.
  bool is_special() const;
};

// Returns the product of operands of one dtype; f32 ones use TF32 if the stream allows it (ops/tf32.h).
Product plain_product(const MatmulProblem& problem, const MatmulEpilogue& epilogue, Stream& stream);

// Returns the alignment of p in bytes, at most the 256 that the library assumes by default.
uint32_t alignment(const void* p);

// Computes the product. Returns false, without side effects, if the library has no kernel for it.
bool run(const Product& product, Stream& stream);
// Throws an error that says what was asked.
[[noreturn]] void fail_without_kernel(const Product& product);

// The answer of the library's heuristics.
struct ProductAnswer {
  int kernels = 0;
  size_t workspace_bytes = 0;  // of the first
  std::string status;          // the library's words
};
ProductAnswer ask(const Product& product, Stream& stream);

// Two ways to compute a product and what follows it.
struct FusedProduct {
  Product product;
  std::function<bool()> fused;     // calls run(product); returns what that returns
  std::function<void()> separate;  // other products, then the other kernels
  std::vector<Tensor> sums = {};   // results to which both ways add
};
// Returns true if `fused` is the way that was measured to be faster for this product. The first call for a
// product runs both ways, and may leave their results in memory, but not in `sums`.
bool prefers_fused(const FusedProduct& product, Stream& stream);

}  // namespace ingot::cuda
