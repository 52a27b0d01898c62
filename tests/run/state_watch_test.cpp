// Silent corruption on one rank: bits that change in memory between two steps, and gradients that one of
// several executions gets wrong.
#include "ingot/run/state_watch.h"

#include <gmock/gmock.h>

#include <functional>

#include "ingot/core/memory_hash.h"
#include "tests/run/training_fixture.h"
#include "tests/run/watched_run.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MemoryHash, EveryFlippedBitAndEveryExchangeOfWordsChangesIt) {
  std::vector<unsigned char> bytes(1027);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * i + 7 * i);
  const auto hash = [&] { return memory_hash(std::as_bytes(std::span(bytes))); };
  const uint64_t before = hash();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    EXPECT_NE(hash(), before) << bit;
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
  }
  EXPECT_EQ(hash(), before);
  std::swap_ranges(bytes.begin(), bytes.begin() + 4, bytes.begin() + 400);
  EXPECT_NE(hash(), before);
}

TEST(MemoryHash, IsTheSumThatTheHeaderDefines) {
  std::vector<uint32_t> words(100'003);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * 2654435761U);
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) sum += uint64_t{words[i]} * static_cast<uint32_t>(2 * i + 1);
  EXPECT_EQ(memory_hash(std::as_bytes(std::span(words))), sum);
}

class StateWatchTest : public TrainingTest {
 protected:
  RunConfig watched(DType compute) const {
    RunConfig c = config(compute);
    c.guard.watches_memory = true;
    c.checkpoint.keep = 2;
    c.train.steps = 100'000;
    return c;
  }
  Mesh mesh = Mesh::alone();
};

// Each flip is found before the next update uses it. The run goes back, and its weights end with the bits of
// a run that was left alone.
class LongFlippedBits : public StateWatchTest, public testing::WithParamInterface<const char*> {};

TEST_P(LongFlippedBits, AreAllFoundAndLeaveNoTrace) {
  const std::string kind = GetParam();
  RunConfig c = watched(kind == "f32" ? DType::f32 : DType::bf16);
  if (kind == "bf16 with tails") c.precision.master = Masters::kTail;
  if (kind == "f32") c.optimizer.ema = 0.9;
  WatchedRun calm(c, folder / "calm", mesh), flipped(c, folder / "flipped", mesh);
  constexpr int kFlips = 200;
  for (int i = 0; i < kFlips; ++i) {
    flipped.go_to(2 * (i + 1));
    flipped.flip(static_cast<uint64_t>(i));
    flipped.said.clear();
    EXPECT_FALSE(flipped.step.make(false)) << i;
    EXPECT_THAT(flipped.said, HasSubstr("silent corruption: the ")) << i;
    EXPECT_THAT(flipped.said, HasSubstr("changed in the memory of rank 0")) << i;
  }
  calm.go_to(2 * kFlips + 3);
  flipped.go_to(2 * kFlips + 3);
  EXPECT_EQ(flipped.losses, calm.losses);
  EXPECT_EQ(flipped.bytes(), calm.bytes());
}

