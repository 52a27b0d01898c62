#include "ingot/formats/safetensors_ranges.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <numeric>

#include "ingot/core/error.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SafetensorsRangesTest : public FolderTest {
 protected:
  SafetensorsRangesTest() {
    std::iota(floats_.begin(), floats_.end(), 1.0f);
    std::iota(bytes_.begin(), bytes_.end(), uint8_t{7});
    tensors_ = {
        {.name = "codes", .dtype = DType::u8, .shape = {77}, .bytes = std::as_bytes(std::span(bytes_))},
        {.name = "weight",
         .dtype = DType::f32,
         .shape = {600, 1000},  // larger than the buffers for reading and writing
         .bytes = std::as_bytes(std::span(floats_))},
        {.name = "nothing", .dtype = DType::f32, .shape = {0}}};
  }

  // Writes elements [begin, end) of tensor t in blocks of 1000.
  void write(SafetensorsRanges& file, size_t t, int64_t begin, int64_t end) const {
    const size_t size = size_bytes(tensors_[t].dtype);
    for (int64_t i = begin; i < end; i += 1000)
      file.write(t, i,
                 tensors_[t].bytes.subspan(static_cast<size_t>(i) * size,
                                           static_cast<size_t>(std::min<int64_t>(1000, end - i)) * size));
  }
  // Writes the file with two writers, of which the first leaves out `gap` elements of the weight.
  std::vector<uint64_t> write_by_two(const SafetensorsRanges& made, int64_t gap) const {
    SafetensorsRanges first(made.path(), tensors_), second(made.path(), tensors_);
    first.open();
    second.open();
    write(second, 1, 300'123, 600'000);
    write(second, 0, 0, 30);
    write(first, 1, 0, 300'123 - gap);
    write(first, 0, 30, 77);
    std::vector<uint64_t> sums = first.close();
    const std::vector<uint64_t>& others = second.close();
    for (size_t t = 0; t < sums.size(); ++t) sums[t] += others[t];
    return sums;
  }
  static std::vector<uint64_t> sums_of(const SafetensorsRangesTest& test, const fs::path& path) {
    SafetensorsRanges all(path, test.tensors_);
    all.create();
    all.open();
    test.write(all, 0, 0, 77);
    test.write(all, 1, 0, 600'000);
    return all.close();
  }

  std::vector<float> floats_ = std::vector<float>(600'000);
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(77);
  std::vector<SafetensorsSource> tensors_;
};

TEST_F(SafetensorsRangesTest, TwoWritersMakeTheFileOfOne) {
  const SafetensorsWritten whole = write_safetensors(folder_ / "whole", tensors_);
  const SafetensorsRanges made(folder_ / "ranges", tensors_);
  made.create();
  EXPECT_EQ(made.verify(write_by_two(made, 0)), whole.xxh3_64);
  EXPECT_EQ(read_file(folder_ / "ranges"), read_file(folder_ / "whole"));
}

TEST_F(SafetensorsRangesTest, ChecksumsDoNotDependOnWhichWriterWroteARange) {
  const SafetensorsRanges made(folder_ / "ranges", tensors_);
  made.create();
  EXPECT_EQ(write_by_two(made, 0), sums_of(*this, folder_ / "all"));
}

std::string refusal(const SafetensorsRanges& file, const std::vector<uint64_t>& sums) {
  return error_of([&] { file.verify(sums); }, ErrorKind::kDisk);
}

TEST_F(SafetensorsRangesTest, AnElementThatNoWriterWroteIsReported) {
  const SafetensorsRanges made(folder_ / "ranges", tensors_);
  made.create();
  const std::vector<uint64_t> sums = write_by_two(made, 1);
  EXPECT_THAT(refusal(made, sums), HasSubstr("tensor weight is not what the ranks wrote"));
}

TEST_F(SafetensorsRangesTest, AChangedByteAndALostFileAreFound) {
  const SafetensorsRanges made(folder_ / "ranges", tensors_);
  made.create();
  const std::vector<uint64_t> sums = write_by_two(made, 0);
  std::string text = read_file(made.path());
  text.back() ^= 1;
  write_file(made.path(), text);
  EXPECT_THAT(refusal(made, sums), HasSubstr("tensor codes is not what the ranks wrote"));
  write_file(made.path(), text.substr(0, text.size() / 2));
  EXPECT_THAT(refusal(made, sums), HasSubstr("cannot be read back"));
}

TEST_F(SafetensorsRangesTest, RangesOutsideATensorAreRefused) {
  SafetensorsRanges made(folder_ / "ranges", tensors_);
  made.create();
  made.open();
  EXPECT_THROW(made.write(0, 77, std::as_bytes(std::span(bytes_).first(1))), Error);
  EXPECT_THROW(made.write(0, -1, std::as_bytes(std::span(bytes_).first(1))), Error);
}

TEST_F(SafetensorsRangesTest, AMissingFolderIsADiskError) {
  SafetensorsRanges made(folder_ / "no" / "ranges", tensors_);
  EXPECT_THROW(made.create(), Error);
  EXPECT_THROW(made.open(), Error);
}

}  // namespace
}  // namespace ingot
