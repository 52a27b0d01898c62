// Seen: TensorBoard showed all scalars in one flat list, one tag had a space ("ms_head check"), and
// neither the configuration nor the samples appeared. Wanted: tags are grouped and have no unusual
// characters, and the HPARAMS page and the texts are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/tensorboard_tags.h"
#include "tests/formats/tensorboard_events.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::MatchesRegex;

class TensorboardTags : public ProgramInFolder {
 protected:
  struct Value {
    int64_t step = 0;
    std::string tag, plugin, content, text;
  };
  // Returns all values of all event files of the run.
  std::vector<Value> values(const std::string& run) const {
    std::vector<Value> all;
    for (const auto& entry : std::filesystem::directory_iterator(path(run) + "/tb"))
      for (const std::string& record : records(read_file(entry.path()))) {
        auto event = fields(record);
        if (event[5].empty()) continue;
        auto value = fields(fields(event[5])[1]);
        auto plugin = value[9].empty() ? std::map<int, std::string>() : fields(fields(value[9])[1]);
        const std::string text = value[8].empty() ? "" : fields(value[8])[8];
        all.push_back({fixed<int64_t>(event[2], 0), value[1], plugin[1], plugin[2], text});
      }
    return all;
  }
};

TEST_F(TensorboardTags, AreInGroupsWithTheConfigurationAndSamples) {
  const Outcome ended = run(small_run("run", {"train.steps=4", "train.log_every=1", "train.stats_every=2",
                                              "head.raw_ce_every=2", "sample.count=1", "sample.tokens=4"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  std::set<std::string> tags;
  std::map<std::string, Value> special;
  for (const Value& value : values("run")) {
    if (value.plugin.empty())
      tags.insert(value.tag);
    else
      special[value.tag] = value;
  }
  for (const std::string& tag : tags)
    EXPECT_THAT(tag, MatchesRegex("(train|val|time|memory|params)/[A-Za-z0-9_./-]+"));
  for (const char* tag : {"train/loss", "train/grad_norm", "train/tokens", "val/loss", "val/bits_per_byte",
                          "time/step_ms", "time/tokens_per_s", "time/head_check_ms", "time/forward_ms",
                          "memory/activations_bytes", "params/update_ratio/embedding.weight"})
    EXPECT_THAT(tags, Contains(tag));
  ASSERT_THAT(special, testing::SizeIs(4));
  EXPECT_EQ(special["config/text_summary"].plugin, "text");
  EXPECT_THAT(special["config/text_summary"].text, HasSubstr("\n    width = 32\n"));
  EXPECT_EQ(special["samples/text_summary"].step, 4);
  EXPECT_THAT(special["samples/text_summary"].text, HasSubstr("    --- 1\n"));
  std::map<std::string, std::string> hparams;
  for (const std::string& entry : repeated(fields(special["_hparams_/session_start_info"].content)[3], 1))
    hparams[fields(entry)[1]] = fields(entry)[2];
  EXPECT_EQ(fixed<double>(fields(hparams["model.width"])[2], 0), 32);
  EXPECT_EQ(fields(hparams["data.tokenizer"])[3], "byte");
  EXPECT_FALSE(special["_hparams_/session_end_info"].content.empty());
  for (const MetricsRow& row : read_metrics(path("run/metrics.jsonl")))
    for (const auto& [key, value] : row.fields) EXPECT_EQ(key.find(' '), std::string::npos) << key;
}

// Metrics lines that an older Ingot wrote have spaces in their keys.
TEST_F(TensorboardTags, ARunWithOldKeysResumes) {
  ASSERT_EQ(run(small_run("run", {"train.steps=8", "train.stop_at=4"})).exit_code, 0);
  std::string lines = read_file(path("run/metrics.jsonl"));
  lines.insert(lines.rfind('}'), ",\"ms_head check\":1.5");
  write_file(path("run/metrics.jsonl"), lines);
  const Outcome resumed = run({"train", "--resume", "--out", path("run")});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(read_file(path("run/metrics.jsonl")), HasSubstr("\"ms_head check\":1.5"));
}

TEST(TensorboardTag, FollowsFromTheField) {
  for (const auto& [field, tag] :
       std::map<std::string, std::string>{{"loss", "train/loss"},
                                          {"val_top1", "val/top1"},
                                          {"ms_head check", "time/head_check_ms"},
                                          {"loader_wait_ms", "time/loader_wait_ms"},
                                          {"mfu", "time/mfu"},
                                          {"bytes_kept logits", "memory/kept_logits_bytes"}})
    EXPECT_EQ(tensorboard_tag(field), tag);
  EXPECT_EQ(tensorboard_param_tag("grad_norm", "a b:c"), "params/grad_norm/a_b_c");
}

}  // namespace
}  // namespace ingot
