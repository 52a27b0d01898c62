#include "ingot/core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "ingot/core/cuda/cuda_device.h"

namespace ingot {
namespace {

[[maybe_unused]] cuda::MemoryKind cuda_kind(Memory memory) {
  return memory == Memory::kDevice ? cuda::MemoryKind::kDevice : cuda::MemoryKind::kPinned;
}

}  // namespace

Arena::Arena(std::string name, size_t size_bytes, Memory memory, Backing backing)
    : name_(std::move(name)),
      memory_(memory),
      backing_(backing),
      capacity_bytes_(std::max(size_bytes, kDeviceAlign)) {
  const bool has_memory = backing_ == Backing::kMemory;
  if (memory_ != Memory::kHost && has_memory) {
    if constexpr (kHasCuda)
      data_ = static_cast<char*>(cuda::allocate(cuda_kind(memory_), capacity_bytes_, name_));
    else
      fail(ErrorKind::kUsage, "arena '{}': {}", name_, kNoCudaInBuild);
    return;
  }
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (has_memory ? 0 : MAP_NORESERVE);
  void* block = mmap(nullptr, capacity_bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  // A system that accounts for every page (vm.overcommit_memory = 2) grants addresses that cannot be read.
  if (block == MAP_FAILED && !has_memory) block = mmap(nullptr, capacity_bytes_, PROT_NONE, flags, -1, 0);
  if (block == MAP_FAILED)
    fail(ErrorKind::kMemory,
         "arena '{}': the system refused {} bytes; use a smaller batch or model, or raise ulimit -v", name_,
         capacity_bytes_);
  if (has_memory) madvise(block, capacity_bytes_, MADV_HUGEPAGE);  // fewer page faults; refusal is harmless
  data_ = static_cast<char*>(block);
}

Arena Arena::over(const Tensor& block, Memory memory) {
  Arena arena("scratch", memory);
  arena.is_borrowed_ = true;
  arena.data_ = static_cast<char*>(block.data);
  arena.capacity_bytes_ = block.bytes();
  return arena;
}

Arena::~Arena() {
  if (!data_ || is_borrowed_) return;
  const bool is_mapped = memory_ == Memory::kHost || backing_ == Backing::kAddresses;
  if constexpr (kHasCuda) {
    if (!is_mapped) cuda::release(cuda_kind(memory_), data_);
  }
  if (is_mapped) munmap(data_, capacity_bytes_);
}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      memory_(other.memory_),
      backing_(other.backing_),
      is_borrowed_(other.is_borrowed_),
      data_(std::exchange(other.data_, nullptr)),
      capacity_bytes_(std::exchange(other.capacity_bytes_, 0)),
      used_bytes_(std::exchange(other.used_bytes_, 0)),
      peak_bytes_(std::exchange(other.peak_bytes_, 0)) {}

Tensor Arena::alloc(DType dtype, const Shape& shape) {
  const size_t wanted = static_cast<size_t>(shape.elements()) * size_bytes(dtype);
  const size_t align = memory_ == Memory::kHost ? kAlign : kDeviceAlign;
  const size_t padded = (wanted + align - 1) / align * align;
  INGOT_CHECK(is_measuring() || used_bytes_ + padded <= capacity_bytes_,
              "arena '{}': {} bytes wanted, {} of {} used", name_, wanted, used_bytes_, capacity_bytes_);
  char* place = is_measuring() ? nullptr : data_ + used_bytes_;
  used_bytes_ += padded;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return Tensor(place, dtype, shape, device());
}

void Arena::release_to(Mark mark) {
  INGOT_CHECK(mark <= used_bytes_, "arena '{}': mark {} lies beyond {}", name_, mark, used_bytes_);
  used_bytes_ = mark;
}

}  // namespace ingot
