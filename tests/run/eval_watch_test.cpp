#include "ingot/run/eval/eval_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ingot {
namespace {

using ::testing::HasSubstr;

// Stands for another rank, which may be asked to stop and whose clock agrees with ours.
class OtherRank : public Communicator {
 public:
  OtherRank() : Communicator("two ranks", 0, 2) {}
  std::unique_ptr<Communicator> split(int, int, std::string) override { return nullptr; }
  TimeLimit& time_limit() override { return limit_; }
  bool is_interrupted = false;
  int agreements = 0;

 private:
  uint64_t start(const CommOperation& maximum) override {
    ++agreements;
    double& told = maximum.out.as<double>()[0];
    told = std::max(told, is_interrupted ? 1.0 : 0.0);
    return 0;
  }
  bool is_done(uint64_t) override { return true; }
  void wait(uint64_t) override {}

  TimeLimit limit_;
};

class EvalWatchTest : public ::testing::Test {
 protected:
  // Evaluates `batches` batches of 1000 tokens, each of which takes batch_s.
  bool walk(Console& console, int64_t batches, int64_t all_batches, double batch_s) {
    EvalWatch watch(
        console, other_, [this] { return is_interrupted_; }, [this] { return time_s_; });
    for (int64_t b = 1; b <= batches; ++b) {
      time_s_ += batch_s;
      if (!watch.go_on(1000 * b, 1000 * all_batches)) return false;
    }
    return true;
  }
  Console::Sink sink() {
    return [this](std::string_view text) { out_ += text; };
  }

  OtherRank other_;
  bool is_interrupted_ = false;
  double time_s_ = 100;
  std::string out_;
};

TEST_F(EvalWatchTest, LiveLineShowsProgressAndTheTimeLeft) {
  Console console(sink(), 100);
  EXPECT_TRUE(walk(console, 40, 100, 0.25));
  EXPECT_THAT(out_, HasSubstr("\revaluating\x1b[J"));
  EXPECT_THAT(out_, HasSubstr("\revaluating   1% | 1.0k of 100.0k tokens"));
  EXPECT_THAT(out_, HasSubstr("\revaluating  40% | eta 15s | 40.0k of 100.0k tokens"));
}

TEST_F(EvalWatchTest, PlainConsolePrintsALineEveryHalfMinute) {
  Console console(sink(), 0);
  EXPECT_TRUE(walk(console, 100, 100, 1));
  EXPECT_EQ(out_,
            "evaluating  30% | eta 1m10s | 30.0k of 100.0k tokens\n"
            "evaluating  60% | eta 40s | 60.0k of 100.0k tokens\n"
            "evaluating  90% | eta 10s | 90.0k of 100.0k tokens\n");
  out_.clear();
  EXPECT_TRUE(walk(console, 100, 100, 0.2));
  EXPECT_EQ(out_, "") << "20 seconds need no line";
}

TEST_F(EvalWatchTest, InterruptionOfAnyRankEndsIt) {
  Console console(sink(), 0);
  is_interrupted_ = true;
  EXPECT_FALSE(walk(console, 1, 10, 1));
  is_interrupted_ = false;
  other_.is_interrupted = true;
  EXPECT_FALSE(walk(console, 1, 10, 1));
}

// Ranks wait for each other when they agree, so with short batches they agree only ten times a second.
TEST_F(EvalWatchTest, RanksAgreeTenTimesASecond) {
  Console console(sink(), 0);
  EXPECT_TRUE(walk(console, 10'000, 10'000, 0.001));
  EXPECT_GE(other_.agreements, 90);
  EXPECT_LE(other_.agreements, 110);
  other_.agreements = 0;
  EXPECT_TRUE(walk(console, 20, 20, 2));
  EXPECT_EQ(other_.agreements, 20);
}

}  // namespace
}  // namespace ingot
