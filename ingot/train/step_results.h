// StepResults carries the results of asynchronous steps, which the devices of all ranks check together
// (optim/cuda_step_check.h), back to the host through pinned memory. The host reads a step's losses and
// norm while the device runs the next step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/ops/loss_sums.h"
#include "ingot/train/executor.h"

namespace ingot {

namespace cuda {
class Event;
}  // namespace cuda

class StepResults {
 public:
  // The ranks that judge a step together.
  struct Ranks {
    int64_t count = 1;
    Communicator* group =
        nullptr;  // all ranks, for tensors on the device (borrowed); null on a single rank and in a plan
    bool counts_squares = true, counts_losses = true;  // cuda::RankCounts
  };

  // micros: the most micro-batches of a step. REQUIRES: a build with CUDA and a device.
  StepResults(int64_t micros, const Ranks& ranks, Backing backing = Backing::kMemory);

  // Adds the sums of the current step's next micro-batch (Transformer::Saved::sums).
  void add(const Tensor& sums, Stream& stream);
  // Ends the current step and submits its check, in which all ranks take part. slot: its own among the steps
  // in flight (kStepSlots). parts: Optimizer::squares_on_device. Returns the factor (1) f32 of its update, in
  // device memory, which is the same on every rank.
  Tensor check_step(size_t slot, const Tensor& parts, double expected_tokens, double clip_limit,
                    Stream& stream);

  struct Step {
    LossTotals sums = {};  // over all micro-batches of all ranks
    double norm = 0;
    bool is_bad = false;  // this step or one before it was not finite, and it made no update
  };
  // Blocks until the step in a slot has finished and returns its results.
  Step wait(size_t slot);
  // Lets steps make updates again, after a bad one. Waits for the stream, so no step is in flight then.
  void reset(Stream& stream);

  std::vector<const Arena*> arenas() const { return {&device_, &pinned_}; }

 private:
  struct Slot {
    Tensor verdict = {};                    // pinned
    std::shared_ptr<cuda::Event> is_there;  // shared_ptr, because builds without CUDA cannot destroy an Event
  };

  int64_t micros_;
  Ranks ranks_;
  Arena device_, pinned_;
  // In device memory: sums of the micro-batches, those of this rank, those of all ranks, and the verdict.
  Tensor sums_ = {}, own_ = {}, all_ = {}, verdict_ = {};
  std::array<Slot, kStepSlots> slots_;
  int64_t added_ = 0;
};

}  // namespace ingot
