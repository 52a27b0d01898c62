// The bytes that the FP8 casts of a linear move on a device, counted in the simulation.
#include "ingot/core/cuda/simulated_traffic.h"
#include "ingot/nn/fp8_linear.h"
#include "ingot/ops/cuda_fp8.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {

struct Traffic {
  double step, forward, backward;  // bytes; step: the cast of the weight for all micro-batches of a step
};

// Kept says what is kept between forward and backward, and between micro-batches.
enum class Kept { kNothing, kCodes };
// Amax says which ops find the amaxes of x and dy: their casts, or the ops that write them.
enum class Amax { kOfCast, kOfProducer };

class Fp8Traffic : public ::testing::Test, protected OnCuda {
 protected:
  static constexpr int64_t kN = 256, kIn = 144, kOut = 80;  // partly filled tiles

  Traffic measure(Fp8Recipe recipe, float delayed_amax, Kept kept, Amax amax = Amax::kOfCast) {
    const Fp8Linear linear{recipe, 0};
    Arena plan("plan", Memory::kDevice);
    linear.plan_forward(plan, kN, kOut, kIn);
    linear.plan_backward(plan, kN, kOut, kIn);
    Arena scratch("scratch", plan.peak_bytes(), Memory::kDevice);
    Fp8State state({"x", "w", "dy"}, 1, 0);
    for (float& amax : state.amaxes()) amax = delayed_amax;
    state.bring_to_device(stream);
    state.begin_step(stream);
    Region region;
    const OnDevice own_x = values({kN, kIn}, 1), w = values({kOut, kIn}, 2), own_dy = values({kN, kOut}, 3);
    Tensor x = own_x, dy = own_dy;
    const OnDevice y = result(DType::bf16, {kN, kOut}), dx = result(DType::bf16, {kN, kIn});
    const OnDevice dw = put(random_tensor(DType::f32, {kOut, kIn}, 4));
    const OnDevice all_codes = result(DType::f8e4m3, {kIn + 1, kN});
    const Tensor codes = kept == Kept::kCodes ? all_codes.tensor() : Tensor{};
    if (kept == Kept::kCodes) state.hold_weights({{1, {kOut, kIn}}}, stream);
    if (amax == Amax::kOfProducer) {
      x = x.with_amax(state.next_amax(0));
      dy = dy.with_amax(state.next_amax(2));
      cuda::raise_amax(x, stream);
      cuda::raise_amax(dy, stream);
    }
    synchronize(stream);
    Traffic traffic;
    cuda::simulated_traffic = {};
    const Fp8Context ctx{state, scratch, region, stream};
    linear.cast_weight(w, ctx);
    traffic.step = moved();
    linear.forward(y, x, codes, w, {}, ctx);
    traffic.forward = moved();
    linear.backward(dx, {dw}, dy, x, codes, w, ctx);
    traffic.backward = moved();
    results_.reserve(3);
    for (const OnDevice* t : {&y, &dx, &dw}) results_.push_back(t->to_host());
    return traffic;
  }
  // Bytes per element of x, w and dy.
  static double bytes(double x, double w, double dy) {
    return x * kN * kIn + w * kOut * kIn + dy * kN * kOut;
  }

  // y, dx and dw of the last measurement.
  std::vector<Buffer> results_;

 private:
  OnDevice values(const Shape& shape, uint32_t number) {
    return put(random_tensor(DType::bf16, shape, number));
  }
  // Returns the bytes moved since the last call. The products of the simulation are not counted.
  double moved() {
    synchronize(stream);
    const cuda::SimulatedTraffic seen = std::exchange(cuda::simulated_traffic, {});
    return static_cast<double>(seen.read_bytes + seen.written_bytes);
  }
};

// A cast reads 2 bytes per element and writes one for each layout.
TEST_F(Fp8Traffic, DelayedScalesReadEveryTensorOnceInAStep) {
  const Traffic traffic = measure(Fp8Recipe::kDelayed, 1, Kept::kCodes);
  EXPECT_EQ(traffic.step, bytes(0, 4, 0));
  EXPECT_EQ(traffic.forward, bytes(4, 0, 0));
  EXPECT_EQ(traffic.backward, bytes(0, 0, 4));
}

// The amax of x, w and dy costs one more pass over each in a step.
TEST_F(Fp8Traffic, CurrentScalesReadEveryTensorOnceMoreInAStep) {
  const Traffic traffic = measure(Fp8Recipe::kTensorwise, 0, Kept::kCodes);
  EXPECT_EQ(traffic.step, bytes(0, 6, 0));
  EXPECT_EQ(traffic.forward, bytes(6, 0, 0));
  EXPECT_EQ(traffic.backward, bytes(0, 0, 6));
}

// A norm or an activation that writes x or dy raises its amax.
TEST_F(Fp8Traffic, AmaxesOfProducersSaveThatPassAndGiveTheSameBits) {
  measure(Fp8Recipe::kTensorwise, 0, Kept::kCodes);
  const std::vector<Buffer> want = std::exchange(results_, {});
  const Traffic traffic = measure(Fp8Recipe::kTensorwise, 0, Kept::kCodes, Amax::kOfProducer);
  EXPECT_EQ(traffic.step, bytes(0, 6, 0));
  EXPECT_EQ(traffic.forward, bytes(4, 0, 0));
  EXPECT_EQ(traffic.backward, bytes(0, 0, 4));
  for (size_t i = 0; i < want.size(); ++i) expect_same_bits(results_[i], want[i], "y, dx or dw");
}

// x has the place of w, for example because it is in the memory of another linear's x.
TEST_F(Fp8Traffic, TheAmaxOfAnotherTensorIsRefused) {
  Fp8State state({"x", "w", "dy"}, 1, 0);
  state.bring_to_device(stream);
  Fp8Device& device = *state.device();
  const OnDevice x = put(random_tensor(DType::bf16, {kN, kIn}, 1)), codes = result(DType::f8e4m3, {kN, kIn});
  const Tensor misplaced = x.tensor().with_amax(state.next_amax(1));
  EXPECT_EQ(error_of([&] { device.cast({.codes = codes}, 0, misplaced, Fp8Scaling::kTensor, {}, stream); }),
            "Fp8Device: x (256, 144) has an amax, but not that of its cast (Fp8State::next_amax)");
}

// Recomputed blocks keep no codes of x, and sharded weights none of w.
TEST_F(Fp8Traffic, WithoutKeptCodesXAndWAreCastAgainForBackward) {
  Traffic traffic = measure(Fp8Recipe::kDelayed, 1, Kept::kNothing);
  EXPECT_EQ(traffic.step, 0);
  EXPECT_EQ(traffic.forward, bytes(3, 3, 0));
  EXPECT_EQ(traffic.backward, bytes(3, 3, 4));
  traffic = measure(Fp8Recipe::kTensorwise, 0, Kept::kNothing);
  EXPECT_EQ(traffic.forward, bytes(5, 5, 0));
  EXPECT_EQ(traffic.backward, bytes(3, 3, 6));
}

TEST_F(Fp8Traffic, KeptCodesGiveTheSameBits) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kDelayed, Fp8Recipe::kTensorwise}) {
    results_.clear();
    measure(recipe, 1, Kept::kNothing);
    const std::vector<Buffer> want = std::exchange(results_, {});
    measure(recipe, 1, Kept::kCodes);
    ASSERT_EQ(results_.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) expect_same_bits(results_[i], want[i], "y, dx or dw");
  }
}

}  // namespace
}  // namespace ingot::test
