// KernelReport says what the operations of a CUDA stream have run so far where there are several ways: for
// `ingot doctor`, `ingot bench step` and the notes of a run.
#pragma once

#include <map>
#include <string>

#include "ingot/core/stream.h"

namespace ingot {

struct KernelReport {
  // Numbers of shapes of a kind of product.
  struct Product {
    int taken = 0;    // cuBLASLt has a kernel
    int refused = 0;  // it has none, and other products and kernels replace it
    int slower = 0;   // it has one, which is slower than separate kernels
  };
  // The keys are kinds, "f8e4m3 x f8e4m3 -> bf16, NT, scales by row, C != D". It has 8-bit products and those
  // that are fused with what follows.
  std::map<std::string, Product> products = {};
  // The kernel of the last call: "cuDNN 9.19.0", or "Ingot's f32 kernel: " and why; empty before the first.
  std::string attention_forward = {}, attention_backward = {};
  int met_in_graphs = 0;  // choices that a captured graph met first, where nothing can be timed

  // Returns the refused kinds, "; " between them; empty if there are none.
  std::string refused() const;
};

// Empty for a stream of the CPU.
KernelReport kernel_report(const Stream& stream);

}  // namespace ingot
