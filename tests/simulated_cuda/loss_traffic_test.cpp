// The bytes that the loss moves on a device, counted in the simulation.
#include "ingot/core/cuda/simulated_traffic.h"
#include "ingot/ops/cross_entropy.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

class LossTraffic : public ::testing::Test, protected OnCuda {
 protected:
  static constexpr int64_t kN = 3, kVp = 4096;

  // Returns the bytes moved per logit.
  double measure(DType logit, DType gradient) {
    const OnDevice logits = put(random_tensor(logit, {kN, kVp}, 1)), apart = result(gradient, {kN, kVp});
    const OnDevice losses = result(DType::f32, {kN}), targets = put(integers({5, 4000, 0}));
    synchronize(stream);
    cuda::simulated_traffic = {};
    const Tensor d = logit == gradient ? logits.tensor() : apart.tensor();
    cross_entropy(losses, {}, d, logits, targets, {.vocab = 4090}, stream);
    synchronize(stream);
    const cuda::SimulatedTraffic seen = std::exchange(cuda::simulated_traffic, {});
    return static_cast<double>(seen.read_bytes + seen.written_bytes) / (kN * kVp);
  }
};

TEST_F(LossTraffic, LogitsAreReadOnceAndTheirGradientIsWrittenOnce) {
  EXPECT_EQ(measure(DType::f32, DType::bf16), 4 + 2);
  EXPECT_EQ(measure(DType::bf16, DType::bf16), 2 + 2);
}

}  // namespace
}  // namespace ingot::test
