// docs/formats.md lists the files that a run writes and the keys in them; the commands that print JSON print
// JSON.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/regress/run_script.h"
#include "tests/watch/written_run.h"

namespace ingot {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A run with most of what a run can write, and one that is delayed-scaled FP8.
constexpr const char* kTrain = R"sh(
for i in $(seq 300); do echo "the cat sat on the mat. a dog ran."; done > text.txt
small="--data text.txt --set data.tokenizer=byte --set train.steps=6 --set train.log_every=1 --set train.stats_every=2 --set eval.every=3 --set sample.every=3
  --set sample.tokens=4 --set sample.count=1 --set model.context=32 --set train.batch_size=4 --set model.layers=1"
$ingot train tiny-llama $small --out first --set precision.compute=f16 --set optimizer.ema=0.9 --set head.kind=recompute --set head.filter=0.01 --quiet || exit 1
$ingot train tiny-llama $small --out second --set precision.compute=bf16 --set precision.fp8=delayed --set optimizer.kind=adamw8bit >/dev/null || exit 1)sh";

// The name as the page writes it: numbers and the rest of a file's name that varies have a word of their own.
std::string pattern_of(const std::string& name) {
  std::string out = std::regex_replace(name, std::regex("step-[0-9]+"), "step-NUMBER");
  out = std::regex_replace(out, std::regex("tfevents\\..*"), "tfevents.*");
  return out;
}
std::string key_pattern(const std::string& key) {
  if (key.starts_with("ms_")) return "ms_PHASE";
  if (key.starts_with("bytes_")) return "bytes_ARENA";
  return std::regex_replace(key, std::regex("^(fp8_[a-z]+)/.*"), "$1/NAME");
}

void collect_keys(const fs::path& jsonl, std::set<std::string>& keys) {
  std::istringstream lines(read_file(jsonl));
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    for (const auto& [key, value] : object.items()) keys.insert(key_pattern(key));
  }
}

void collect_keys(const json& object, std::set<std::string>& keys) {
  for (const auto& [key, value] : object.items()) {
    if (key == "libraries") continue;  // its keys are names of libraries
    keys.insert(key);
    if (value.is_object()) collect_keys(value, keys);
    if (value.is_array() && !value.empty() && value[0].is_object()) collect_keys(value[0], keys);
  }
}

TEST(FormatsDoc, ListsEveryFileOfARunAndEveryKey) {
  const WrittenRun scratch("trained");
  const Outcome outcome = run_script(scratch.root(), kTrain);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("step"), std::string::npos) << "--quiet prints no steps: " << outcome.output;
  const std::string doc = read_file(fs::path(INGOT_SOURCE_DIR) / "docs/formats.md");
  std::set<std::string> keys, checkpoint_files;
  for (const char* name : {"first", "second"}) {
    const fs::path run = scratch.root() / name;
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
      if (!entry.is_regular_file()) continue;
      const std::string file = pattern_of(fs::relative(entry.path(), run).string());
      const bool is_of_checkpoint = file.starts_with("checkpoints/step-NUMBER/");
      const std::string listed = is_of_checkpoint ? entry.path().filename().string() : file;
      EXPECT_NE(doc.find("`" + listed + "`"), std::string::npos)
          << "docs/formats.md does not list " << listed;
      if (listed == "trainer.json") collect_keys(json::parse(read_file(entry.path())), keys);
    }
    collect_keys(run / "metrics.jsonl", keys);
    collect_keys(run / "params.jsonl", keys);
    collect_keys(json::parse(read_file(run / "run.json")), keys);
    collect_keys(json::parse(read_file(run / "heartbeat.json")), keys);
  }
  for (const char* key : {"loss_scale", "fp8_amax/NAME", "val_loss", "update_ratio", "head_filtered",
                          "rss_bytes", "bytes_ARENA"})
    EXPECT_EQ(keys.count(key), 1u) << "the runs of this test write no " << key;
  for (const std::string& key : keys)
    EXPECT_NE(doc.find("`" + key + "`"), std::string::npos)
        << "docs/formats.md does not list the key " << key;
}

TEST(JsonCommands, PrintJson) {
  const WrittenRun run("stated");
  run.append_step(3, 6.5);
  const auto printed = [&](const std::string& command) {
    const Outcome outcome = run_script(run.root(), "$ingot " + command + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << command << ": " << outcome.output;
    return json::parse(outcome.output);
  };
  const json status = printed("status --json stated");
  EXPECT_EQ(status[0]["status"], "completed");
  EXPECT_EQ(status[0]["loss"], 6.5);
  EXPECT_EQ(status[0]["incidents"], 0);
  const json schedule = printed("schedule tiny-llama --json --set train.steps=100");
  EXPECT_EQ(schedule["steps"], 100);
  EXPECT_EQ(schedule["curves"][0]["name"], "Learning rate");
  EXPECT_EQ(schedule["curves"][0]["value"].size(), schedule["curves"][0]["step"].size());
  EXPECT_GT(printed("doctor --json")["rows"].size(), 8u);
}

constexpr const char* kSmall =
    " --data text.txt --set data.tokenizer=byte --set train.steps=40 --set model.context=16 --set "
    "train.batch_size=2"
    " --set model.layers=1 --set model.width=32 --set model.heads=2 --set model.kv_heads=2 --set "
    "sample.count=0";

// The commands that write files print their record with --json and nothing with --quiet.
TEST(JsonCommands, PrintWhatTheyWroteAndNothingIfQuiet) {
  const WrittenRun scratch("written");
  write_file(scratch.root() / "text.txt", [] {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the cat sat on the mat. a dog ran.\n";
    return text;
  }());
  const std::string doc = read_file(fs::path(INGOT_SOURCE_DIR) / "docs/formats.md");
  const auto output_of = [&](const std::string& command) {
    const Outcome outcome = run_script(scratch.root(), "$ingot " + command + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << command;
    return outcome.output;
  };
  struct Case {
    std::string name, command, key;
    bool keys_are_listed = false;  // docs/formats.md lists every key
  };
  for (const Case& c : std::vector<Case>{
           {"train", std::string("train tiny-llama") + kSmall + " --out OUT", "best"},
           {"export hf", "export train.json --hf OUT", "model_type", true},
           {"export gguf", "export train.json --gguf OUT", "type", true},
           {"eval", "eval train.json --data text.txt", "bits_per_byte", true},
           {"tokenizer train", "tokenizer train --data text.txt --vocab-size 260 --out OUT", "tokens", true},
           {"data prepare", "data prepare --data text.txt --tokenizer byte --out OUT", "val"},
           {"lr-range", std::string("lr-range tiny-llama") + kSmall + " --steps 20 --out OUT", "points"},
           {"sweep", std::string("sweep tiny-llama --vary optimizer.lr=1e-3") + kSmall + " --out OUT",
            "runs"}}) {
    const auto with_out = [&](const char* ending) {
      std::string name = c.name + ending;
      std::ranges::replace(name, ' ', '_');
      return std::regex_replace(c.command, std::regex("OUT"), name);
    };
    const json object = json::parse(output_of(with_out(".json") + " --json"), nullptr, false);
    EXPECT_TRUE(object.is_object() && object.contains(c.key)) << c.name << ": " << object.dump();
    if (c.keys_are_listed) {
      for (const auto& [key, value] : object.items())
        EXPECT_NE(doc.find("`" + key + "`"), std::string::npos) << c.name << " prints " << key;
    }
    if (c.name == "eval") continue;  // its line is its result
    EXPECT_EQ(output_of(with_out(".quiet") + " --quiet"), "") << c.name;
  }
}

}  // namespace
}  // namespace ingot
