// Tests the course of a run: the batch ramp, budgets, extended runs, and what each step writes to
// metrics.jsonl.
#include <algorithm>
#include <cmath>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/config/run_plan.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/parallel/parallelize.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

using Course = TrainingTest;

TEST_F(Course, ARunResumedInsideARampIsExact) {
  const TrainOutcome whole = train(ramped(), folder / "whole");
  RunConfig part = ramped();
  for (int64_t stop_at : {4, 7, 12, 0}) {
    part.train.stop_at = stop_at;
    train(part, folder / "parts", stop_at != 4);
  }
  const fs::path parts = folder / "parts/checkpoints/step-000000040";
  expect_equal_files(whole.checkpoint, parts);
  const RunPlan plan(ramped());
  EXPECT_EQ(whole.tokens, plan.ramp().tokens_before(40));
  EXPECT_EQ(whole.tokens, 7 * 72 + 11 * 144 + 22 * 216);
}

TEST_F(Course, EveryStepLogsItsMetrics) {
  RunConfig c = ramped();
  c.train.log_every = 10;
  c.schedule.momentum = {{.kind = Phase::Length::kRest, .length = 0, .curve = Curve::kLinear, .to = 0.95}};
  train(c, folder / "run");
  const std::vector<MetricsRow> rows = steps_of(folder / "run");
  ASSERT_EQ(rows.size(), 40u);
  const RunPlan plan(c);
  int64_t tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RunPosition at = plan.position(static_cast<int64_t>(i), tokens, 0);
    const auto number = [&](const char* key) { return rows[i].number(key).value_or(std::nan("")); };
    EXPECT_EQ(number("step"), static_cast<double>(i + 1));
    EXPECT_EQ(number("lr"), plan.lr(at));
    EXPECT_EQ(number("momentum"), plan.momentum(at));
    EXPECT_EQ(number("step_tokens"), static_cast<double>(at.step_tokens));
    tokens += at.step_tokens;
    EXPECT_EQ(number("tokens"), static_cast<double>(tokens));
    for (const char* key : {"loss", "top1", "grad_norm", "tokens_per_s", "loader_wait_ms"})
      EXPECT_TRUE(std::isfinite(number(key))) << key;
    const double inside = number("ms_forward") + number("ms_backward") + number("ms_optimizer");
    EXPECT_GT(inside, 0);
    EXPECT_LE(inside, number("step_ms") * 1.001);
  }
  const std::vector<MetricsRow> all = read_metrics(folder / "run/metrics.jsonl");
  for (const char* arena : {"parameters", "gradients", "optimizer", "activations", "scratch"})
    EXPECT_GT(all.front().number(std::string("bytes_") + arena).value_or(0), 0) << arena;
}

// Compares params.jsonl with norms that the test computes in double precision from the weights of two
// checkpoints, one step apart.
TEST_F(Course, EveryParameterLogsItsNorms) {
  RunConfig c = ramped();
  c.train.steps = 11;
  c.train.stats_every = 11;
  c.checkpoint.every = 10;
  const TrainOutcome outcome = train(c, folder / "run");
  c.model.vocab = load_tokenizer(outcome.checkpoint / "tokenizer.json")->vocab_size();
  Trainer before(c, parallelize(c)), after(c, parallelize(c));
  load_checkpoint(folder / "run/checkpoints/step-000000010", before);
  load_checkpoint(outcome.checkpoint, after);
  const auto& specs = before.params().list().specs();
  const std::vector<MetricsRow> rows = read_metrics(folder / "run/params.jsonl");
  ASSERT_EQ(rows.size(), specs.size());
  for (size_t p = 0; p < specs.size(); ++p) {
    const float* w = before.params().master(static_cast<int>(p)).as<float>();
    const float* now = after.params().master(static_cast<int>(p)).as<float>();
    double squares = 0, moved = 0, dot = 0;
    for (int64_t i = 0; i < specs[p].elements(); ++i) {
      const double x = static_cast<double>(w[i]), d = static_cast<double>(now[i]) - x;
      squares += x * x;
      moved += d * d;
      dot += d * x;
    }
    const auto number = [&](const char* key) { return rows[p].number(key).value_or(std::nan("")); };
    EXPECT_EQ(number("step"), 11);
    EXPECT_EQ(std::get<std::string>(rows[p].fields[1].second), specs[p].name);
    // The statistics pass sums in f32 blocks and takes the change before it is rounded into the weight.
    constexpr double kTolerance = 2e-3;
    EXPECT_NEAR(number("weight_norm"), std::sqrt(squares), 1e-5 * std::sqrt(squares)) << specs[p].name;
    const double ratio = std::sqrt(moved / squares);
    EXPECT_NEAR(number("update_ratio"), ratio, kTolerance * ratio) << specs[p].name;
    EXPECT_NEAR(number("update_projection"), dot / squares, kTolerance * ratio) << specs[p].name;
    EXPECT_GT(number("grad_norm"), 0) << specs[p].name;
  }
}

// A run that is stopped in its stable phase and then extended equals the longer run, byte for byte.
TEST_F(Course, AWsdRunIsExtendedWithoutAJump) {
  RunConfig c = config(DType::f32);
  c.schedule.kind = ScheduleKind::kWsd;
  c.schedule.cooldown_steps = 10;
  c.schedule.cooldown_curve = Curve::kOneMinusSqrt;
  const TrainOutcome direct = train(c, folder / "direct");  // 60 steps
  RunConfig shorter = c;
  shorter.train.steps = 40;
  shorter.train.stop_at = 30;
  train(shorter, folder / "extended");
  const TrainOutcome extended = train(c, folder / "extended", true);
  expect_equal_files(direct.checkpoint, extended.checkpoint);
}

TEST_F(Course, ATokenBudgetEndsTheRunAndLeadsTheSchedule) {
  RunConfig c = ramped();
  c.train.max_tokens = 3000;
  c.schedule.warmup_steps = 0;
  c.schedule.warmup_tokens = 600;
  const TrainOutcome outcome = train(c, folder / "run");
  const RunPlan plan(c);
  EXPECT_EQ(outcome.steps, plan.steps());
  EXPECT_EQ(outcome.steps, plan.ramp().steps_for(3000));
  EXPECT_GE(outcome.tokens, 3000);
  const std::vector<MetricsRow> rows = steps_of(folder / "run");
  EXPECT_LT(rows.front().number("lr").value(), 0.2 * c.optimizer.lr);
  EXPECT_LT(rows.back().number("lr").value(), 0.15 * c.optimizer.lr);
}

}  // namespace
}  // namespace ingot
