// Seen: a file given twice put every validation document into the training text, and neither `data prepare`,
// `data inspect` nor `train` said so; `eval` scored the training text without a word, and neither it nor
// `generate` said which checkpoint of a run they read; a folder prepared with `byte` showed no lengths and
// did not say why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TrainedText : public ProgramInFolder {
 protected:
  std::string output(const std::vector<std::string>& arguments) {
    const Outcome ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return ended.output;
  }
  // Writes 100 documents that differ.
  void write_documents(const std::string& name, const std::string& word) {
    std::string lines;
    for (int i = 0; i < 100; ++i)
      lines += "{\"text\": \"" + word + " " + std::to_string(i) + " has the square " + std::to_string(i * i) +
               "\"}\n";
    write_file(path(name), lines);
  }
};

TEST_F(TrainedText, ADocumentInBothPartsIsCountedAndWarnedOf) {
  write_documents("a.jsonl", "document");
  write_documents("b.jsonl", "document");
  write_documents("other.jsonl", "text");
  const std::string leak = "also in the training part: 20 of 20 documents (100.0 %)";
  const std::vector<std::string> twice = {"data",          "prepare",      "--data", path("a.jsonl"),
                                          path("b.jsonl"), "--tokenizer",  "bpe",    "--out",
                                          path("twice"),   "--vocab-size", "300"};
  EXPECT_THAT(output(twice), HasSubstr(leak));
  EXPECT_THAT(output({"data", "inspect", path("twice")}), HasSubstr(leak));
  const std::string warning = "warning: 20 of 20 validation documents are also in the training text";
  const auto trained = [&](const std::string& out, const std::vector<std::string>& data) {
    std::vector<std::string> line = {"train", "tiny-llama", "--out", path(out), "--set", "train.steps=1"};
    line.insert(line.end(), {"--set", "sample.count=0", "--set", "data.tokenizer_vocab=300", "--data"});
    line.insert(line.end(), data.begin(), data.end());
    return output(line);
  };
  EXPECT_THAT(trained("of-folder", {path("twice")}), HasSubstr(warning));
  EXPECT_THAT(trained("of-text", {path("a.jsonl"), path("b.jsonl")}), HasSubstr(warning));
  EXPECT_THAT(trained("of-shards", {path("twice/train_000001.bin"), path("twice/val_000000.bin")}),
              HasSubstr(warning));
  EXPECT_THAT(trained("clean", {path("a.jsonl"), path("other.jsonl")}), Not(HasSubstr("warning")));
}

TEST_F(TrainedText, AFolderWithoutLengthsSaysWhy) {
  write_documents("a.jsonl", "document");
  output({"data", "prepare", "--data", path("a.jsonl"), "--tokenizer", "byte", "--out", path("bytes")});
  EXPECT_THAT(output({"data", "inspect", path("bytes")}),
              AllOf(HasSubstr("no lengths, duplicates and samples: the tokenizer has no end-of-text token"),
                    HasSubstr("also in the training part: 0 of 10 documents (0.0 %)\n")));
}

TEST_F(TrainedText, EvalNamesTheCheckpointAndTextThatWasTrainedOn) {
  ASSERT_EQ(run(small_run("run", {"train.steps=3"})).exit_code, 0);
  write_file(path("new.txt"), "words that no one has seen before, in a file of their own");
  write_file(path("copy.txt"), read_file(path("text.txt")));
  const std::string step = path("run/checkpoints/step-000000003");
  EXPECT_THAT(output({"eval", path("run"), "--data", path("new.txt")}),
              AllOf(HasSubstr("| " + step), Not(HasSubstr("warning"))));
  EXPECT_THAT(output({"eval", path("run/checkpoints/best"), "--data", path("text.txt")}),
              AllOf(HasSubstr("warning: " + path("text.txt") +
                              ": the model was trained on all of it but the last 10 %"),
                    HasSubstr("| " + path("run/checkpoints/step-"))));
  EXPECT_THAT(output({"generate", path("run"), "--tokens", "2"}), HasSubstr("note: " + step));
  EXPECT_THAT(output({"generate", step, "--tokens", "2"}), Not(HasSubstr("note: ")));
}

}  // namespace
}  // namespace ingot
