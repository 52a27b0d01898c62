// Seen: `ingot --verson` and `ingot tokenizer trian` said only "A subcommand is required", `ingot help`
// was unknown, `train --data t.txt tiny-llama` took the preset for a path, `4k` was 4096 in --vocab-size
// and 4000 in train.steps, an empty configuration file trained with defaults, and train.threads=4096 was
// accepted and then ended with exit code 1. Wanted: the first commands of a new user do what they say or
// fail with a clear error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "ingot/core/file.h"
#include "tests/regress/run_script.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FirstCommands : public ScriptTest {
 protected:
  FirstCommands() {
    std::string text;
    for (int i = 0; text.size() < 60'000; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
    write_file(folder_ / "t.txt", text);
  }
};

TEST_F(FirstCommands, MisspeltCommandsAndOptionsNameTheNearest) {
  const std::string cases[][2] = {
      {"--verson", "ingot: --verson: unknown option; did you mean --version?"},
      {"trian", "ingot: trian: unknown command; did you mean train?"},
      {"tokenizer trian", "ingot: tokenizer: trian: unknown command; did you mean train?"},
      {"data prepar", "ingot: data: prepar: unknown command; did you mean prepare?"},
      {"bench steps", "did you mean step"},
      {"", "ingot: a command must follow; they are train, launch"},
      {"tokenizer", "ingot: tokenizer: a subcommand must follow; they are train, encode"},
      {"train --ot x", "ingot: train: --ot: unknown option; did you mean --out?"},
      {"train tiny-llama --output-dir x", "did you mean --out?"},
      {"eval x --data t.txt --batch-sise 3", "did you mean --batch-size?"},
      {"tokenizer train --vocabsize 300", "did you mean --vocab-size?"},
      {"train tiny-llama --lr 1e-3", "did you mean --set optimizer.lr=VALUE?"},
      {"train tiny-llama --n-layer=3", "did you mean --set model.layers=VALUE?"},
      {"train --config a.toml", "config stands without dashes: ingot train PRESET|FILE.toml"},
      {"train tiny-llama train.steps=5", "a key is set by --set train.steps=5"},
      {"doctor --quick", "unknown option; the options are"},
  };
  for (const auto& [arguments, message] : cases) {
    EXPECT_EQ(ingot(arguments), 2) << arguments << "\n" << said_;
    EXPECT_THAT(said_, HasSubstr(message)) << arguments;
  }
}

