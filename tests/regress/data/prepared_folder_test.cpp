// Seen: `ingot data prepare` wrote only shards, and `ingot train --data FOLDER` refused them ("is a token
// shard by its name"); shards without a validation split were refused, and each missing thing was reported
// only after the previous one was fixed. Wanted: the folder contains its tokenizer and a manifest, and
// train and eval accept it as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/prepare.h"
#include "ingot/data/token_source_text.h"
#include "ingot/formats/shard.h"
#include "ingot/run/data/run_data.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PreparedFolder : public FolderTest {
 protected:
  int64_t shard_tokens = 5000;

  // Returns sentences that differ, some of them with characters of two and three bytes.
  static std::string prose(int sentences, int begin = 0) {
    std::string text;
    for (int i = begin; i < begin + sentences; ++i)
      text += fmt::format("Sentence {} says {}: the cat{} sat. ", i, i * 7919 % 1000,
                          i % 5 == 0 ? " café €" : "");
    return text;
  }
  std::string jsonl(const std::string& name, int documents, int sentences) const {
    std::string lines;
    for (int i = 0; i < documents; ++i)
      lines += fmt::format("{{\"id\": {}, \"text\": \"{}\\n\"}}\n", i, prose(1 + i * 31 % sentences, i));
    return write(name, lines);
  }
  static DataConfig data_config(const std::vector<std::string>& train) {
    DataConfig config;
    config.train = train;
    config.tokenizer_vocab = 300;
    return config;
  }
  Dataset prepare(const std::vector<std::string>& data, const std::string& out, const std::string& tokenizer,
                  double val_fraction = 0.1) const {
    PrepareOptions options = {.data = data,
                              .tokenizer = tokenizer,
                              .tokenizer_vocab = 300,
                              .val_fraction = val_fraction,
                              .shard_tokens = shard_tokens,
                              .out = folder_ / out};
    return prepare_dataset(options);
  }
  // Runs the program in the test's folder, expects the exit code, and returns the output.
  std::string run(const std::string& arguments, int wanted_exit_code) const {
    const Outcome outcome = run_command("cd '" + folder_.string() +
                                        "' && OMP_WAIT_POLICY=passive '" INGOT_PROGRAM "' " + arguments);
    EXPECT_EQ(outcome.exit_code, wanted_exit_code) << arguments << "\n" << outcome.output;
    return outcome.output;
  }
};

// Training on the folder sees the tokens that training on the text itself sees, with the tokenizer
// that it would train.
TEST_F(PreparedFolder, HoldsTheTokensAndTheTokenizerThatTrainingOnTheTextHas) {
  const std::string text = write("t.txt", prose(2000));
  for (const std::string tokenizer : {"bpe", "char", "byte"}) {
    DataConfig config = data_config({text});
    config.tokenizer = tokenizer;
    const RunData direct = load_run_data(config, std::nullopt);
    const Dataset dataset = prepare({text}, tokenizer, tokenizer);
    const RunData data = load_run_data(data_config({path(tokenizer)}), std::nullopt);
    EXPECT_EQ(data.tokenizer->to_json(), direct.tokenizer->to_json()) << tokenizer;
    EXPECT_EQ(all_tokens(data.train), all_tokens(direct.train)) << tokenizer;
    EXPECT_EQ(all_tokens(data.val), all_tokens(direct.val)) << tokenizer;
    EXPECT_EQ(data.val.text_bytes(), direct.val.text_bytes()) << tokenizer;
    EXPECT_EQ(data.val_documents.size_bytes(), direct.val_documents.size_bytes()) << tokenizer;
    EXPECT_EQ(dataset.train.tokens, direct.train.tokens());
    EXPECT_GT(dataset.train.files.size(), 2u);
  }
}

TEST_F(PreparedFolder, TrainAndEvalAcceptIt) {
  write("t.txt", prose(600));
  const std::string said = run("data prepare --tokenizer bpe --vocab-size 300 --data t.txt --out prep", 0);
  EXPECT_THAT(said, HasSubstr("ingot train tiny-llama --data prep"));
  run("train tiny-llama --data prep --out run --set train.steps=2 --set schedule.warmup_steps=1 "
      "--set train.batch_size=1 --set model.context=16 --set sample.count=0",
      0);
  EXPECT_THAT(run("eval run --data prep", 0), HasSubstr("bits/byte"));
  EXPECT_THAT(run("data inspect prep", 0), HasSubstr("a prepared folder, 300 ids"));
  run("data prepare --tokenizer char --data t.txt --out other", 0);
  EXPECT_THAT(run("eval run --data other", 3), HasSubstr("other: was prepared with another tokenizer"));
  EXPECT_THAT(data_error([&] {
                load_run_data(data_config({path("other")}), read_file(folder_ / "prep/tokenizer.json"));
              }),
              HasSubstr("other: was prepared with another tokenizer"));
}

