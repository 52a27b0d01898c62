#include "ingot/formats/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Shard : public FolderTest {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  // Builds a shard's bytes from the description of the format.
  static std::string shard_bytes(int32_t magic, int32_t version, int32_t tokens, const std::string& payload) {
    std::string bytes(1024, '\0');
    const auto put = [&](size_t i, int32_t value) {
      for (size_t b = 0; b < 4; ++b)
        bytes[4 * i + b] = static_cast<char>(static_cast<uint32_t>(value) >> (8 * b));
    };
    put(0, magic);
    put(1, version);
    put(2, tokens);
    return bytes + payload;
  }
  void expect_refused(const std::string& bytes, const std::vector<std::string>& parts,
                      ShardLayout layout = ShardLayout::kHeader) const {
    const fs::path path = write("bad.bin", bytes);
    std::vector<std::string> all = parts;
    all.push_back(path.string());
    expect_error(
        ErrorKind::kData, [&] { TokenShard shard(path, layout); }, all);
  }
};

TEST_F(Shard, ReadsUint16AsLlmCWritesIt) {
  const fs::path path =
      write("a.bin", shard_bytes(20240520, 1, 3, std::string("\x01\x00\xff\xff\x50\xc3", 6)));
  const TokenShard shard(path);
  EXPECT_EQ(shard.dtype(), DType::u16);
  EXPECT_EQ(all_tokens(shard), (std::vector<uint32_t>{1, 65535, 50000}));
  std::vector<uint32_t> middle(1);
  shard.read(1, middle);
  EXPECT_EQ(middle[0], 65535u);
}

TEST_F(Shard, ReadsUint32AsLlmCWritesIt) {
  const TokenShard shard(
      write("a.bin", shard_bytes(20240801, 7, 2, std::string("\x00\xf4\x01\x00\xff\xff\xff\xff", 8))));
  EXPECT_EQ(shard.dtype(), DType::u32);
  EXPECT_EQ(all_tokens(shard), (std::vector<uint32_t>{128000, 0xffffffffu}));
}

TEST_F(Shard, ReadsHeaderlessOnlyWhenAsked) {
  const fs::path path = write("train.bin", std::string("\x05\x00\x06\x01", 4));
  EXPECT_EQ(all_tokens(TokenShard(path, ShardLayout::kHeaderlessU16)), (std::vector<uint32_t>{5, 262}));
  expect_error(ErrorKind::kData, [&] { TokenShard shard(path); },
               {"magic number is 17170437", "20240520", "nanogpt:"});
  expect_refused("abc", {"even number of bytes", "3"}, ShardLayout::kHeaderlessU16);
  expect_refused(shard_bytes(20240520, 1, 0, ""), {"has a header"}, ShardLayout::kHeaderlessU16);
}

TEST_F(Shard, WrittenShardsAreTheFormatByteForByte) {
  ShardWriter writer(folder_ / "w16.bin", DType::u16);
  writer.append(std::vector<uint32_t>{1, 65535});
  writer.append(std::vector<uint32_t>{50000});
  writer.commit();
  EXPECT_EQ(read_file(folder_ / "w16.bin"),
            shard_bytes(20240520, 1, 3, std::string("\x01\x00\xff\xff\x50\xc3", 6)));
  ShardWriter wide(folder_ / "w32.bin", DType::u32);
  wide.append(std::vector<uint32_t>{128000});
  wide.commit();
  EXPECT_EQ(read_file(folder_ / "w32.bin"), shard_bytes(20240801, 7, 1, std::string("\x00\xf4\x01\x00", 4)));
}

TEST_F(Shard, StreamsMoreThanItsBuffer) {
  for (const DType dtype : {DType::u16, DType::u32}) {
    std::vector<uint32_t> tokens(300'001);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * 7919 % 65536);
    ShardWriter writer(folder_ / "long.bin", dtype);
    for (size_t i = 0; i < tokens.size(); i += 1000)
      writer.append(std::span(tokens).subspan(i, std::min<size_t>(1000, tokens.size() - i)));
    EXPECT_EQ(writer.tokens(), 300'001);
    writer.commit();
    EXPECT_EQ(all_tokens(TokenShard(folder_ / "long.bin")), tokens) << name(dtype);
  }
}

TEST_F(Shard, WithoutCommitNothingIsLeftAndTheOldFileStays) {
  write("kept.bin", "before");
  {
    ShardWriter writer(folder_ / "kept.bin", DType::u16);
    writer.append(std::vector<uint32_t>{1});
  }
  EXPECT_EQ(read_file(folder_ / "kept.bin"), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Shard, WriterRefusesWhatDoesNotFit) {
  ShardWriter writer(folder_ / "x.bin", DType::u16);
  expect_error(ErrorKind::kData,
               [&] {
                 writer.append(std::vector<uint32_t>{7, 65536});
               },
               {"65536", "position 1", "uint32"});
  EXPECT_EQ(shard_dtype(65536), DType::u16);
  EXPECT_EQ(shard_dtype(65537), DType::u32);
}

TEST_F(Shard, UnwritableFolderIsADiskError) {
  EXPECT_THAT(
      error_of([&] { ShardWriter writer(folder_ / "absent" / "x.bin", DType::u16); }, ErrorKind::kDisk),
      HasSubstr("absent"));
}

TEST_F(Shard, RefusesBadFiles) {
  const std::string good = shard_bytes(20240520, 1, 3, "abcdef");
  expect_refused("", {"is empty", "1024"});
  expect_refused("ab", {"magic number is 0"});
  expect_refused("hello, this is text", {"not a token shard", "ingot data prepare"});
  expect_refused(shard_bytes(20240326, 3, 3, "abcdef"), {"llm.c model checkpoint"});
  expect_refused("\x1f\x8b\x08\x08 and so on", {"gzip"});
  expect_refused(shard_bytes(20240520, 7, 3, "abcdef"), {"version is 7, expected 1"});
  expect_refused(shard_bytes(20240801, 1, 3, "abcdef"), {"version is 1, expected 7"});
  expect_refused(good.substr(0, 100), {"cut off", "100 bytes", "1024"});
  expect_refused(good.substr(0, good.size() - 1), {"1029 bytes, expected 1030", "cut off"});
  expect_refused(good + "x", {"1031 bytes, expected 1030", "longer"});
  expect_refused(shard_bytes(20240520, 1, -1, "abcdef"), {"-1 tokens"});
  expect_refused(shard_bytes(20240801, 7, 3, "abcdef"), {"1030 bytes, expected 1036"});
  expect_error(ErrorKind::kData, [&] { TokenShard shard(folder_ / "absent.bin"); },
               {"absent.bin", "No such file"});
  expect_error(ErrorKind::kData, [&] { TokenShard shard(folder_); }, {"not a regular file"});
}

TEST_F(Shard, ReadOutsideIsRefused) {
  const TokenShard shard(write("a.bin", shard_bytes(20240520, 1, 3, "abcdef")));
  std::vector<uint32_t> two(2);
  EXPECT_THROW(shard.read(2, two), Error);
  EXPECT_THROW(shard.read(-1, two), Error);
  EXPECT_NO_THROW(shard.read(3, std::span<uint32_t>()));
}

}  // namespace
}  // namespace ingot::test
