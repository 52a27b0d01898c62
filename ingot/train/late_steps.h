// LateSteps: what a step that a device judges by itself (optim/cuda_verdict.h) leaves behind, and its way
// back to the host through pinned memory, so that the host reads a step's losses and norm while the device
// makes the next step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/ops/loss_sums.h"

namespace ingot {

namespace cuda {
class Event;
}  // namespace cuda

class LateSteps {
 public:
  static constexpr size_t kUnderWay = 2;

  // Of up to `micros` micro-batches. REQUIRES: a build with CUDA and a device.
  explicit LateSteps(int64_t micros, Backing backing = Backing::kMemory);

  // Of the step that begins: the sums of its micro-batches (Transformer::Saved::sums) in their order.
  void add(const Tensor& sums, Stream& stream);
  // Ends it. parts: Optimizer::squares_on_device. The factor (1) f32 for its update, on the device. REQUIRES:
  // fewer than kUnderWay steps are under way.
  Tensor judge(const Tensor& parts, double expected_tokens, double clip_limit, Stream& stream);

  struct Step {
    std::span<const LossTotals> sums;  // of the micro-batches; valid until two more steps have been judged
    double norm = 0;
    bool is_bad = false;  // it, or one before it, was not finite, and made no update
  };
  // Waits for the oldest step under way.
  Step wait();
  size_t under_way() const { return judged_ - read_; }
  // After a bad one: forgets those under way. Waits for the stream.
  void forgive(Stream& stream);

  std::vector<const Arena*> arenas() const { return {&device_, &pinned_}; }

 private:
  struct Slot {
    Tensor sums = {}, verdict = {};         // pinned
    std::shared_ptr<cuda::Event> is_there;  // shared: builds without CUDA cannot destroy one
    std::vector<LossTotals> read = {};
    int64_t micros = 0;
  };

  int64_t micros_;
  Arena device_, pinned_;
  Tensor sums_ = {}, verdict_ = {};  // on the device
  std::array<Slot, kUnderWay> slots_;
  int64_t added_ = 0;
  size_t judged_ = 0, read_ = 0;  // steps
};

}  // namespace ingot
