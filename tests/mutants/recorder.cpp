// Records which basic blocks of a program run. GCC's -fsanitize-coverage=trace-pc calls the function below at
// the start of every block. The addresses go to a file in the folder INGOT_COVERAGE, one per process, mapped
// as shared memory: it is complete even if the process is killed, and a forked child adds to its parent's.
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t kHeaderBytes = 4096;    // the count of addresses, and from byte 8 the program's path
constexpr std::size_t kMaxBlocks = 1 << 20;   // a program has fewer
constexpr std::uintptr_t kMaxCode = 1 << 27;  // bytes of code that a program may have

struct Record {
  std::atomic<std::uint32_t>* count = nullptr;
  std::uint32_t* offsets = nullptr;                // addresses relative to the start of the program
  std::atomic<unsigned char>* is_known = nullptr;  // by offset
};
constinit Record record;

}  // namespace

extern "C" const char __executable_start;  // the linker defines it

extern "C" void __sanitizer_cov_trace_pc() {
  if (record.count == nullptr) return;
  const auto offset = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) -
                      reinterpret_cast<std::uintptr_t>(&__executable_start);
  if (offset >= kMaxCode || record.is_known[offset].load(std::memory_order_relaxed) != 0) return;
  if (record.is_known[offset].exchange(1, std::memory_order_relaxed) != 0) return;
  const std::uint32_t index = record.count->fetch_add(1, std::memory_order_relaxed);
  if (index < kMaxBlocks) record.offsets[index] = static_cast<std::uint32_t>(offset);
}

// Opens the record before the constructors of the program's globals run.
__attribute__((constructor(101))) static void open_record() {
  const char* folder = std::getenv("INGOT_COVERAGE");
  if (folder == nullptr) return;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  char path[4096];
  std::snprintf(path, sizeof path, "%s/%d.%ld%09ld", folder, static_cast<int>(::getpid()),
                static_cast<long>(now.tv_sec), now.tv_nsec);
  const int file = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const std::size_t bytes = kHeaderBytes + kMaxBlocks * sizeof(std::uint32_t);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return;
  void* shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* known =
      ::mmap(nullptr, kMaxCode, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ::close(file);
  if (shared == MAP_FAILED || known == MAP_FAILED) return;
  char* bytes_of_header = static_cast<char*>(shared);
  if (::readlink("/proc/self/exe", bytes_of_header + 8, kHeaderBytes - 9) < 0) return;
  record.offsets = reinterpret_cast<std::uint32_t*>(bytes_of_header + kHeaderBytes);
  record.is_known = static_cast<std::atomic<unsigned char>*>(known);
  record.count = static_cast<std::atomic<std::uint32_t>*>(shared);
}
