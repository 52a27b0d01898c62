// Tests plans against formulas, against the memory that trainers take, and against what ranks really send.
#include "ingot/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ingot/config/presets.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/plan/dry_step.h"
#include "ingot/plan/plan_search.h"
#include "ingot/plan/plan_text.h"
#include "ingot/train/trainer.h"
#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

using testing::HasSubstr;

PlanTarget h100() {
  PlanTarget target;
  target.hardware = find_hardware("h100-sxm");
  target.memory_bytes = 80'000'000'000;
  target.memory_source = "h100-sxm";
  return target;
}

TEST(ModelParts, AddUpToTheModel) {
  for (const Preset& preset : presets()) {
    RunConfig config = built_config(std::string(preset.name), {});
    if (config.model.vocab == 0) config.model.vocab = 50257;
    const ModelConfig model = config.model.resolved();
    int64_t parameters = 0;
    double flops = 0;
    for (const ModelPart& part : model_parts(model)) {
      parameters += part.parameters;
      flops += part.flops_per_token;
    }
    EXPECT_EQ(parameters, model.parameters()) << preset.name;
    EXPECT_NEAR(flops, model.flops_per_token(), 1e-12 * flops) << preset.name;
  }
}

// The products of a step are 6 per weight and token; attention forward has 2 products of T x T x D, half of
// them behind the mask, and backward 5.
TEST(RecordedProducts, AreThoseOfTheFormula) {
  RunConfig config =
      built_config("tiny-llama", {"model.layers=3", "model.vocab_multiple=1", "train.grad_accum=2"});
  config.model.vocab = 500;
  const ModelConfig model = config.model.resolved();
  const StepRecord record = record_step(config, {}, 0);
  double products = 0, attention = 0;
  for (const RecordedOp& op : record.ops) {
    if (op.key < 0) continue;
    const OpKey& key = record.keys[static_cast<size_t>(op.key)];
    (key.name == "attention" ? attention : products) += key.flops;
  }
  const auto tokens = static_cast<double>(config.train.batch_size * 2 * model.context);
  double linear = 0;
  for (const ModelPart& part : model_parts(model))
    if (part.name != "attention") linear += part.flops_per_token;
  EXPECT_DOUBLE_EQ(products, linear * tokens);
  const auto T = static_cast<double>(model.context);
  EXPECT_DOUBLE_EQ(attention,
                   3 * tokens * 7 * 2 * static_cast<double>(model.heads * model.head_dim) * (T + 1) / 2);
}

TEST(PlannedMemory, IsThatOfTheTrainerToTheByte) {
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {}, {"parallel.fsdp=2"}, {"parallel.tp=2", "parallel.dp=2"}, {"parallel.pp=2"}}) {
    std::vector<std::string> settings{"train.grad_accum=4", "model.vocab=256"};
    settings.insert(settings.end(), layout.begin(), layout.end());
    const RunConfig config = built_config("tiny-gpt2", settings);
    const MeshShape shape = mesh_shape(config.parallel);
    for (const RankMemory& rank : plan_rank_memory(config)) {
      Mesh mesh = Mesh::planned(shape, rank.ranks.front());
      const Trainer trainer(config, parallelize(config, mesh, Backing::kAddresses));
      const auto arenas = trainer.arenas();
      ASSERT_GE(rank.items.size(), arenas.size());
      for (size_t i = 0; i < arenas.size(); ++i) {
        EXPECT_EQ(rank.items[i].name, arenas[i].name);
        EXPECT_EQ(rank.items[i].bytes, arenas[i].bytes) << arenas[i].name;
      }
    }
  }
}

// The trainers above plan, as the planner does. Here a step fills the arenas, in memory that it really has.
TEST(PlannedMemory, IsWhatAStepTakes) {
  for (const char* preset : {"tiny-gpt2", "tiny-llama"})
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{},
                                               {"precision.compute=bf16", "activations.policy=block"},
                                               {"optimizer.kind=adamw8bit", "head.kind=recompute"}}) {
      std::vector<std::string> settings{"train.grad_accum=2", "model.vocab=256", "model.context=32"};
      settings.insert(settings.end(), more.begin(), more.end());
      const RunConfig config = built_config(preset, settings);
      const RankMemory planned = plan_rank_memory(config).front();
      SmallTraining run(config);
      run.steps(1);
      std::vector<const Arena*> arenas = run.trainer.params().arenas();
      const auto& executor = run.trainer.layout().executor->arenas();
      arenas.insert(arenas.end(), executor.begin(), executor.end());
      for (const Arena* arena :
           {&run.trainer.state().optimizer.arena(), &run.trainer.state().optimizer.scratch()})
        arenas.push_back(arena);
      // Room is kept to align every tensor, and a parameter has four at most: moments and their scales.
      const size_t padding = 4 * Arena::kDeviceAlign * run.trainer.params().list().specs().size();
      for (const Arena* arena : arenas) {
        const auto item = std::ranges::find(planned.items, arena->name(), &MemoryItem::name);
        ASSERT_NE(item, planned.items.end()) << arena->name();
        EXPECT_LE(arena->peak_bytes(), item->bytes) << arena->name();
        EXPECT_LE(item->bytes - arena->peak_bytes(), padding) << arena->name();
      }
    }
}

