#include "apps/doctor_cuda.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>

#include "ingot/config/device_support.h"
#include "ingot/core/arena.h"
#include "ingot/core/cuda/cpu_affinity.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/kernel_report.h"
#include "ingot/ops/linear_fused.h"
#include "ingot/ops/row_sum.h"

namespace ingot {
namespace {

struct Library {
  const char *name, *file, *version_symbol;
  bool is_returned;  // false: written through a pointer
};

constexpr Library kLibraries[] = {
    {"cuBLASLt", kCublasLt, "cublasLtGetVersion", true},
    {"cuDNN", "libcudnn.so.9", "cudnnGetVersion", true},
    {"NCCL", "libnccl.so.2", "ncclGetVersion", false},
};

// Returns "13.1.0" for 130100, the format of all three libraries; empty if the library cannot be loaded or,
// with RTLD_NOLOAD in flags, is not loaded yet.
std::string version_of(const Library& library, int flags = 0) {
  void* handle = dlopen(library.file, RTLD_LAZY | RTLD_LOCAL | flags);
  if (!handle) return "";
  void* symbol = dlsym(handle, library.version_symbol);
  int version = 0;
  if (symbol && library.is_returned) version = static_cast<int>(reinterpret_cast<size_t (*)()>(symbol)());
  if (symbol && !library.is_returned) reinterpret_cast<int (*)(int*)>(symbol)(&version);
  dlclose(handle);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Returns "13.0" for 13000.
std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

[[maybe_unused]] void add_devices(CudaReport& report) {
  const int driver = cuda::driver_version();
  report.rows.emplace_back("cuda",
                           fmt::format("runtime {}, {}", cuda_version(cuda::runtime_version()),
                                       driver > 0 ? "driver for " + cuda_version(driver) : "no driver"));
  int index = 0;
  for (const cuda::DeviceInfo& device : cuda::devices()) {
    const std::string cpus = cpus_near(device.bus);
    report.rows.emplace_back(
        fmt::format("gpu {}", index++),
        fmt::format("{}, compute capability {}.{} ({}), {} multiprocessors, {:.1f} GiB{}", device.name,
                    device.major, device.minor, fp8_support(10 * device.major + device.minor),
                    device.multiprocessors, static_cast<double>(device.memory_bytes) / (1 << 30),
                    cpus.empty() ? "" : ", near CPUs " + cpus));
  }
  if (index == 0) report.advice.push_back(no_cuda_reason().value_or(""));
}

[[maybe_unused]] void add_libraries(CudaReport& report) {
  std::string found, missing;
  for (const Library& library : kLibraries) {
    const std::string version = version_of(library);
    if (version.empty())
      missing += (missing.empty() ? "" : ", ") + std::string(library.file);
    else
      found += (found.empty() ? "" : ", ") + fmt::format("{} {}", library.name, version);
  }
  report.rows.emplace_back("cuda libraries", found.empty() ? "none" : found);
  if (!missing.empty()) report.advice.push_back(cannot_load(missing));
}

// Runs attention and the products that can be fused, on zeros, and reports which kernels computed them.
[[maybe_unused]] KernelReport tried_kernels() {
  const AttentionShape shape{.B = 1, .T = 128, .S = 128, .H = 2, .K = 2, .D = 64};
  constexpr int64_t kN = 128, kC = 128;
  Stream stream = make_stream(Device::kCuda);
  Arena arena("trial", size_t{16} << 20, Memory::kDevice);
  const auto heads = [&] { return arena.alloc(DType::bf16, {shape.B, shape.T, shape.H, shape.D}); };
  const Tensor q = heads(), k = heads(), v = heads(), out = heads(), dq = heads(), dk = heads(), dv = heads();
  const Tensor lse = arena.alloc(DType::f32, {shape.B, shape.H, shape.T});
  const auto scratch = [&](int64_t numbers) {
    return arena.alloc(DType::f32, {std::max<int64_t>(1, numbers)});
  };
  attention_forward({.out = out, .lse = lse, .q = q, .k = k, .v = v}, {.scale = 0.125f},
                    scratch(attention_forward_scratch(shape, Device::kCuda, false)), stream);
  attention_backward({.dq = dq, .dk = dk, .dv = dv, .d_out = out},
                     {.out = out, .lse = lse, .q = q, .k = k, .v = v}, {.scale = 0.125f},
                     scratch(attention_backward_scratch(shape, Device::kCuda, false)), stream);
  const auto matrix = [&](DType dtype) { return arena.alloc(dtype, {kN, kC}); };
  const Tensor x = matrix(DType::bf16), w = matrix(DType::bf16), y = matrix(DType::bf16),
               pre = matrix(DType::bf16);
  const Tensor bias = arena.alloc(DType::f32, {kC}), rounded = arena.alloc(DType::bf16, {kC});
  const Tensor dw = matrix(DType::f32), sums = matrix(DType::f32), codes = matrix(DType::f8e4m3);
  const LinearTerms terms{.bias = bias, .rounded = rounded, .base = pre};
  linear_sum(y, x, w, terms, stream);
  linear_gelu(y, pre, x, w, bias, rounded, stream);
  linear_gelu_backward(y, x, w, pre, stream);
  linear_weight_gradients({dw, true}, bias, x, y, arena.alloc(DType::f32, {kRowParts, kC}), stream);
  for (const int64_t scales : {int64_t{1}, kN}) {
    const cuda::Fp8Operand operand{codes, arena.alloc(DType::f32, {scales})};
    cuda::matmul_fp8(y, operand, operand, {.is_fast = true, .terms = terms}, stream);
    cuda::matmul_fp8(dw, operand, operand, {.accumulate = true, .sums = sums}, stream);
  }
  cuda::synchronize(stream);
  return kernel_report(stream);
}

[[maybe_unused]] void add_kernels(CudaReport& report) {
  try {
    const KernelReport kernels = tried_kernels();
    report.rows.emplace_back(
        "attention", fmt::format("{}; backward: {}", kernels.attention_forward, kernels.attention_backward));
    std::string fused;
    for (const auto& [kind, n] : kernels.products)
      fused += fmt::format("{}{}: {}", fused.empty() ? "" : "; ", kind,
                           n.refused > 0  ? "refused"
                           : n.slower > 0 ? "slower than separate kernels"
                                          : "yes");
    report.rows.emplace_back("products", fused);
  } catch (const Error& error) {
    report.advice.push_back(fmt::format("small calls of CUDA's libraries fail: {}", error.what()));
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> loaded_cuda_libraries() {
  std::vector<std::pair<std::string, std::string>> found;
  if constexpr (kHasCuda) {
    for (const Library& library : kLibraries)
      if (std::string version = version_of(library, RTLD_NOLOAD); !version.empty())
        found.emplace_back(library.name, std::move(version));
    if (!found.empty()) found.insert(found.begin(), {"CUDA", cuda_version(cuda::runtime_version())});
  }
  return found;
}

CudaReport cuda_report() {
  CudaReport report;
  if constexpr (kHasCuda) {
    add_devices(report);
    add_libraries(report);
    if (!cuda::devices().empty()) add_kernels(report);
  } else {
    report.rows.emplace_back("cuda", kNoCudaInBuild);
  }
  return report;
}

}  // namespace ingot
