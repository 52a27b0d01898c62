// Tensors, arenas, the thread pool and files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <numeric>

#include "ingot/core/arena.h"
#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/core/tensor.h"
#include "ingot/core/trace.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

TEST(Tensor, ViewsPointToTheRightElements) {
  std::vector<float> values(2 * 3 * 8);
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor t(values.data(), DType::f32, {2, 3, 8});
  EXPECT_TRUE(t.is_contiguous());
  const Tensor columns = t.columns(4, 8);
  EXPECT_FALSE(columns.is_contiguous());
  const Tensor heads = columns.split_last(2, 2);
  EXPECT_EQ(heads.shape, (Shape{2, 3, 2, 2}));
  // Element (1, 2, 1, 0) of the view lies in row 1*3+2, column 4 + 2.
  EXPECT_EQ(heads.as<float>()[heads.strides[0] + 2 * heads.strides[1] + heads.strides[2]], (5 * 8) + 6);
  EXPECT_EQ(t.rows(1, 2).as<float>()[0], 24);
  EXPECT_THROW(columns.reshape({24}), Error);
  EXPECT_THROW(t.as<bf16>(), Error);
  EXPECT_THROW(t.rows(1, 3), Error);
}

TEST(Tensor, ViewsKeepTheAmaxAndTheTensorItselfHasNone) {
  std::array<float, 16> values{};
  float place = 0;
  const Tensor plain(values.data(), DType::f32, {2, 8}), t = plain.with_amax(Tensor(&place, DType::f32, {1}));
  EXPECT_EQ(plain.amax, nullptr);
  for (const Tensor& view : {t, t.rows(1, 2), t.columns(4, 8), t.split_last(2, 4), t.reshape({16})})
    EXPECT_EQ(view.amax, &place) << view.shape.to_string();
  EXPECT_EQ(t.with_amax({}).amax, nullptr);
  EXPECT_THROW(plain.with_amax(plain), Error);
}

TEST(Arena, ServesWhatWasMeasuredAndRefusesMore) {
  const auto layout = [](Arena& arena) {
    const Tensor a = arena.alloc(DType::f32, {3, 5});
    const Arena::Mark mark = arena.mark();
    arena.alloc(DType::bf16, {100});
    arena.release_to(mark);
    arena.alloc(DType::u8, {1});
    return a;
  };
  Arena measuring("test");
  EXPECT_EQ(layout(measuring).data, nullptr);
  Arena arena("test", measuring.peak_bytes());
  const Tensor a = layout(arena);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % Arena::kAlign, 0u);
  EXPECT_EQ(a.as<float>()[14], 0.0f);
  EXPECT_THROW(arena.alloc(DType::f32, {1000}), Error);
  EXPECT_THROW(arena.release_to(1 << 20), Error);
}

TEST(Arena, RefusesMoreMemoryThanTheMachineHas) {
  EXPECT_THAT(error_of([&] { const Arena arena("activations", size_t{1} << 60); }, ErrorKind::kMemory),
              testing::HasSubstr("activations"));
}

TEST(Parallel, CoversEveryIndexOnce) {
  const int before = num_threads();
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      parallel_for(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
  set_num_threads(before);
}

TEST(Parallel, RethrowsTheFirstException) {
  EXPECT_THROW(parallel_for(100, 1, [](int64_t, int64_t) { throw Error("inside"); }), Error);
  EXPECT_THROW(set_num_threads(0), Error);
}

TEST(Parallel, SplitsEvenly) {
  int64_t next = 0;
  for (int64_t i = 0; i < 7; ++i) {
    const Range r = split_range(100, 7, i);
    EXPECT_EQ(r.begin, next);
    EXPECT_GE(r.end - r.begin, 14);
    EXPECT_LE(r.end - r.begin, 15);
    next = r.end;
  }
  EXPECT_EQ(next, 100);
}

TEST(Trace, SumsTimesByPhase) {
  Trace trace;
  trace.add("a", 1);
  trace.add("b", 2);
  trace.add("a", 3);
  EXPECT_DOUBLE_EQ(trace.time_s("a"), 4);
  EXPECT_EQ(trace.phases()[0].calls, 2);
  EXPECT_EQ(trace.time_s("c"), 0);
}

class FileTest : public FolderTest {};

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  write_file(folder_ / "a", "first");
  write_file(folder_ / "a", "second");
  EXPECT_EQ(read_file(folder_ / "a"), "second");
  write_file(folder_ / "empty", "");
  EXPECT_EQ(read_file(folder_ / "empty"), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "temporary files are left";
}

TEST_F(FileTest, AnUnclosedFileIsRemoved) {
  {
    OutputFile file(folder_ / "half");
    file.write("something");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "half"));
}

TEST_F(FileTest, ADeviceIsNeverRemoved) {
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  {
    OutputFile file(pipe);
    file.write("something");
  }
  ::close(reader);
  EXPECT_TRUE(std::filesystem::exists(pipe));
}

TEST_F(FileTest, ErrorsNameTheFileThatCannotBeRead) {
  for (const auto& path : {folder_ / "missing", folder_})
    EXPECT_THAT(data_error([&] { MappedFile file(path); }), testing::HasSubstr(path.string()));
  EXPECT_THROW(OutputFile(folder_ / "no" / "such" / "folder"), Error);
}

}  // namespace
}  // namespace ingot