TEST(PlanJson, HasTheNamesThatScriptsRelyOn) {
  const RunConfig config = built_config("gpt2-124m", {"parallel.dp=8", "precision.compute=bf16"});
  const Plan plan = make_plan(config, h100());
  const auto json = nlohmann::json::parse(plan_json(plan, h100()));
  for (const char* key : {"parameters", "flops_per_token", "layout", "ranks", "fits", "step_s",
                          "tokens_per_s", "mfu", "exposed_comm_s", "bubble", "hardware"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["layout"], "dp=8");
  EXPECT_EQ(json["ranks"][0]["rank"], 0);
  EXPECT_GT(json["ranks"][0]["arenas"]["parameters"], 0);
  EXPECT_GT(json["ranks"][0]["peak_bytes"], json["ranks"][0]["arenas"]["parameters"]);
  EXPECT_TRUE(json["fits"]);
  EXPECT_GT(json["mfu"], 0.2);
  EXPECT_LT(json["mfu"], 1);
}

TEST(PlanMemory, SaysWhatFitsInstead) {
  const Plan plan =
      make_plan(built_config("gpt2-124m", {"train.batch_size=512", "train.grad_accum=1"}), h100());
  EXPECT_FALSE(plan.fits);
  EXPECT_THAT(plan.unfit, HasSubstr("h100-sxm has 80.0 GB"));
  EXPECT_THAT(plan.unfit, HasSubstr("What fits"));
}

TEST(PlanLayout, ThatIsImpossibleIsRefusedWithTheNearest) {
  EXPECT_THAT(error_of([&] { make_plan(built_config("gpt2-124m", {"parallel.tp=5"}), h100()); }),
              HasSubstr("parallel.tp"));
}

// More ranks share the same step: each computes less, and the communication between nodes shows.
TEST(StrongScaling, IsBelowLinear) {
  double last = 0;
  int last_ranks = 0;
  for (const int ranks : {1, 8, 32}) {
    const Plan plan =
        make_plan(built_config("gpt2-124m", {fmt::format("parallel.dp={}", ranks), "precision.compute=bf16",
                                             "train.batch_size=4", "train.grad_accum=128"}),
                  h100());
    if (last_ranks > 0) {
      const double linear = last * ranks / last_ranks;
      EXPECT_GT(plan.tokens_per_s, 0.9 * linear) << ranks;
      EXPECT_LT(plan.tokens_per_s, linear) << ranks;
    }
    last = plan.tokens_per_s;
    last_ranks = ranks;
  }
}

// The stages cannot be cut into equal ones: the last has the head, so the others wait for it a little longer.
TEST(Pipeline, PlansABubbleNearTheIdealOne) {
  for (const int micros : {8, 32, 128}) {
    const StepPlan step =
        make_plan(built_config("gpt2-124m", {"parallel.pp=4", "precision.compute=bf16", "train.batch_size=4",
                                             fmt::format("train.grad_accum={}", micros)}),
                  h100())
            .step;
    EXPECT_NEAR(step.ideal_bubble, 3.0 / (micros + 3), 1e-12);
    EXPECT_GT(step.bubble, step.ideal_bubble) << micros;
    EXPECT_LT(step.bubble, 1.2 * step.ideal_bubble) << micros;
  }
}

TEST(Pipeline, IsDrawn) {
  const Plan plan = make_plan(built_config("gpt2-124m", {"parallel.pp=4", "precision.compute=bf16",
                                                         "train.batch_size=4", "train.grad_accum=32"}),
                              h100(), {0, 3});
  EXPECT_EQ(plan.schedule.timelines.size(), 2);
  EXPECT_THAT(plan_trace(plan), HasSubstr("forward block"));
  const std::string picture = plan_picture(plan, h100());
  EXPECT_TRUE(picture.starts_with("<svg"));
  EXPECT_THAT(picture, HasSubstr("rank 0"));
}

TEST(PlanPicture, ManyMicroBatchesAreOneBar) {
  const Plan plan = make_plan(built_config("gpt2-124m", {"train.grad_accum=64"}), h100(), {0});
  ASSERT_GT(plan.schedule.timelines.at(0).spans.size(), 128);
  const std::string picture = plan_picture(plan, h100());
  EXPECT_THAT(picture, HasSubstr("forward and backward"));
  EXPECT_THAT(picture, HasSubstr("<title>optimizer: "));
  int bars = 0;
  for (size_t at = picture.find("<title>"); at != std::string::npos; at = picture.find("<title>", at + 1))
    ++bars;
  EXPECT_LT(bars, 30);
}

TEST(PlanSearch, FindsWhatFitsAndKeepsTheStep) {
  const RunConfig config =
      built_config("gpt2-124m", {"precision.compute=bf16", "train.batch_size=8", "train.grad_accum=8"});
  const SearchResult result = search_plans(config, h100(), 4, 10, 12, {});
  ASSERT_FALSE(result.best.empty());
  EXPECT_LE(result.fitting, result.valid);
  EXPECT_TRUE(std::ranges::is_sorted(result.best, {}, &FoundPlan::step_s));
  for (const FoundPlan& found : result.best) {
    EXPECT_LE(found.peak_bytes, 80'000'000'000);
    std::vector<std::string> settings{"precision.compute=bf16"};
    std::istringstream words(found.settings);
    for (std::string word; words >> word;) settings.push_back(word);
    const RunConfig again = built_config("gpt2-124m", settings);
    EXPECT_EQ(again.train.batch_size * again.train.grad_accum, 64);
    EXPECT_DOUBLE_EQ(make_plan(again, h100()).step.step_s, found.step_s) << found.settings;
  }
}

}  // namespace
}  // namespace ingot