// Streaming writes the same tokens as the path that holds the whole text in memory, however the text is
// split into files and documents.
class StreamedPreparedFolder : public PreparedFolder {
 protected:
  void expect_equal_tokens(const std::vector<std::string>& corpus, double fraction) {
    shard_tokens = 1'000'000;
    const Dataset dataset = prepare(corpus, "p", path("tokenizer.json"), fraction);
    const auto tokenizer = load_tokenizer(path("tokenizer.json"));
    const DocumentSplit parts = load_split(corpus, fraction);
    const auto same = [&](const DatasetPart& part, const Documents& documents) {
      const TokenSource written = open_dataset_part(path("p"), part, *tokenizer);
      EXPECT_TRUE(all_tokens(written) == all_tokens(tokenize(documents, *tokenizer)))
          << corpus.front() << " of " << corpus.size() << ", fraction " << fraction;
      EXPECT_EQ(part.documents, static_cast<int64_t>(documents.size()));
      EXPECT_EQ(part.text_bytes, documents.size_bytes());
    };
    same(dataset.train, parts.train);
    same(dataset.val, parts.val);
    EXPECT_EQ(dataset.text_hash, load_documents(corpus).content_hash());
    fs::remove_all(path("p"));
  }
  void write_tokenizer() const {
    const std::vector<std::string_view> text = {"Sentence 1 says 2: the cat sat. Sentence"};
    write("tokenizer.json", train_bpe(text, {})->to_json());
  }
};