INSTANTIATE_TEST_SUITE_P(StateWatch, LongFlippedBits, testing::Values("f32", "bf16", "bf16 with tails"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

TEST_F(StateWatchTest, AFlipBeforeASaveIsNotSaved) {
  WatchedRun run(watched(DType::f32), folder / "run", mesh);
  run.go_to(7);
  run.flip(3);
  EXPECT_FALSE(run.step.is_sound());
  EXPECT_EQ(run.run.steps_done(), 5);
}

TEST_F(StateWatchTest, WithoutTheWatchAFlipStays) {
  RunConfig c = watched(DType::f32);
  c.guard.watches_memory = false;
  WatchedRun run(c, folder / "run", mesh);
  run.go_to(7);
  run.flip(3);
  EXPECT_TRUE(run.step.make(false));
  EXPECT_THAT(run.said, Not(HasSubstr("corruption")));
}

TEST_F(StateWatchTest, MemoryThatFailsAgainAndAgainEndsTheRun) {
  WatchedRun run(watched(DType::f32), folder / "run", mesh);
  run.go_to(7);
  for (int i = 0; i < 3; ++i) {
    run.go_to(7);
    run.flip(3);
    EXPECT_FALSE(run.step.make(false));
  }
  run.go_to(7);
  run.flip(3);
  EXPECT_THAT([&] { run.step.make(false); },
              testing::ThrowsMessage<Error>(HasSubstr("for the 4th time: the memory or the processor")));
}

// Flips a bit of a gradient in chosen runs of the executor, as a faulty processor would.
class FaultyExecutor : public Executor {
 public:
  FaultyExecutor(std::unique_ptr<Executor> inner, TrainingStore& params, std::function<bool(int)> is_faulty)
      : inner_(std::move(inner)), params_(params), is_faulty_(std::move(is_faulty)) {
    recompute_ = inner_->recompute();
    arenas_ = inner_->arenas();
  }
  bool run(const ExecutorStep& step) override {
    const bool is_done = inner_->run(step);
    if (is_faulty_(++runs)) static_cast<unsigned char*>(params_.shards()[2].grad.data)[5 + runs] ^= 1;
    return is_done;
  }
  LossSums losses(Stream& stream) override { return inner_->losses(stream); }
  LossSums forward(LayerContext& ctx, const Batch& batch) override { return inner_->forward(ctx, batch); }
  void infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
             const Tensor& logits) override {
    inner_->infer(ctx, batch, caches, logits);
  }
  std::vector<const Transformer::Saved*> parts() const override { return inner_->parts(); }
  int runs = 0;

 private:
  std::unique_ptr<Executor> inner_;
  TrainingStore& params_;
  std::function<bool(int)> is_faulty_;
};

void make_faulty(WatchedRun& run, const std::function<bool(int)>& is_faulty) {
  Layout& layout = run.run.trainer.layout();
  layout.executor = std::make_unique<FaultyExecutor>(std::move(layout.executor), *layout.params, is_faulty);
}

class VerifiedSteps : public StateWatchTest {
 protected:
  RunConfig verified() const {
    RunConfig c = watched(DType::bf16);
    c.guard.watches_memory = false;
    c.guard.verify_every = 2;
    return c;
  }
};

TEST_F(VerifiedSteps, ASecondExecutionGivesTheSameBitsAndChangesNothing) {
  RunConfig plain = verified();
  plain.guard.verify_every = 0;
  WatchedRun once(plain, folder / "once", mesh), twice(verified(), folder / "twice", mesh);
  make_faulty(twice, [](int) { return false; });
  once.go_to(12);
  twice.go_to(12);
  EXPECT_EQ(twice.bytes(), once.bytes());
  EXPECT_EQ(twice.losses, once.losses);
  EXPECT_THAT(twice.said, Not(HasSubstr("computing again")));
  EXPECT_EQ(static_cast<FaultyExecutor&>(*twice.run.trainer.layout().executor).runs, 18);
}

// The step is computed until two results agree, whichever of them was wrong.
TEST_F(VerifiedSteps, AWrongGradientIsFoundAndNotUsed) {
  for (const int wrong : {5, 6}) {  // the first or the second execution of the fourth step
    WatchedRun calm(verified(), folder / fmt::format("calm{}", wrong), mesh);
    WatchedRun faulty(verified(), folder / fmt::format("faulty{}", wrong), mesh);
    make_faulty(faulty, [&](int run) { return run == wrong; });
    calm.go_to(8);
    faulty.go_to(8);
    EXPECT_THAT(faulty.said, HasSubstr("changed on rank 0, although nothing else did; computing again"));
    EXPECT_EQ(faulty.bytes(), calm.bytes()) << wrong;
  }
}

TEST_F(VerifiedSteps, AProcessorThatIsWrongEachTimeEndsTheRun) {
  WatchedRun run(verified(), folder / "run", mesh);
  make_faulty(run, [](int) { return true; });
  EXPECT_THAT([&] { run.go_to(8); },
              testing::ThrowsMessage<Error>(HasSubstr("the processor or memory of that rank is faulty")));
}

}  // namespace
}  // namespace ingot