// Seen: `train ""` and `--init ""` trained the default model, `--out ""` a folder with a default name, y.yaml
// and book.txt were answered with a list of presets, and heads=3 was blamed on the preset's line.
TEST_F(FirstCommands, WordsThatCannotBeMeantAreNamedWithTheFix) {
  const std::string cases[][2] = {
      {"train '' --data t.txt", "train: config: must not be empty"},
      {"train --init '' --data t.txt", "--init: must not be empty"},
      {"train tiny-llama --data t.txt --out ''", "--out: must not be empty"},
      {"eval ''", "must not be empty"},
      {"train y.yaml", "y.yaml: a configuration is a TOML file"},
      {"train t.txt", "text to train on stands after --data"},
      {"train tiny-llama --resume-anyway --out nosuch --data t.txt", "holds no run"},
      {"train --resume --out nosuch", "--resume: nosuch holds no run"},
      {"generate runs/x Once", "a prompt stands after --prompt"},
      {"sweep tiny-llama", "--vary KEY=VALUES is required: The values of a key: KEY=a,b,c"},
      {"train tiny-llama --data t.txt --set model.heads=3", "ingot: --set: model.kv_heads must divide"},
      {"train tiny-llama --early-stopping", "did you mean --set eval.patience=VALUE?"},
  };
  for (const auto& [arguments, message] : cases) {
    EXPECT_EQ(ingot(arguments), 2) << arguments << "\n" << said_;
    EXPECT_THAT(said_, AllOf(HasSubstr(message), Not(HasSubstr("ingot: ingot")))) << arguments;
  }
  EXPECT_EQ(ingot("train tiny-llama --data https://a.b/c.txt"), 3) << said_;
  EXPECT_THAT(said_, HasSubstr("Ingot downloads nothing"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
  EXPECT_EQ(ingot("train tiny-llama --set 'train.steps = 123' --print-config"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("\nsteps = 123 "));
  EXPECT_EQ(ingot("plan tiny-llama --data t.txt --hardware a100-80g"), 0) << said_;
}

TEST_F(FirstCommands, MuonByItsKeyIsAnsweredWithTheLinesToPaste) {
  const std::string run = "train tiny-llama --data t.txt --set train.steps=1 --set sample.count=0 --out ";
  EXPECT_EQ(ingot(run + "a --set optimizer.kind=muon"), 2) << said_;
  const size_t begin = said_.find("  [[optimizer.group]]"), end = said_.find("or, on the command line: ");
  ASSERT_NE(begin, std::string::npos) << said_;
  ASSERT_NE(end, std::string::npos) << said_;
  write_file(folder_ / "own.toml", "preset = \"tiny-llama\"\n" + said_.substr(begin, end - begin));
  EXPECT_EQ(ingot("train own.toml --print-config"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("kind = \"muon\""));
  EXPECT_EQ(ingot(run + "a --set optimizer.kind=muon"), 2);
  std::string setting = said_.substr(said_.find("--set 'optimizer.group"));
  setting = setting.substr(0, setting.find('\n'));
  EXPECT_EQ(ingot(run + "b " + setting), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("muon for"));
}

TEST_F(FirstCommands, HelpIsACommand) {
  EXPECT_EQ(ingot("help"), 0);
  EXPECT_THAT(said_, AllOf(HasSubstr("tokenizer"), HasSubstr("ingot help COMMAND")));
  EXPECT_EQ(ingot("help train"), 0);
  EXPECT_THAT(said_, HasSubstr("--resume"));
  EXPECT_EQ(ingot("help tokenizer train"), 0);
  EXPECT_THAT(said_, HasSubstr("--vocab-size"));
  EXPECT_EQ(ingot("tokenizer help train"), 0);
  EXPECT_THAT(said_, HasSubstr("--vocab-size"));
  EXPECT_EQ(ingot("help trian"), 2);
  EXPECT_THAT(said_, HasSubstr("did you mean train?"));
}

TEST_F(FirstCommands, APresetMayFollowTheData) {
  EXPECT_EQ(ingot("train --data t.txt tiny-llama --print-config"), 0) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("preset = \"tiny-llama\""), HasSubstr("train = [\"t.txt\"]")));
  write_file(folder_ / "own.toml", "preset = \"tiny-gpt2\"\n");
  EXPECT_EQ(ingot("train --data t.txt own.toml --print-config"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("preset = \"tiny-gpt2\""));
  EXPECT_EQ(ingot("train --data t.txt tiny-lama"), 2);
  EXPECT_THAT(said_,
              AllOf(HasSubstr("did you mean tiny-llama?"), HasSubstr("ingot train PRESET --data PATH")));
  // Both files after --data count as texts.
  EXPECT_EQ(ingot("train --data t.txt more.txt --print-config"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("[\"t.txt\", \"more.txt\"]"));
}

TEST_F(FirstCommands, CountsMeanTheSameInEveryOption) {
  EXPECT_EQ(ingot("tokenizer train --data t.txt --vocab-size 0.3k --out a.json"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("a.json: 300 tokens"));
  EXPECT_EQ(ingot("tokenizer train --data t.txt --vocab-size 4q --out b.json"), 2) << said_;
  EXPECT_THAT(said_, HasSubstr("--vocab-size"));
  EXPECT_EQ(ingot("train tiny-llama --data t.txt --set train.max_tokens=10B"), 2) << said_;
  EXPECT_THAT(said_, HasSubstr("did you mean 10G?"));
  EXPECT_EQ(ingot("generate nowhere --tokens 1k"), ingot("generate nowhere --tokens 1000"));
  EXPECT_THAT(said_, Not(HasSubstr("--tokens")));
  EXPECT_EQ(ingot("eval nowhere --data t.txt --max-tokens 2m"), 2) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("--max-tokens"), HasSubstr("did you mean 2M?")));
}

TEST_F(FirstCommands, AnEmptyConfigurationFileIsRefused) {
  for (const char* text : {"", "# nothing yet\n", "[model]\n"}) {
    write_file(folder_ / "empty.toml", text);
    EXPECT_EQ(ingot("train empty.toml --data t.txt"), 2) << said_;
    EXPECT_THAT(said_, HasSubstr("empty.toml: sets no key; start from a preset"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(FirstCommands, MoreThreadsThanTheMachineCanUseAreRefused) {
  EXPECT_EQ(ingot("train tiny-llama --data t.txt --set train.threads=4096"), 2) << said_;
  EXPECT_THAT(said_, HasSubstr("train.threads = 4096 is too many"));
  EXPECT_EQ(ingot("bench step tiny-llama --set train.threads=4096"), 2) << said_;
}

TEST_F(FirstCommands, APresetAdaptsToAShorterRun) {
  EXPECT_EQ(ingot("train tiny-llama --data t.txt --set train.steps=1 --set data.tokenizer=byte"
                  " --set sample.count=0 --out run"),
            0)
      << said_;
  EXPECT_THAT(said_, HasSubstr("note: schedule.warmup_steps = 10 of the preset tiny-llama"));
  EXPECT_EQ(ingot("schedule gpt3-175b-tiny --set train.steps=3"), 0) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("3 steps"), HasSubstr("note: train.max_tokens")));
}

}  // namespace
}  // namespace ingot
