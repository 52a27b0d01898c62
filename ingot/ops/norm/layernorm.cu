#include "ingot/ops/layernorm.h"

#include "ingot/ops/norm/cuda_norm.h"

namespace ingot::cuda {

void layernorm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& w, const Tensor& b, float eps, Stream& stream) {
  norm::run_forward<true>(
      {.y = y, .sum = {}, .mean = mean, .rstd = rstd, .x = x, .residual = {}, .w = w, .b = b, .eps = eps},
      "layernorm_forward", stream);
}

void residual_layernorm_forward(const Tensor& y, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                                const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& b,
                                float eps, Stream& stream) {
  norm::run_forward<true>({.y = y,
                           .sum = sum,
                           .mean = mean,
                           .rstd = rstd,
                           .x = x,
                           .residual = residual,
                           .w = w,
                           .b = b,
                           .eps = eps},
                          "residual_layernorm_forward", stream);
}

void layernorm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                        const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd,
                        const Tensor& d_residual, const Tensor& scratch, Stream& stream) {
  norm::run_backward<true>({.dx = dx,
                            .dw = dw,
                            .db = db,
                            .dy = dy,
                            .x = x,
                            .w = w,
                            .mean = mean,
                            .rstd = rstd,
                            .d_residual = d_residual,
                            .scratch = scratch},
                           "layernorm_backward", stream);
}

}  // namespace ingot::cuda
