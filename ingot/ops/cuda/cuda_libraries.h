// State of the CUDA libraries for a stream: handles, workspaces, plans. Internal to ops.
#pragma once

#include <functional>
#include <memory>

#include "ingot/core/stream.h"
#include "ingot/ops/kernel_report.h"

namespace ingot::cuda {

struct Product;  // ops/matmul/cublaslt_product.h

struct Libraries : StreamResource {
  std::unique_ptr<StreamResource> products;   // cuBLASLt
  std::unique_ptr<StreamResource> attention;  // cuDNN
  bool allows_tf32 = false;                   // ops/tf32.h
  // cuDNN's attention masks with -inf. cuDNN knows causal masks by the form of the graph, so its speed may
  // depend on this; bench/gpu/device_bench.cpp measures both.
  bool masks_with_infinity = false;
  // Products are fused with what follows them wherever the library can, without measuring whether that is
  // faster; bench/gpu/device_bench.cpp measures both.
  bool always_fuses = false;
  bool is_deterministic = false;  // ops/deterministic.h
  KernelReport report;            // ops/kernel_report.h
  // If set, products are passed to it and not computed, everything that can be fused is, and Ingot's own
  // kernel computes attention; for bench/gpu/probe.cpp.
  std::function<void(const Product&)> survey;
};

// Returns the stream's Libraries, created at the first call and destroyed with the stream.
inline Libraries& libraries_of(Stream& stream) {
  if (!stream.matmul_primitives) stream.matmul_primitives = std::make_unique<Libraries>();
  return static_cast<Libraries&>(*stream.matmul_primitives);
}

}  // namespace ingot::cuda
