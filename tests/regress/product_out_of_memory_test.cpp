// Seen: if memory ran out inside a matrix product of oneDNN, the run ended with "dnnl_sgemm failed" and
// exit code 1. Wanted: it ends with exit code 4, as everywhere else, and says what to lower.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/ops/matmul.h"
#include "tests/regress/sanitizer.h"

namespace ingot {
namespace {

// Limits the address space so that hardly any memory can be allocated from now on; the stack has already
// grown to its full size.
void end_memory() {
  std::array<volatile char, 1 << 20> stack;
  for (size_t i = 0; i < stack.size(); i += 4096) stack[i] = 1;
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  const rlimit limit{.rlim_cur = pages * 4096 + (512 << 10), .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

// Ends the process with the exit code of the error that the product throws, or 0 if it throws none.
[[noreturn]] void multiply_without_memory() {
  constexpr int64_t n = 1024;
  set_num_threads(1);
  std::vector<float> a(n * n, 1.0f), b(n * n, 1.0f), c(n * n);
  const Shape shape{n, n};
  Stream stream;
  const auto multiply = [&](const Shape& s) {
    matmul(Tensor(c.data(), DType::f32, s), Tensor(a.data(), DType::f32, s), Tensor(b.data(), DType::f32, s),
           MatmulForm::kNN, false, stream);
  };
  multiply({256, 256});  // oneDNN 2.6.3 crashes if it cannot allocate its generated code
  end_memory();
  try {
    multiply(shape);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(exit_code(error.kind()));
  }
  std::_Exit(0);
}

TEST(ProductOutOfMemory, IsAMemoryErrorThatSaysWhatToLower) {
  if (std::string_view(matmul_engine(DType::f32)).find("oneDNN") == std::string_view::npos)
    GTEST_SKIP() << "SKIPPED LOUDLY: built without oneDNN";
  if (kHasAddressSanitizer) GTEST_SKIP() << "the address space cannot be limited under AddressSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(multiply_without_memory(), testing::ExitedWithCode(4),
              "out of memory.*1024x1024x1024.*lower train.batch_size");
}

}  // namespace
}  // namespace ingot
