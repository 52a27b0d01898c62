#include "ingot/run/resume_check.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ingot/config/config_keys.h"
#include "ingot/config/config_toml.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RunConfig with(const std::vector<std::string>& assignments) { return small_config(assignments); }

std::vector<std::string> keys_of(const std::vector<ResumeChange>& changes) {
  std::vector<std::string> keys;
  for (const ResumeChange& change : changes) keys.push_back(change.key);
  return keys;
}

ResumeClass class_of(const std::vector<std::string>& before, const std::vector<std::string>& now,
                     const std::string& key) {
  const std::vector<ResumeChange> changes = resume_changes(with(before), with(now));
  const auto found = std::ranges::find(changes, key, &ResumeChange::key);
  EXPECT_NE(found, changes.end()) << key;
  return found == changes.end() ? ResumeClass::kFree : found->what;
}

TEST(ResumeCheck, EveryDifferenceIsFoundWithBothValues) {
  const std::vector<ResumeChange> changes = resume_changes(
      with({"optimizer.lr=0.001", "train.steps=10", "eval.every=5"}),
      with({"optimizer.lr=0.002", "train.steps=20", "eval.every=6", "parallel.dp=2", "train.seed=3"}));
  EXPECT_THAT(keys_of(changes),
              ElementsAre("train.steps", "train.seed", "optimizer.lr", "eval.every", "parallel.dp"));
  EXPECT_EQ(changes[2].before, "0.001");
  EXPECT_EQ(changes[2].now, "0.002");
  EXPECT_THAT(resume_changes(with({}), with({})), IsEmpty());
}

TEST(ResumeCheck, AZeroEqualsTheValueThatItStandsFor) {
  RunConfig before = with({}), now = before;
  now.model.vocab = 0;  // stands for the size of the tokenizer's vocabulary
  now.model.kv_heads = now.model.heads;
  now.model.head_dim = now.model.width / now.model.heads;
  EXPECT_THAT(keys_of(resume_changes(before, now)), IsEmpty());
  now.model.kv_heads = 1;
  EXPECT_THAT(keys_of(resume_changes(before, now)), ElementsAre("model.kv_heads"));
  RunConfig wider = before;
  wider.model.width = 64;  // also changes head_dim and ffn, which are 0 in both
  EXPECT_THAT(keys_of(resume_changes(before, wider)), ElementsAre("model.width"));
}

TEST(ResumeCheck, AnotherSplitIntoMicroBatchesChangesNoText) {
  const std::vector<std::string> before = {"train.batch_size=8", "train.grad_accum=2"};
  EXPECT_EQ(class_of(before, {"train.batch_size=4", "train.grad_accum=4"}, "train.batch_size"),
            ResumeClass::kCourse);
  EXPECT_EQ(class_of(before, {"train.batch_size=4", "train.grad_accum=2"}, "train.batch_size"),
            ResumeClass::kText);
  EXPECT_EQ(class_of(before, {"train.batch_size=8", "train.grad_accum=3"}, "train.grad_accum"),
            ResumeClass::kText);
}

TEST(ResumeCheck, TheContextIsPartOfTheModelWherePositionsAreLearned) {
  EXPECT_EQ(class_of({"model.positions=rope"}, {"model.positions=rope", "model.context=64"}, "model.context"),
            ResumeClass::kText);
  EXPECT_EQ(
      class_of({"model.positions=learned"}, {"model.positions=learned", "model.context=64"}, "model.context"),
      ResumeClass::kModel);
}

TEST(ResumeCheck, KeysThatUsersChangeHaveTheRightClass) {
  for (const char* key : {"train.seed", "data.order", "data.tokenizer", "train.batch_ramp"})
    EXPECT_EQ(find_config_key(key)->resume, ResumeClass::kText) << key;
  for (const char* key : {"model.width", "model.layers", "model.heads", "model.tied"})
    EXPECT_EQ(find_config_key(key)->resume, ResumeClass::kModel) << key;
  for (const char* key : {"parallel.fsdp", "train.device", "train.stop_at", "checkpoint.every", "eval.every"})
    EXPECT_EQ(find_config_key(key)->resume, ResumeClass::kFree) << key;
  for (const char* key : {"optimizer.lr", "train.steps", "schedule.kind", "optimizer.beta1"})
    EXPECT_EQ(find_config_key(key)->resume, ResumeClass::kCourse) << key;
}

TEST(ResumeCheck, GroupsOfTheOptimizerAreCompared) {
  RunConfig before = with({}), now = before;
  now.optimizer.groups = {{.roles = {ParamRole::kMatrix}, .rule = {.kind = "muon"}}};
  const std::vector<ResumeChange> changes = resume_changes(before, now);
  ASSERT_THAT(keys_of(changes), ElementsAre("optimizer.group"));
  EXPECT_THAT(changes[0].now, testing::HasSubstr("muon"));
}

}  // namespace
}  // namespace ingot
