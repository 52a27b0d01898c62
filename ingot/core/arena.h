// Arena: one named block of memory, sized before it is used and handed out front to back.
//
// The same layout code runs twice: first on a measuring arena, which only counts and returns tensors
// without data, then on one of that size. Nothing is freed alone; release_to() drops everything after a mark.
//
// The memory is the host's, or a CUDA device's, or host memory that a device copies from and to by itself
// (pinned). An arena of a plan has addresses alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ingot/core/tensor.h"

namespace ingot {

enum class Memory : uint8_t { kHost, kPinned, kDevice };

// Where the tensors of a device lie.
constexpr Memory memory_of(Device device) {
  return device == Device::kCuda ? Memory::kDevice : Memory::kHost;
}

// What stands behind an arena's tensors. kAddresses: address space that cannot be read or written and takes
// no memory; a plan of memory (memory/memory_plan.h) is made of it.
enum class Backing : uint8_t { kMemory, kAddresses };

class Arena {
 public:
  static constexpr size_t kAlign = 64;  // bytes; a cache line, an AVX-512 register
  static constexpr size_t kDeviceAlign = 256;

  // A measuring arena: unlimited, without memory.
  explicit Arena(std::string name, Memory memory = Memory::kHost) : name_(std::move(name)), memory_(memory) {}
  // Zero-filled memory of size_bytes (kMemory error if the system refuses), or addresses for so many bytes.
  Arena(std::string name, size_t size_bytes, Memory memory = Memory::kHost,
        Backing backing = Backing::kMemory);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;

  Tensor alloc(DType dtype, const Shape& shape);

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
  char* data_ = nullptr;
  size_t capacity_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

}  // namespace ingot
