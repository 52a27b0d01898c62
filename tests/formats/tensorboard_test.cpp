#include "ingot/formats/tensorboard.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class TensorboardTest : public ::testing::Test {
 protected:
  ~TensorboardTest() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::temp_directory_path() / ("ingot_tensorboard_" + std::to_string(::getpid()));
};

// CRC-32C bit by bit; the writer's is by table.
uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <typename T>
T fixed(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The payloads of a file, both checksums of each compared.
std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> out;
  for (size_t at = 0; at < file.size();) {
    const auto length = fixed<uint64_t>(file, at);
    EXPECT_EQ(fixed<uint32_t>(file, at + 8), masked(crc32c(file.substr(at, 8))));
    out.push_back(file.substr(at + 12, length));
    EXPECT_EQ(fixed<uint32_t>(file, at + 12 + length), masked(crc32c(out.back())));
    at += 16 + length;
  }
  return out;
}

// The fields of a protocol buffer message: number -> raw bytes (a varint as 8 bytes).
std::map<int, std::string> fields(std::string_view in) {
  std::map<int, std::string> out;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(in.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < in.size()) {
    const uint64_t key = varint();
    std::string& field = out[static_cast<int>(key >> 3)];
    EXPECT_TRUE(field.empty()) << "repeated field";
    const uint64_t type = key & 7;
    if (type == 0) {
      const uint64_t value = varint();
      field.assign(reinterpret_cast<const char*>(&value), sizeof value);
      continue;
    }
    const size_t length = type == 1 ? 8 : type == 5 ? 4 : varint();
    field = std::string(in.substr(at, length));
    at += length;
  }
  return out;
}

TEST_F(TensorboardTest, ChecksumIsTheStandardOne) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(masked(crc32c("123456789")), 0xc78ab0e5u);
}

TEST_F(TensorboardTest, ScalarsAndTextAreEventsInOrder) {
  fs::path path;
  {
    TensorboardWriter writer(folder_, 1.7e9);
    path = writer.path();
    writer.scalar("loss/train", 2.5, 300, 1.7e9 + 1.5);
    writer.scalar("loss/train", std::nan(""), 1LL << 40, 1.7e9 + 2);
    writer.text("samples", "Once **upon**", 7, 1.7e9 + 3);
  }
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents.1700000000."));
  const std::vector<std::string> all = records(read_file(path));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(fields(all[0])[3], "brain.Event:2");

  auto event = fields(all[1]);
  EXPECT_EQ(fixed<double>(event[1], 0), 1.7e9 + 1.5);
  EXPECT_EQ(fixed<int64_t>(event[2], 0), 300);
  auto value = fields(fields(event[5])[1]);
  EXPECT_EQ(value[1], "loss/train");
  EXPECT_EQ(fixed<float>(value[2], 0), 2.5f);

  event = fields(all[2]);
  EXPECT_EQ(fixed<int64_t>(event[2], 0), 1LL << 40);
  EXPECT_TRUE(std::isnan(fixed<float>(fields(fields(event[5])[1])[2], 0)));

  event = fields(all[3]);
  value = fields(fields(event[5])[1]);
  EXPECT_EQ(value[1], "samples/text_summary");
  EXPECT_EQ(fields(fields(value[9])[1])[1], "text");
  auto tensor = fields(value[8]);
  EXPECT_EQ(fixed<uint64_t>(tensor[1], 0), 7u);
  EXPECT_EQ(fixed<uint64_t>(fields(fields(tensor[2])[2])[1], 0), 1u);
  EXPECT_EQ(tensor[8], "Once **upon**");
}

TEST_F(TensorboardTest, AResumedRunStartsANewFileThatDiscardsTheRepeatedSteps) {
  const TensorboardWriter first(folder_, 1.7e9);
  const TensorboardWriter second(folder_, 1.7e9, 201);
  EXPECT_NE(first.path(), second.path());
  const std::vector<std::string> all = records(read_file(second.path()));
  ASSERT_EQ(all.size(), 2u);
  auto event = fields(all[1]);
  EXPECT_EQ(fixed<int64_t>(event[2], 0), 201);
  EXPECT_EQ(fixed<uint64_t>(fields(event[7])[1], 0), 1u);
}

TEST_F(TensorboardTest, FlushMakesEventsVisible) {
  TensorboardWriter writer(folder_, 1.7e9);
  writer.scalar("x", 1, 1, 1.7e9);
  EXPECT_EQ(records(read_file(writer.path())).size(), 1u);
  writer.flush();
  EXPECT_EQ(records(read_file(writer.path())).size(), 2u);
}

TEST_F(TensorboardTest, AnUnwritableFolderIsADiskError) {
  fs::create_directories(folder_);
  write_file(folder_ / "file", "x");
  try {
    TensorboardWriter writer(folder_ / "file" / "tb", 1.7e9);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDisk);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("file"));
  }
}

}  // namespace
}  // namespace ingot
