#include "ingot/console/eta.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

// A run of 1000 steps. done_ counts the steps made so far.
class EtaTest : public ::testing::Test {
 protected:
  void steps(int count, double step_s) {
    for (int i = 0; i < count; ++i) {
      elapsed_s_ += step_s;
      eta_.add_step(step_s, 0.001, elapsed_s_);
      ++done_;
    }
  }
  double left() const { return eta_.seconds_for(1 - 0.001 * done_).value(); }

  Eta eta_;
  double elapsed_s_ = 0;
  int done_ = 0;
};

TEST_F(EtaTest, NothingIsKnownBeforeTheFirstStep) { EXPECT_FALSE(eta_.seconds_for(1)); }

TEST_F(EtaTest, EqualStepsAreCountedOut) {
  steps(1, 0.5);
  EXPECT_NEAR(left(), 999 * 0.5, 1e-6);
  steps(499, 0.5);
  EXPECT_NEAR(left(), 250, 1e-6);
  steps(500, 0.5);
  EXPECT_NEAR(left(), 0, 1e-6);
}

TEST_F(EtaTest, FirstStepIsForgottenByTheSecond) {
  steps(1, 5);
  steps(1, 0.1);
  EXPECT_NEAR(left(), 998 * 0.1, 1e-6);
}

// With the mean over the whole run, the first estimate would be 87.5 s instead of 200 s.
TEST_F(EtaTest, RecentStepsDecide) {
  steps(500, 0.1);
  steps(300, 1);  // another program shares the machine for five minutes
  EXPECT_NEAR(left(), 200, 2);
  steps(100, 0.1);
  EXPECT_GT(left(), 10) << "ten seconds are not the recent past yet";
  steps(90, 0.1);
  EXPECT_LT(left(), 10 * 1.0);
}

TEST_F(EtaTest, LongStepsCountForTenOfTheirKind) {
  steps(100, 60);
  steps(10, 120);
  const double at_once = 890 * 120.0, before = 890 * 60.0;
  EXPECT_GT(left(), before + 0.5 * (at_once - before));
  EXPECT_LT(left(), at_once);
}

TEST_F(EtaTest, EvaluationIsAProportionNotAJump) {
  steps(250, 0.4);
  EXPECT_NEAR(left(), 300, 1e-6);
  elapsed_s_ += 10;  // an evaluation that takes a tenth of the training time
  steps(1, 0.4);
  EXPECT_NEAR(left(), 749 * 0.4 * 1.1, 1);
}

class TimeBudgetEta : public TrainingTest {};

TEST_F(TimeBudgetEta, IsTheRestOfTheBudget) {
  RunConfig c = config(DType::f32);
  c.train.max_time_s = 0.6;
  c.train.log_every = 1;
  c.eval.every = 10;
  train(c, folder / "run");
  const std::regex line("step +\\d+ +([0-9.]+)% .* eta ([0-9.]+)s");
  int lines = 0;
  for (std::sregex_iterator found(said.begin(), said.end(), line), end; found != end; ++found, ++lines) {
    const double progress = std::stod((*found)[1]) / 100, left_s = std::stod((*found)[2]);
    constexpr double kRounding_s = 0.06;  // one decimal is printed
    EXPECT_NEAR(left_s, 0.6 * (1 - progress), kRounding_s) << found->str();
  }
  EXPECT_GE(lines, 1);
}

}  // namespace
}  // namespace ingot
