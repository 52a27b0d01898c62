#include "apps/doctor_cuda.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "ingot/core/cuda/cpu_affinity.h"
#include "ingot/core/cuda/cuda_device.h"

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
    report.rows.emplace_back(fmt::format("gpu {}", index++),
                             fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB{}",
                                         device.name, device.major, device.minor, device.multiprocessors,
                                         static_cast<double>(device.memory_bytes) / (1 << 30),
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
  } else {
    report.rows.emplace_back("cuda", kNoCudaInBuild);
  }
  return report;
}

}  // namespace ingot
