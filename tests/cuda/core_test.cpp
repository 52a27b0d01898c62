#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/timeline.h"
#include "ingot/ops/attention.h"
#include "ingot/ops/cuda_fp8.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

TEST(CudaArena, HandsOutZeroedDeviceMemoryAligned) {
  Stream stream = cuda::make_stream();
  Arena measuring("m", Memory::kDevice);
  measuring.alloc(DType::f32, {3});
  measuring.alloc(DType::bf16, {5});
  EXPECT_EQ(measuring.used_bytes(), 2 * Arena::kDeviceAlign);
  Arena arena("a", measuring.used_bytes(), Memory::kDevice);
  arena.alloc(DType::f32, {3});
  const Tensor t = arena.alloc(DType::f32, {4});
  EXPECT_EQ(t.device, Device::kCuda);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data) % 16, 0u);
  Buffer host = random_tensor(DType::f32, {4}, 1);
  copy(host, t, stream);
  synchronize(stream);
  EXPECT_EQ(to_doubles(host), Doubles(4, 0.0));
}

TEST(CudaCopy, RoundTripThroughPinnedMemoryIsExact) {
  Stream stream = cuda::make_stream();
  Arena pinned("p", 4096, Memory::kPinned), device("d", 4096, Memory::kDevice);
  const Tensor staging = pinned.alloc(DType::f32, {33}), there = device.alloc(DType::f32, {33});
  EXPECT_EQ(staging.device, Device::kCpu);
  const Buffer values = random_tensor(DType::f32, {33}, 1);
  std::memcpy(staging.data, values.tensor().data, staging.bytes());
  copy(there, staging, stream);
  Buffer back(DType::f32, {33});
  copy(back, there, stream);
  synchronize(stream);
  expect_same_bits(back, values, "copied");
  fill_zero(there, stream);
  copy(back, there, stream);
  synchronize(stream);
  EXPECT_EQ(to_doubles(back), Doubles(33, 0.0));
}

TEST(CudaCopy, ErrorsNameBothSizes) {
  Stream stream = cuda::make_stream();
  Buffer a = zeros(DType::f32, {3}), b = zeros(DType::f32, {4});
  EXPECT_EQ(error_of([&] { copy(a, b, stream); }), "copy: f32 (3) from f32 (4)");
}

TEST(CudaEvent, OrdersTwoStreams) {
  Stream first = cuda::make_stream(), second = cuda::make_stream();
  Arena device("d", 4096, Memory::kDevice);
  const Tensor there = device.alloc(DType::f32, {8});
  const Buffer values = random_tensor(DType::f32, {8}, 1);
  cuda::Event begin, done;
  begin.record(first);
  copy(there, values, first);
  done.record(first);
  done.make_wait(second);
  Buffer back(DType::f32, {8});
  copy(back, there, second);
  synchronize(second);
  expect_same_bits(back, values, "copied by two streams");
  done.synchronize();
  EXPECT_GE(done.seconds_since(begin), 0);
}

TEST(CudaGraph, ReplayReadsTheCurrentMemory) {
  Stream stream = cuda::make_stream();
  Arena device("d", 4096, Memory::kDevice);
  const Tensor from = device.alloc(DType::f32, {8}), to = device.alloc(DType::f32, {8});
  const cuda::Graph graph(stream, [&] { copy(to, from, stream); });
  Buffer back(DType::f32, {8});
  for (uint32_t i = 1; i <= 3; ++i) {
    const Buffer values = random_tensor(DType::f32, {8}, i);
    copy(from, values, stream);
    graph.launch(stream);
    copy(back, to, stream);
    synchronize(stream);
    expect_same_bits(back, values, "copied by a graph");
  }
}

