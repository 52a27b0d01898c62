// Arena: a named block of memory whose size is fixed before use and that hands out tensors front to back.
//
// The same layout code runs twice: first on a measuring arena, which only counts bytes and returns
// tensors without data, then on an arena of the measured size. Single tensors cannot be freed;
// release_to() frees everything allocated after a mark.
//
// The memory is host memory, pinned host memory (which a device can copy to and from directly), or memory
// of a CUDA device. The arenas of a memory plan reserve addresses only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ingot/core/tensor.h"

namespace ingot {

enum class Memory : uint8_t { kHost, kPinned, kDevice };

// The memory in which a device's tensors lie.
constexpr Memory memory_of(Device device) {
  return device == Device::kCuda ? Memory::kDevice : Memory::kHost;
}

// Backing is the memory behind an arena's tensors. kAddresses reserves address space, which reads as zeros
// and takes memory only where it is written. Memory plans are built with it (memory/memory_plan.h), and
// operations on it compute nothing (core/work.h).
enum class Backing : uint8_t { kMemory, kAddresses };

class Arena {
 public:
  static constexpr size_t kAlign = 64;  // bytes; a cache line, an AVX-512 register
  static constexpr size_t kDeviceAlign = 256;

  // Creates a measuring arena, which has no limit and no memory.
  explicit Arena(std::string name, Memory memory = Memory::kHost) : name_(std::move(name)), memory_(memory) {}
  // Allocates size_bytes of zero-filled memory (kMemory error if the system refuses) or reserves addresses.
  Arena(std::string name, size_t size_bytes, Memory memory = Memory::kHost,
        Backing backing = Backing::kMemory);
  // Creates an arena in the memory of a tensor, which outlives it.
  static Arena over(const Tensor& block, Memory memory);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;

  Tensor alloc(DType dtype, const Shape& shape);
  // Allocates n numbers of the type T; null on a measuring arena.
  template <typename T>
  T* alloc_as(int64_t n) {
    const Tensor numbers = alloc(dtype_of<T>, {n});
    return numbers.as<T>();
  }

  using Mark = size_t;
  Mark mark() const { return used_bytes_; }
  void release_to(Mark mark);

  const std::string& name() const { return name_; }
  size_t used_bytes() const { return used_bytes_; }
  size_t peak_bytes() const { return peak_bytes_; }
  size_t capacity_bytes() const { return capacity_bytes_; }
  bool is_measuring() const { return data_ == nullptr; }
  Memory memory() const { return memory_; }
  Device device() const { return memory_ == Memory::kDevice ? Device::kCuda : Device::kCpu; }

 private:
  std::string name_;
  Memory memory_;
  Backing backing_ = Backing::kMemory;
  bool is_borrowed_ = false;
  char* data_ = nullptr;
  size_t capacity_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

}  // namespace ingot
