// Tests of the command `ingot data`, run as a separate process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "ingot/core/file.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/shard.h"
#include "tests/reference/temporary_folder.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DataCommand : public FolderTest {
 protected:
  void SetUp() override { write_file(folder_ / "byte.json", make_byte_tokenizer()->to_json()); }

  // Runs `ingot data ARGUMENTS` in the test's folder.
  Outcome run(const std::string& arguments) const { return program("data " + arguments); }
  Outcome program(const std::string& arguments) const {
    return run_command("cd '" + folder_.string() + "' && '" INGOT_PROGRAM "' " + arguments);
  }
};

TEST_F(DataCommand, PrepareWritesShardsThatInspectReads) {
  write_file(folder_ / "t.txt", "0123456789");
  const Outcome prepared = run("prepare --tokenizer byte.json --data t.txt --out shards --shard-tokens 4");
  ASSERT_EQ(prepared.exit_code, 0) << prepared.output;
  std::vector<uint32_t> tokens(4);
  TokenShard(folder_ / "shards/train_000002.bin").read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<uint32_t>{'4', '5', '6', '7'}));
  EXPECT_EQ(TokenShard(folder_ / "shards/train_000003.bin").tokens(), 1);
  EXPECT_EQ(TokenShard(folder_ / "shards/val_000000.bin").tokens(), 1);
  const Outcome inspected = run("inspect 'shards/train_*.bin' t.txt --tokenizer byte.json");
  EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  EXPECT_THAT(inspected.output, HasSubstr("9 tokens, ids 48 to 56"));
  EXPECT_THAT(inspected.output, HasSubstr("begins: 012345678"));
  EXPECT_THAT(inspected.output, HasSubstr("1 documents, 10 bytes"));
}

TEST_F(DataCommand, PrepareAndTokenizerSayWhatTheyWroteAsJson) {
  write_file(folder_ / "t.txt", "0123456789");
  const Outcome prepared = run("prepare --tokenizer byte.json --data t.txt --out shards --json 2>err");
  ASSERT_EQ(prepared.exit_code, 0) << prepared.output;
  EXPECT_EQ(prepared.output, read_file(folder_ / "shards/dataset.json"));
  EXPECT_EQ(nlohmann::json::parse(prepared.output)["train"]["tokens"], 9);

  const Outcome trained_here =
      run("prepare --tokenizer bpe --vocab-size 300 --data t.txt --out bpe --json 2>err");
  const nlohmann::json arguments = nlohmann::json::parse(trained_here.output)["arguments"];
  EXPECT_EQ(arguments["vocab_size"], "300");
  EXPECT_EQ(arguments["pattern"], "cl100k");

  const auto object_of = [&](const std::string& arguments) {
    const Outcome result = program("tokenizer " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output);
  };
  EXPECT_EQ(object_of("encode --tokenizer byte.json --in t.txt --out ids --json"),
            nlohmann::json({{"out", "ids"}, {"tokens", 10}, {"bytes", 10}}));
  EXPECT_EQ(object_of("decode --tokenizer byte.json --in ids --out back.txt --json"),
            nlohmann::json({{"out", "back.txt"}, {"tokens", 10}, {"bytes", 10}}));
  EXPECT_EQ(object_of("export byte.json --out copy.json --json"),
            nlohmann::json({{"out", "copy.json"}, {"tokens", 256}}));
  EXPECT_EQ(object_of("import byte.json --out again.json --json")["out"], "again.json");
  const nlohmann::json trained = object_of("train --data t.txt --vocab-size 300 --out bpe.json --json");
  EXPECT_EQ(trained["tokens"], load_tokenizer(folder_ / "bpe.json")->vocab_size());
}

TEST_F(DataCommand, ErrorsHaveTheirExitCodesAndLeaveNothing) {
  write_file(folder_ / "t.txt", "text");
  write_file(folder_ / "cut.bin", "\x88\xd8\x34\x01");
  const auto expect = [&](const std::string& arguments, int exit_code, const std::string& part) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << arguments;
    EXPECT_THAT(result.output, HasSubstr(part)) << arguments;
  };
  expect("inspect cut.bin", 3, "cut.bin: is cut off");
  expect("inspect t.txt cut.bin absent.bin", 3, "2 of 3 are not valid");
  expect("prepare --tokenizer byte.json --data absent.txt --out o", 3, "absent.txt: does not exist");
  expect("prepare --tokenizer byte.json --data t.txt --out o --dtype int8", 2, "auto, uint16 or uint32");
  expect("prepare --tokenizer byte.json --data t.txt --out o --shard-tokens many", 2, "got 'many'");
  expect("prepare --tokenizer byte.json --data t.txt --out o --val-fraction 1.5", 2, "validation fraction");
  expect("prepare --tokenizer byte.json --data t.txt --out t.txt", 2, "not an empty folder");
  expect("prepare --data t.txt", 2, "--tokenizer");
  EXPECT_FALSE(fs::exists(folder_ / "o"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3);
}

}  // namespace
}  // namespace ingot