TEST(CudaGraph, MayBeReplacedByOtherWork) {
  Stream stream = cuda::make_stream();
  Arena device("d", 4096, Memory::kDevice);
  const Tensor first = device.alloc(DType::f32, {8}), second = device.alloc(DType::f32, {8}),
               to = device.alloc(DType::f32, {8});
  const Buffer a = random_tensor(DType::f32, {8}, 1), b = random_tensor(DType::f32, {8}, 2);
  copy(first, a, stream);
  copy(second, b, stream);
  cuda::Graph graph(stream, [&] { copy(to, first, stream); });
  Buffer back(DType::f32, {8});
  const auto run = [&] {
    graph.launch(stream);
    copy(back, to, stream);
  };
  run();
  graph.replace(stream, [&] { copy(to, second, stream); });  // the launch in progress keeps its own argument
  synchronize(stream);
  expect_same_bits(back, a, "before");
  run();
  synchronize(stream);
  expect_same_bits(back, b, "another argument");
  graph.replace(stream, [&] {
    copy(to, first, stream);
    fill_zero(to.rows(0, 4), stream);
  });
  run();
  synchronize(stream);
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(back.tensor().as<float>()[i], i < 4 ? 0.0f : a.tensor().as<float>()[i]) << i;
}

TEST(CudaGraph, CaptureExecutesNothingAndRefusesWaits) {
  Stream stream = cuda::make_stream();
  Arena device("d", 4096, Memory::kDevice);
  const Tensor there = device.alloc(DType::f32, {8});
  Arena pinned("p", 4096, Memory::kPinned);  // copies of pageable memory may not be captured
  const Tensor values = pinned.alloc(DType::f32, {8});
  assign(values, Doubles(8, 1.0));
  const cuda::Graph unused(stream, [&] { copy(there, values, stream); });
  EXPECT_THROW(cuda::Graph(stream, [&] { synchronize(stream); }), Error);
  Buffer back(DType::f32, {8});
  copy(back, there, stream);
  synchronize(stream);
  EXPECT_EQ(to_doubles(back), Doubles(8, 0.0)) << "and the stream goes on";
}

// Times are measured by the device, for the work that was enqueued on the stream within a span.
TEST(CudaTimeline, MeasuresSpansOnTheStream) {
  Stream stream = cuda::make_stream();
  Arena arena("a", 1 << 20, Memory::kDevice);
  const Tensor t = arena.alloc(DType::u8, {1 << 19});
  Timeline timeline(stream);
  timeline.begin("outer");
  fill_zero(t, stream);
  timeline.begin("inner");
  fill_zero(t, stream);
  timeline.end();
  timeline.end();
  const auto rows = timeline.rows();
  ASSERT_EQ(rows.size(), 2u);
  // Each fill takes longer than the clock's resolution.
  EXPECT_GE(rows[0].begin_s, 0);
  EXPECT_LT(rows[0].begin_s, rows[1].begin_s);
  EXPECT_LT(rows[1].begin_s, rows[1].end_s);
  EXPECT_LE(rows[1].end_s, rows[0].end_s);
}

// CUDA launches at most 65535 blocks along y. The launches are recorded and never run, so no memory is
// needed.
TEST(CudaGrids, MoreThan65535HeadsOrTilesOfRowsAreLaunched) {
  Stream stream = cuda::make_stream();
  const auto at = [](DType dtype, const Shape& shape) {
    return Tensor(reinterpret_cast<void*>(uintptr_t{4096}), dtype, shape, Device::kCuda);
  };
  const Tensor q = at(DType::f32, {65536, 4, 2, 8}), lse = at(DType::f32, {65536, 2, 4});
  const Tensor x = at(DType::bf16, {64 * 65536, 64}), one = at(DType::f32, {1});
  const Tensor codes = at(DType::f8e4m3, {64 * 65536, 64}), turned = at(DType::f8e4m3, {64, 64 * 65536});
  const cuda::Graph forward(stream, [&] {
    attention_forward({.out = q, .lse = lse, .q = q, .k = q, .v = q}, {.scale = 1}, {}, stream);
  });
  const cuda::Graph backward(stream, [&] {
    attention_backward({.dq = q, .dk = q, .dv = q, .d_out = q},
                       {.out = q, .lse = lse, .q = q, .k = q, .v = q}, {.scale = 1}, lse, stream);
  });
  const cuda::Graph cast(stream, [&] {
    cuda::cast_to_fp8_both_ways(codes, turned, x, one, {one, at(DType::u32, {2})}, stream);
  });
}

}  // namespace
}  // namespace ingot::test
