// Tests in which order a step starts messages, computes, and waits: messages that could be hidden behind
// computation are started before it and waited for after it. An implementation that waits where it starts
// fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ingot/parallel/parallelize.h"
#include "ingot/plan/dry_step.h"
#include "tests/config/built_config.h"

namespace ingot {
namespace {

constexpr int kLayers = 4;

// The operations of rank 0 in a step of two micro-batches. Positions count the step's operations.
class Step {
 public:
  explicit Step(const std::string& layout) {
    RunConfig config = built_config(
        "tiny-llama", {"model.layers=" + std::to_string(kLayers), "model.context=32", "model.width=256",
                       "train.batch_size=4", "train.grad_accum=4", "parallel.bucket_mb=1", layout});
    config.model.vocab = 96;
    const StepRecord record = record_step(config, mesh_shape(config.parallel), 0);
    std::map<uint32_t, std::string> names;
    for (size_t i = 0; i < record.ops.size(); ++i) {
      const ProgramOp& op = record.ops[i].op;
      const std::string& name = record.names[static_cast<size_t>(op.name)];
      if (op.kind == ProgramOp::Kind::kCompute) computations_[name].push_back(i);
      if (op.kind == ProgramOp::Kind::kStart) starts_[names[op.ticket] = name].push_back(i);
      if (op.kind == ProgramOp::Kind::kWait) waits_[names[op.ticket]].push_back(i);
    }
  }

  // The position of the n-th start of a message, and of the wait for it.
  size_t start(const std::string& message, size_t n = 0) const { return starts_.at(message).at(n); }
  size_t wait(const std::string& message, size_t n = 0) const { return waits_.at(message).at(n); }
  size_t count(const std::string& message) const {
    const auto found = starts_.find(message);
    return found == starts_.end() ? 0 : found->second.size();
  }
  // All computations of a unit in the order of the step.
  const std::vector<size_t>& computations(const std::string& unit) const { return computations_.at(unit); }
  // Those of the first forward pass or of the last backward pass.
  size_t first(const std::string& unit) const { return computations_.at(unit).front(); }
  size_t last(const std::string& unit) const { return computations_.at(unit).back(); }

 private:
  std::map<std::string, std::vector<size_t>> computations_, starts_, waits_;
};

std::string forward(int block) { return "forward block " + std::to_string(block); }
std::string backward(int block) { return "backward block " + std::to_string(block); }
std::string gather(int unit) { return "gather unit " + std::to_string(unit); }
std::string scatter(int unit) { return "scatter gradients " + std::to_string(unit); }

// Unit u is block u - 1; unit 0 is the embedding.
TEST(OverlapOrder, ShardsGatherEachBlockWhileTheOneBeforeComputes) {
  const Step step("parallel.fsdp=2");
  const std::string embedding = "forward embedding";
  EXPECT_LT(step.start(gather(0)), step.start(gather(1)));
  EXPECT_LT(step.start(gather(1)), step.first(embedding));
  EXPECT_GT(step.wait(gather(1)), step.first(embedding));
  for (int unit = 2; unit <= kLayers; ++unit) {
    EXPECT_GT(step.start(gather(unit)), step.start(gather(unit - 1))) << unit;
    EXPECT_LT(step.start(gather(unit)), step.first(forward(unit - 2))) << unit;
    EXPECT_LT(step.wait(gather(unit)), step.first(forward(unit - 1))) << unit;
    // The block before has computed in between.
    EXPECT_GT(step.wait(gather(unit)), step.first(forward(unit - 2))) << unit;
  }
}

TEST(OverlapOrder, ShardsScatterGradientsWhileTheNextBlockComputes) {
  const Step step("parallel.fsdp=2");
  for (int block = kLayers - 1; block > 0; --block) {
    const int unit = block + 1;
    const size_t last = step.count(scatter(unit)) - 1;
    EXPECT_EQ(last, 1u) << "one message per micro-batch";
    EXPECT_GT(step.start(scatter(unit), last), step.last(backward(block)));
    EXPECT_LT(step.start(scatter(unit), last), step.start(scatter(unit - 1), last));
    // It is waited for when the block after the next one needs its memory, or at the end.
    const auto& next = step.computations(backward(block - 1));
    EXPECT_TRUE(std::ranges::any_of(next, [&](size_t at) {
      return at > step.start(scatter(unit), last) && at < step.wait(scatter(unit), last);
    })) << unit;
  }
}

TEST(OverlapOrder, ReplicasSumBucketsFromTheLastLayersOn) {
  const Step step("parallel.dp=2");
  size_t buckets = 0;
  while (step.count("gradients " + std::to_string(buckets)) > 0) ++buckets;
  ASSERT_GE(buckets, static_cast<size_t>(kLayers));
  for (size_t b = 0; b < buckets; ++b) {
    const std::string bucket = "gradients " + std::to_string(b);
    EXPECT_EQ(step.count(bucket), 1u) << "one message per step";
    if (b > 0) {
      EXPECT_GT(step.start(bucket), step.start("gradients " + std::to_string(b - 1)));
    }
    EXPECT_GT(step.wait(bucket), step.last("backward embedding"));
  }
  // The sums of all buckets but the last ones are in progress while blocks compute.
  EXPECT_LT(step.start("gradients 1"), step.last(backward(kLayers - 2)));
  EXPECT_LT(step.start("gradients 3"), step.last("backward embedding"));
}

}  // namespace
}  // namespace ingot
