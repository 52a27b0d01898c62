#include "ingot/ops/linear_cross_entropy.h"

#include <algorithm>

#include "ingot/ops/matmul.h"

namespace ingot {

void linear_cross_entropy(const Tensor& losses, const Tensor& is_correct,
                          const LinearCrossEntropyGrads* grads, const Tensor& x, const Tensor& w,
                          const Tensor& targets, const CrossEntropyConfig& config, const Tensor& logits,
                          const Tensor& d_logits, Stream& stream) {
  const int64_t N = x.dim(0), chunk = logits.dim(0);
  INGOT_CHECK(chunk >= 1, "linear_cross_entropy: logits must hold at least one row, got {}",
              logits.shape.to_string());
  INGOT_CHECK(w.dim(0) == logits.dim(1), "linear_cross_entropy: w has {} rows, logits {} columns", w.dim(0),
              logits.dim(1));
  const bool is_bf16 = x.dtype == DType::bf16;
  INGOT_CHECK(!grads || !is_bf16 || (d_logits && d_logits.shape == logits.shape),
              "linear_cross_entropy: d_logits must be bf16 {}", logits.shape.to_string());
  for (int64_t begin = 0; begin < N; begin += chunk) {
    const int64_t end = std::min(begin + chunk, N);
    const Tensor z = logits.rows(0, end - begin);
    const Tensor dz = !grads ? Tensor{} : is_bf16 ? d_logits.rows(0, end - begin) : z;
    const Tensor x_chunk = x.rows(begin, end);
    matmul(z, x_chunk, w, MatmulForm::kNT, false, stream);
    cross_entropy(losses.rows(begin, end), is_correct ? is_correct.rows(begin, end) : Tensor{}, dz, z,
                  targets.rows(begin, end), config, stream);
    if (!grads) continue;
    matmul(grads->dx.rows(begin, end), dz, w, MatmulForm::kNN, false, stream);
    matmul(grads->dw, dz, x_chunk, MatmulForm::kTN, true, stream);
  }
}

}  // namespace ingot
