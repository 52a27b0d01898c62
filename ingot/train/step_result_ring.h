// StepResultRing carries the results of asynchronous steps, which the device checks itself
// (optim/cuda_step_check.h), back to the host through pinned memory. The host reads a step's losses and
// norm while the device runs the next step.
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

class StepResultRing {
 public:
  static constexpr size_t kDepth = 2;

  // micros: the most micro-batches of a step. REQUIRES: a build with CUDA and a device.
  explicit StepResultRing(int64_t micros, Backing backing = Backing::kMemory);

  // Adds the sums of the current step's next micro-batch (Transformer::Saved::sums).
  void add(const Tensor& sums, Stream& stream);
  // Ends the current step and submits its check. parts: Optimizer::squares_on_device. Returns the factor
  // (1) f32 of its update, in device memory. REQUIRES: fewer than kDepth steps are in flight.
  Tensor judge(const Tensor& parts, double expected_tokens, double clip_limit, Stream& stream);

  struct Step {
    std::span<const LossTotals>
        sums;  // sums of the micro-batches; valid until two more steps have been judged
    double norm = 0;
    bool is_bad = false;  // this step or one before it was not finite, and it made no update
  };
  // Blocks until the oldest step in flight has finished and returns its results.
  Step wait();
  size_t in_flight() const { return judged_ - read_; }
  // Forgets all steps in flight. Call it after a bad step. Waits for the stream.
  void reset(Stream& stream);

  std::vector<const Arena*> arenas() const { return {&device_, &pinned_}; }

 private:
  struct Slot {
    Tensor sums = {}, verdict = {};         // pinned
    std::shared_ptr<cuda::Event> is_there;  // shared_ptr, because builds without CUDA cannot destroy an Event
    std::vector<LossTotals> read = {};
    int64_t micros = 0;
  };

  int64_t micros_;
  Arena device_, pinned_;
  Tensor sums_ = {}, verdict_ = {};  // in device memory
  std::array<Slot, kDepth> slots_;
  int64_t added_ = 0;
  size_t judged_ = 0, read_ = 0;  // numbers of steps
};

}  // namespace ingot