TEST_F(StreamedPreparedFolder, EqualsThatOfTheTextInMemory) {
  write_tokenizer();
  const std::string many = jsonl("many.jsonl", 300, 40), few = jsonl("few.jsonl", 2, 40);
  const std::string big = write("big.txt", prose(30'000));  // a long document
  const std::string one = jsonl("one.jsonl", 1, 40), tiny = write("tiny.txt", "x");
  for (const std::vector<std::string>& corpus : std::vector<std::vector<std::string>>{
           {many}, {few}, {big}, {one}, {tiny}, {big, many}, {many, tiny, big}, {tiny, few}, {many, one}})
    for (const double fraction : {0.0, 0.1, 0.97}) expect_equal_tokens(corpus, fraction);
}

class LongStreamedPreparedFolder : public StreamedPreparedFolder {};

// A document larger than one batch is read in chunks; JSON Lines larger than one batch are read
// in several batches.
TEST_F(LongStreamedPreparedFolder, EqualsThatOfLongTextsInMemory) {
  write_tokenizer();
  const std::string big = write("big.txt", prose(480'000)), lines = jsonl("lines.jsonl", 24'000, 40);
  ASSERT_GT(fs::file_size(big), size_t{18} << 20);
  ASSERT_GT(fs::file_size(lines), size_t{18} << 20);
  expect_equal_tokens({big}, 0.3);
  expect_equal_tokens({lines}, 0.3);
  expect_equal_tokens({lines, big}, 0.1);
}

TEST_F(PreparedFolder, DamageIsOneClearError) {
  const std::string text = write("t.txt", prose(300));
  const auto expect_damage = [&](const std::function<void(const fs::path&)>& damage,
                                 const std::string& part) {
    fs::remove_all(path("prep"));
    prepare({text}, "prep", "bpe");
    damage(path("prep"));
    EXPECT_THAT(data_error([&] { load_run_data(data_config({path("prep")}), std::nullopt); }),
                AllOf(HasSubstr(path("prep")), HasSubstr(part)));
  };
  expect_damage(
      [](const fs::path& prep) {
        std::string shard = read_file(prep / "val_000000.bin");
        shard[kShardHeaderBytes] = static_cast<char>(shard[kShardHeaderBytes] ^ 1);
        write_file(prep / "val_000000.bin", shard);
      },
      "are not those that dataset.json says");
  expect_damage([](const fs::path& prep) { fs::remove(prep / "train_000001.bin"); }, "cannot be read");
  expect_damage(
      [](const fs::path& prep) {
        fs::copy_file(prep / "val_000000.bin", prep / "train_000001.bin",
                      fs::copy_options::overwrite_existing);
      },
      "copy the folder again");
  expect_damage(
      [](const fs::path& prep) { write_file(prep / "tokenizer.json", make_byte_tokenizer()->to_json()); },
      "is not the tokenizer that made this folder's tokens");
  expect_damage([](const fs::path& prep) { write_file(prep / "dataset.json", "[1"); },
                "is not a JSON object");
  expect_damage([](const fs::path& prep) { write_file(prep / "dataset.json", "{\"format\": 3}"); },
                "\"format\" must be");
  expect_damage(
      [](const fs::path& prep) {
        std::string json = read_file(prep / "dataset.json");
        json.replace(json.find("train_000001"), 12, "../../secret");
        write_file(prep / "dataset.json", json);
      },
      "names of .bin files in this folder");
}

TEST(DatasetJson, ReadsBackAndRefusesOtherFiles) {
  Dataset dataset;
  dataset.train = {
      .files = {"train_000001.bin"}, .tokens = 5, .documents = 2, .text_bytes = 17, .hash = UINT64_MAX};
  dataset.vocab_size = 300;
  dataset.arguments = {{"data", "\xff \"quoted\""}};
  const Dataset read = parse_dataset(dataset_json(dataset), "d.json");
  EXPECT_EQ(read.train.files, dataset.train.files);
  EXPECT_EQ(read.train.hash, dataset.train.hash);
  EXPECT_EQ(read.train.text_bytes, 17);
  EXPECT_EQ(read.vocab_size, 300);
  const std::string json = dataset_json(dataset);
  const auto refuses = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    EXPECT_THAT(data_error([&] { parse_dataset(text, "d.json"); }), HasSubstr("d.json"));
  };
  refuses("\"tokens\": 5", "\"tokens\": -5");
  refuses("\"tokens\": 5", "\"tokens\": 1e999");
  refuses("\"tokens\": 5", "\"tokens\": 99999999999999999999");
  refuses("\"version\": 1", "\"version\": 2");
  refuses("ffffffffffffffff", "0xff");
  refuses("train_000001.bin", "/etc/passwd");
  refuses("ingot-dataset", "other");
  refuses("{", "");
}

TEST_F(PreparedFolder, AnotherTokenizerIsRefused) {
  const std::string text = write("t.txt", prose(300));
  prepare({text}, "prep", "bpe");
  DataConfig config = data_config({path("prep")});
  config.tokenizer = "byte";
  EXPECT_THAT(usage_error([&] { load_run_data(config, std::nullopt); }),
              AllOf(HasSubstr("data.tokenizer"), HasSubstr("leave data.tokenizer out")));
  config.tokenizer = path("prep/tokenizer.json");
  EXPECT_GT(load_run_data(config, std::nullopt).train.tokens(), 0);
  EXPECT_THAT(usage_error([&] {
                load_run_data(data_config({path("prep"), text}), std::nullopt);
              }),
              HasSubstr("stands alone"));
}

TEST_F(PreparedFolder, ShardsWithoutValidationAreSplitAndMissingFilesAreNamed) {
  const std::string text = write("t.txt", prose(300));
  prepare({text}, "prep", "bpe", 0);
  EXPECT_EQ(load_run_data(data_config({path("prep")}), std::nullopt).val.tokens() > 0, true);
  make_folders(folder_ / "alone");
  fs::copy_file(folder_ / "prep/train_000001.bin", folder_ / "alone/corpus.bin");
  DataConfig config = data_config({path("alone/corpus.bin")});
  const auto missing_tokenizer =
      AllOf(HasSubstr("corpus.bin"), HasSubstr("data.tokenizer=FILE"), HasSubstr("ingot data prepare"));
  EXPECT_THAT(usage_error([&] { load_run_data(config, std::nullopt); }), missing_tokenizer);
  config.val_fraction = 0;
  EXPECT_THAT(usage_error([&] { load_run_data(config, std::nullopt); }),
              AllOf(missing_tokenizer, HasSubstr("and a validation part")));
  config.val_fraction = 0.25;
  config.tokenizer = path("prep/tokenizer.json");
  const RunData data = load_run_data(config, std::nullopt);
  const TokenShard whole(path("alone/corpus.bin"));
  EXPECT_EQ(data.train.tokens(), whole.tokens() * 3 / 4);
  std::vector<uint32_t> all(static_cast<size_t>(whole.tokens())), both = all_tokens(data.train);
  whole.read(0, all);
  const std::vector<uint32_t> val = all_tokens(data.val);
  both.insert(both.end(), val.begin(), val.end());
  EXPECT_EQ(both, all);
  config.tokenizer = "bpe";  // a tokenizer in the folder of the shards takes precedence
  fs::copy_file(folder_ / "prep/tokenizer.json", folder_ / "alone/tokenizer.json");
  EXPECT_EQ(load_run_data(config, std::nullopt).train.tokens(), data.train.tokens());
}

}  // namespace
}  // namespace ingot
