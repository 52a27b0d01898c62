// DeviceFeed: what passes between the host and the stream's device in a step: batches on their way there,
// sums of losses on their way back, both through pinned memory, so that nobody waits until the sums are asked
// for. On the CPU batches are handed on as they are, and there is nothing to ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"

namespace ingot {

class DeviceFeed {
 public:
  // micros: micro-batches of a step.
  DeviceFeed(Device device, const BatchShape& shape, int64_t micros, Backing backing = Backing::kMemory);

  // The batch where the stream works, until the next call; the loader's memory is free again.
  MicroBatch send(const Batch& batch, Stream& stream);

  // Batches sent so far; and that the stream has passed so many of them, as somebody who waited knows.
  size_t sent() const { return sent_; }
  void set_passed(size_t batches) { passed_ = batches; }

  // Has the sums of the last micro-batch (Transformer::Saved) brought back.
  void bring_back(const Tensor& sums, Stream& stream);
  // What was brought back since the last call, in order; valid until the next. Waits for the stream.
  std::span<const LossSums> receive(Stream& stream);

  bool is_on_device() const { return device_ == Device::kCuda; }
  std::vector<const Arena*> arenas() const;

 private:
  struct Buffers {
    Arena device, pinned;
    MicroBatch there = {};
    std::vector<MicroBatch> batches = {};  // pinned, slots taken by turns: twice as many as are under way
    std::vector<Tensor> sums = {};         // pinned, a slot for each micro-batch
  };
  static void lay_out(Buffers& buffers, const BatchShape& shape, int64_t micros);

  Device device_;
  std::optional<Buffers> buffers_;
  std::vector<LossSums> received_;
  size_t sent_ = 0, passed_ = 0;  // batches
  size_t brought_ = 0;            // slots of sums in use
};

}  // namespace ingot
