// Megatron-LM's data sets. numpy wrote tests/golden/data/foreign/megatron_* (tools/export_data_golden.py).
#include "ingot/formats/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/data/token_source_shards.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kMegatronData = fs::path(INGOT_TEST_DATA) / "data/foreign";

// The documents of tools/export_data_golden.py, each as its sequences, joined; 0 ends a document.
std::vector<std::vector<uint32_t>> documents() {
  std::vector<std::vector<uint32_t>> all(30);
  for (uint32_t d = 0; d < 30; ++d) {
    for (uint32_t s = 0; s <= d % 3; ++s)
      for (uint32_t t = 0; t < 5 + (d * s) % 7; ++t) all[d].push_back((31 * d + 7 * s + t) % 119 + 1);
    all[d].push_back(0);
  }
  return all;
}

class Megatron : public FolderTest {
 protected:
  std::string index = read_file(kMegatronData / "megatron_u16.idx"),
              bin = read_file(kMegatronData / "megatron_u16.bin");
  template <typename T>
  void put(size_t offset, T value) {
    std::memcpy(index.data() + offset, &value, sizeof value);
  }
  std::string refused() const {
    write_file(folder_ / "x.idx", index);
    write_file(folder_ / "x.bin", bin);
    return data_error([&] { open_shards(std::vector{(folder_ / "x.bin").string()}, std::nullopt); });
  }
};

TEST_F(Megatron, EveryTypeOfTokenIsReadWithTheDocumentsOfTheIndex) {
  std::vector<uint32_t> expected;
  std::vector<int64_t> begins;
  for (const auto& document : documents()) {
    begins.push_back(static_cast<int64_t>(expected.size()));
    expected.insert(expected.end(), document.begin(), document.end());
  }
  std::vector<int64_t> at_end_of_text = {0};
  for (size_t d = 1; d < begins.size(); ++d) at_end_of_text.push_back(begins[d] - 1);
  for (const char* type : {"u8", "i8", "i16", "i32", "i64", "u16"}) {
    const std::string name = (kMegatronData / fmt::format("megatron_{}", type)).string();
    for (const char* ending : {"", ".bin", ".idx"}) {
      const std::vector<std::string> specs = {name + ending};
      ASSERT_TRUE(names_shards(specs));
      const TokenSource source = open_shards(specs, std::nullopt);
      EXPECT_EQ(all_tokens(source), expected) << type;
      EXPECT_EQ(source.documents().positions, begins) << type;
      EXPECT_FALSE(source.documents().end_of_text);
    }
    EXPECT_EQ(open_shards(std::vector{name}, 0).documents().positions, at_end_of_text)
        << "0 ends every document";
    EXPECT_EQ(open_shards(std::vector{name}, 5).documents().positions, begins) << "5 does not";
  }
  const std::string u16 = (kMegatronData / "megatron_u16.bin").string();
  EXPECT_EQ(shard_files(std::vector{u16, (kMegatronData / "megatron_u16.idx").string()}).size(), 1u);
}

TEST_F(Megatron, ASplitAndSeveralDataSetsKeepTheDocuments) {
  const std::vector<std::string> specs = {(kMegatronData / "megatron_i32").string(),
                                          (kMegatronData / "megatron_i64").string()};
  const TokenSource whole = open_shards(specs, std::nullopt);
  ASSERT_EQ(whole.documents().positions.size(), 60u);
  const TokenSplit parts = split_shards(specs, std::nullopt, 0.3);
  std::vector<int64_t> joined = parts.train.documents().positions;
  for (const int64_t position : parts.val.documents().positions)
    joined.push_back(position + parts.train.tokens());
  EXPECT_EQ(joined, whole.documents().positions);
  std::vector<uint32_t> ids = all_tokens(parts.train), val = all_tokens(parts.val);
  ids.insert(ids.end(), val.begin(), val.end());
  EXPECT_EQ(ids, all_tokens(whole));
}

TEST_F(Megatron, WhatIsDamagedIsNamed) {
  const std::string good = index, good_bin = bin;
  const auto after = [&](const std::function<void()>& damage) {
    index = good;
    bin = good_bin;
    damage();
    return refused();
  };
  EXPECT_EQ(after([] {}), "no error");
  EXPECT_THAT(after([&] { put<uint64_t>(9, 2); }), HasSubstr("x.idx: has version 2, expected 1"));
  EXPECT_THAT(after([&] { put<uint8_t>(17, 7); }), HasSubstr("dtype code 7 is a floating-point type"));
  EXPECT_THAT(after([&] { put<uint8_t>(17, 9); }), HasSubstr("dtype code 9 is unknown"));
  EXPECT_THAT(after([&] { put<uint64_t>(18, uint64_t{1} << 62); }), HasSubstr("do not fit"));
  EXPECT_THAT(after([&] { put<uint64_t>(26, ~uint64_t{0}); }), HasSubstr("do not fit"));
  EXPECT_THAT(after([&] { put<int32_t>(34, -1); }), HasSubstr("sequence 0 has -1 tokens"));
  EXPECT_THAT(after([&] { put<int32_t>(34, 7); }), HasSubstr("sequence 1 begins at byte"));
  EXPECT_THAT(after([&] { put<int64_t>(index.size() - 8, 1000); }), HasSubstr("document index 30 is 1000"));
  EXPECT_THAT(after([&] { index.pop_back(); }), HasSubstr("do not fit"));
  EXPECT_THAT(after([&] { index.resize(20); }), HasSubstr("is cut off"));
  EXPECT_THAT(after([&] { index[0] = 'm'; }), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(after([&] { bin.pop_back(); }),
              AllOf(HasSubstr("x.bin: has 829 bytes"), HasSubstr("says 830")));
  index = read_file(kMegatronData / "megatron_i32.idx");
  bin = read_file(kMegatronData / "megatron_i32.bin");
  bin[7] = '\xff';  // token 1 becomes negative
  write_file(folder_ / "x.idx", index);
  write_file(folder_ / "x.bin", bin);
  const TokenSource source = open_shards(std::vector{(folder_ / "x").string()}, std::nullopt);
  EXPECT_THAT(data_error([&] { all_tokens(source); }), HasSubstr("x.bin: token 1 is -16"));
}

TEST_F(Megatron, ShardsOfOtherTrainersAreNotMixedWithIt) {
  const fs::path shard = folder_ / "train_0.bin";
  ShardWriter writer(shard, DType::u16);
  writer.append(std::vector<uint32_t>{1, 2, 3});
  writer.commit();
  write_file(folder_ / "train_0.idx", index);  // an unrelated file: the shard has its own header
  EXPECT_EQ(all_tokens(open_shards(std::vector{shard.string()}, std::nullopt)),
            (std::vector<uint32_t>{1, 2, 3}));
  const std::vector<std::string> both = {shard.string(), (kMegatronData / "megatron_u16.bin").string()};
  EXPECT_THAT(usage_error([&] { open_shards(both, std::nullopt); }), HasSubstr("give only one kind"));
}

TEST_F(Megatron, AFolderOfNanoGptIsItsTrainAndValFile) {
  for (const char* name : {"train.bin", "val.bin", "meta.pkl", "prepare.py"})
    write_file(folder_ / name, "abcd");
  EXPECT_THAT(shard_files(std::vector{"nanogpt:" + folder_.string()}),
              ::testing::ElementsAre("nanogpt:" + (folder_ / "train.bin").string(),
                                     "nanogpt:" + (folder_ / "val.bin").string()));
}

}  // namespace
}  // namespace ingot
