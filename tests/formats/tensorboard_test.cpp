#include "ingot/formats/tensorboard.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "tests/formats/tensorboard_events.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class TensorboardTest : public FolderTest {};

TEST_F(TensorboardTest, ChecksumMatchesTheStandardExamples) {
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

TEST_F(TensorboardTest, HyperParametersAreTheMessagesOfThePlugin) {
  TensorboardWriter writer(folder_, 1.7e9);
  const HyperParameter values[] = {{"lr", 0.25}, {"is_tied", true}, {"norm", std::string("rmsnorm")}};
  writer.hparams_start(values, 1.7e9 + 1);
  writer.hparams_end(1.7e9 + 2);
  writer.flush();
  const std::vector<std::string> all = records(read_file(writer.path()));
  ASSERT_EQ(all.size(), 3u);
  const auto content = [&](const std::string& event, const std::string& tag) {
    auto value = fields(fields(fields(event)[5])[1]);
    EXPECT_EQ(value[1], tag);
    EXPECT_EQ(fixed<uint64_t>(fields(value[8])[1], 0), 1u);  // the dtype of the tensor is float
    auto plugin = fields(fields(value[9])[1]);
    EXPECT_EQ(plugin[1], "hparams");
    return fields(plugin[2]);
  };
  const std::string start = content(all[1], "_hparams_/session_start_info")[3];
  const std::vector<std::string> entries = repeated(start, 1);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(fields(entries[0])[1], "lr");
  EXPECT_EQ(fixed<double>(fields(fields(entries[0])[2])[2], 0), 0.25);
  EXPECT_EQ(fixed<uint64_t>(fields(fields(entries[1])[2])[4], 0), 1u);
  EXPECT_EQ(fields(fields(entries[2])[2])[3], "rmsnorm");
  EXPECT_EQ(fixed<double>(repeated(start, 5).at(0), 0), 1.7e9 + 1);
  auto end = fields(content(all[2], "_hparams_/session_end_info")[4]);
  EXPECT_EQ(fixed<uint64_t>(end[1], 0), 1u);  // STATUS_SUCCESS
  EXPECT_EQ(fixed<double>(end[2], 0), 1.7e9 + 2);
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
  EXPECT_THAT(error_of([&] { TensorboardWriter writer(folder_ / "file" / "tb", 1.7e9); }, ErrorKind::kDisk),
              ::testing::HasSubstr("file"));
}

}  // namespace
}  // namespace ingot
