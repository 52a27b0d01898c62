// DeviceFeed moves a step's data between the host and the stream's device: it sends batches to the device
// and brings sums of losses back, both through pinned memory, so the host does not wait until it asks for
// the sums. On the CPU it passes batches through unchanged, and there are no sums to bring back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"
#include "ingot/train/executor.h"

namespace ingot {

class DeviceFeed {
 public:
  // micros: micro-batches per step.
  DeviceFeed(Device device, const BatchShape& shape, int64_t micros, Backing backing = Backing::kMemory);

  // Called before the first batch of a step. slot: ExecutorStep::slot.
  void begin_step(size_t slot);

  // Returns the batch in the stream's memory, valid until the next call. The caller may reuse the
  // loader's memory. Its cu_seqlens, on a device, have room for a power of two of documents (or for as many
  // as there may be), which never shrinks, so that few plans and graphs depend on it; empty if the batch has
  // too many documents.
  MicroBatch send(const Batch& batch, Stream& stream);
  // Returns the most elements of cu_seqlens.
  static int64_t max_cu_seqlens(const BatchShape& shape);

  // Memory for what a graph's dropout reads (ops/dropout.h). REQUIRES: is_on_device().
  const Tensor& dropout_place() const { return buffers_->place; }

  // Starts the copy of the last micro-batch's sums (Transformer::Saved) to the host.
  void copy_to_host(const Tensor& sums, Stream& stream);
  // Waits for the stream and returns the sums brought back since the last call, in order. Valid until the
  // next call.
  std::span<const LossSums> receive(Stream& stream);

  bool is_on_device() const { return device_ == Device::kCuda; }
  std::vector<const Arena*> arenas() const;

 private:
  struct Buffers {
    Arena device, pinned;
    MicroBatch there = {};
    Tensor place = {};
    std::vector<MicroBatch> batches = {};  // pinned, one per micro-batch of each of kStepSlots steps
    std::vector<Tensor> sums = {};         // pinned, one slot per micro-batch
  };
  // Sends the first rows of the documents through `slot`, and returns them on the device.
  Tensor send_cu_seqlens(const Tensor& slot, const Tensor& doc_start, Stream& stream);
  static void lay_out(Buffers& buffers, const BatchShape& shape, int64_t micros);

  Device device_;
  std::optional<Buffers> buffers_;
  std::vector<LossSums> received_;
  size_t micros_;
  size_t begin_ = 0, sent_ = 0;  // the first of the step's batches, and those that the stream may read
  size_t brought_ = 0;           // slots of sums in use
  int64_t documents_ = 0;        // that cu_seqlens have room for
};

}  // namespace ingot
