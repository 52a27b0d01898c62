// The bytes that the FP8 casts of a linear move on a device, counted in the simulation.
#include "ingot/nn/fp8_linear.h"
#include "ingot/ops/cuda/simulated_traffic.h"
#include "tests/cuda/on_device.h"

namespace ingot::testing {
namespace {

struct Traffic {
  double forward, backward;  // bytes
};

class Fp8Traffic : public ::testing::Test, protected OnCuda {
 protected:
  static constexpr int64_t kN = 256, kIn = 144, kOut = 80;  // partly filled tiles

  Traffic measure(Fp8Recipe recipe, float delayed_amax) {
    const Fp8Linear linear{recipe, 0};
    Arena plan("plan", Memory::kDevice);
    linear.plan_forward(plan, kN, kOut, kIn);
    linear.plan_backward(plan, kN, kOut, kIn);
    Arena scratch("scratch", plan.peak_bytes(), Memory::kDevice);
    Fp8State state({"x", "w", "dy"}, 1, 0);
    for (float& amax : state.amaxes()) amax = delayed_amax;
    state.bring_to_device(stream);
    Region region;
    const OnDevice x = values({kN, kIn}, 1), w = values({kOut, kIn}, 2), dy = values({kN, kOut}, 3);
    const OnDevice y = result(DType::bf16, {kN, kOut}), dx = result(DType::bf16, {kN, kIn});
    const OnDevice dw = put(random_tensor(DType::f32, {kOut, kIn}, 4));
    synchronize(stream);
    Traffic traffic;
    cuda::simulated_traffic = {};
    linear.forward(y, x, w, state, scratch, region, stream);
    traffic.forward = moved();
    linear.backward(dx, dw, dy, x, w, state, scratch, region, stream);
    traffic.backward = moved();
    return traffic;
  }
  // Bytes per element of x, w and dy.
  static double bytes(double x, double w, double dy) {
    return x * kN * kIn + w * kOut * kIn + dy * kN * kOut;
  }

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
TEST_F(Fp8Traffic, DelayedScalesReadEveryTensorOncePerCast) {
  const Traffic traffic = measure(Fp8Recipe::kDelayed, 1);
  EXPECT_EQ(traffic.forward, bytes(3, 3, 0));
  EXPECT_EQ(traffic.backward, bytes(3, 3, 4));
}

// The amax of x, w and dy costs one more pass over each in a step.
TEST_F(Fp8Traffic, CurrentScalesReadEveryTensorOnceMoreInAStep) {
  const Traffic traffic = measure(Fp8Recipe::kTensorwise, 0);
  EXPECT_EQ(traffic.forward, bytes(5, 5, 0));
  EXPECT_EQ(traffic.backward, bytes(3, 3, 6));
}

}  // namespace
}  // namespace ingot::testing
