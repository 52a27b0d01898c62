// Test tensors on a CUDA device, and their copies back to the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "tests/reference/numeric.h"

namespace ingot::test {

// A device copy of a host tensor, between two guards that a kernel must not write.
class OnDevice {
 public:
  OnDevice(const Buffer& host, Stream& stream)
      : bytes_(host.tensor().bytes()),
        arena_("test", bytes_ + 3 * kGuard, Memory::kDevice),  // alignment uses up to one more guard
        whole_(arena_.alloc(DType::u8, {static_cast<int64_t>(bytes_ + 2 * kGuard)})),
        stream_(&stream) {
    std::vector<char> image(bytes_ + 2 * kGuard, kPoison);
    std::memcpy(image.data() + kGuard, host.tensor().data, bytes_);
    copy(whole_, raw(image), stream);
    synchronize(stream);
    const Tensor& t = host.tensor();
    tensor_ = Tensor(static_cast<char*>(whole_.data) + kGuard, t.dtype, t.shape, Device::kCuda);
  }
  // Makes a tensor of poisoned memory for a result.
  OnDevice(DType dtype, const Shape& shape, Stream& stream) : OnDevice(Buffer(dtype, shape), stream) {}

  operator const Tensor&() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

  // Synchronises with the stream and checks the guards.
  Buffer to_host() const {
    std::vector<char> image(bytes_ + 2 * kGuard);
    copy(raw(image), whole_, *stream_);
    synchronize(*stream_);
    for (size_t i = 0; i < kGuard; ++i)
      if (image[i] != kPoison || image[kGuard + bytes_ + i] != kPoison) {
        ADD_FAILURE() << "a kernel wrote beside its tensor of " << tensor_.shape.to_string();
        break;
      }
    Buffer host(tensor_.dtype, tensor_.shape);
    std::memcpy(host.tensor().data, image.data() + kGuard, bytes_);
    return host;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr char kPoison = 0x5a;

  static Tensor raw(std::vector<char>& image) {
    return Tensor(image.data(), DType::u8, {static_cast<int64_t>(image.size())});
  }

  size_t bytes_;
  Arena arena_;
  Tensor whole_, tensor_;
  Stream* stream_;
};

// The base of a test that needs a stream of the device and short ways to put tensors there.
class OnCuda {
 protected:
  OnDevice put(const Buffer& host) { return {host, stream}; }
  OnDevice result(DType dtype, const Shape& shape) { return {dtype, shape, stream}; }

  Stream stream = cuda::make_stream();
};

// Returns the largest magnitude.
inline double largest(const Buffer& t) {
  double most = 0;
  for (const double v : to_doubles(t)) most = std::max(most, std::fabs(v));
  return most;
}

// The amax that an op raises, from a start of its own.
class RaisedAmax {
 public:
  RaisedAmax(double start, Stream& stream) : amax_(start_of(start), stream) {}
  operator const Tensor&() const { return amax_; }
  double value() const { return to_doubles(amax_.to_host())[0]; }

 private:
  static Buffer start_of(double start) {
    Buffer one(DType::f32, {1});
    assign(one, {start});
    return one;
  }
  OnDevice amax_;
};

inline Buffer integers(const std::vector<int32_t>& values) {
  Buffer buffer(DType::i32, {static_cast<int64_t>(values.size())});
  std::memcpy(buffer.tensor().data, values.data(), values.size() * sizeof(int32_t));
  return buffer;
}

// Expects the two tensors to be bit-identical.
inline void expect_same_bits(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.bytes(), want.bytes()) << what;
  EXPECT_EQ(std::memcmp(got.data, want.data, got.bytes()), 0) << what;
}

}  // namespace ingot::test
