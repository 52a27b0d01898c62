// FP8 state over the steps of a run: statistics of every tensor's casts in this step and, for delayed
// scaling, the amaxes of previous steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "ingot/core/float8.h"
#include "ingot/nn/fp8_device.h"
#include "ingot/ops/cast_fp8.h"

namespace ingot {

class Fp8State {
 public:
  struct Entry {
    std::string name;  // "head.w", "blocks.0.mlp.up.x"
    Fp8Stats stats;    // counts of this step
  };

  // history: number of past steps that delayed scaling uses (0: none are kept). margin: headroom in octaves.
  Fp8State(const std::vector<std::string>& names, int64_t history, int64_t margin);

  // The tensor's statistics; casts on the CPU add to them.
  Fp8Stats& operator[](int tensor) { return entries_[static_cast<size_t>(tensor)].stats; }
  // Adds the statistics of a cast. For a cast on the device the host knows only the number of elements.
  void add(int tensor, const Fp8Stats& stats);
  const std::vector<Entry>& entries() const { return entries_; }
  Fp8Stats total() const;

  // max(format) / (largest amax of the history) / 2^margin; 0 if no step has been recorded.
  float delayed_scale(int tensor, DType format) const;

  // A device can do delayed scaling by itself. follow_history(true) precedes a step that the host does not
  // wait for: its casts use the scales on the device. At the end of such a step, next_scales sets them for
  // the next step, unless factor is NaN; the caller calls end_step after the host has received the counts.
  // follow_history(false) precedes all other steps. REQUIRES for true: can_follow_history(), i.e. every
  // tensor has a recorded amax above 0.
  bool can_follow_history() const;
  void follow_history(bool follows, Stream& stream);
  bool follows_history() const { return follows_history_; }
  void next_scales(const Tensor& factor, Stream& stream);

  // begin_step zeroes the statistics before a step; end_step appends its finite amaxes to the history.
  void begin_step();
  void end_step();

  // bring_to_device creates the state that a CUDA device holds for its casts, with room on the host for the
  // counts of as many steps as there are slots; begin_step(stream) zeroes its counts. On the CPU
  // begin_step(stream) is begin_step(), and the other functions do nothing.
  void bring_to_device(Stream& stream, size_t slots = 1);
  void begin_step(Stream& stream);
  // copy_to_host starts the copy of the current step's counts to a slot on the host; receive copies the
  // counts of a slot to entries(). REQUIRES for receive: the stream has passed the copy.
  void copy_to_host(size_t slot, Stream& stream);
  void receive(size_t slot);
  // Makes memory on the device for the codes of weights, which are then cast once per step. Without memory
  // (Backing::kAddresses) the codes only have addresses.
  struct Weight {
    int tensor;   // its index
    Shape shape;  // (out, in)
  };
  void hold_weights(const std::vector<Weight>& weights, const Stream& stream);
  // Returns the amax (1) f32 on the device from which the tensor's next cast computes its scale. While a step
  // is planned, the amax is on the host, and nothing updates it.
  Tensor next_amax(int tensor);
  // The codes of a weight, in both layouts; null if it is not held.
  const Fp8Device::Operand* held(int tensor) const;
  const Arena* held_arena() const { return held_arena_ ? &*held_arena_ : nullptr; }
  Fp8Device* device() { return device_ ? &*device_ : nullptr; }
  // Elements that the current step has cast on the device so far, by tensor. A replayed CUDA graph does
  // not count its casts, so the caller adds their elements with add_elements.
  const std::vector<int64_t>& elements() const { return elements_; }
  void add_elements(const std::vector<int64_t>& elements);

  // The amax history (tensors, history), oldest first, 0 where no step has been recorded; for checkpoints.
  std::vector<float>& amaxes() {
    is_history_sent_ = false;
    return amaxes_;
  }

 private:
  std::vector<Entry> entries_;
  int64_t history_;
  float margin_factor_;
  std::vector<float> amaxes_;
  bool follows_history_ = false;
  bool is_history_sent_ = false;  // The device's history is that of amaxes_, plus the steps in flight.
  std::optional<Fp8Device> device_;
  std::optional<Arena> held_arena_;
  std::vector<Fp8Device::Operand> held_;  // by tensor; without codes where the tensor is not held
  std::vector<int64_t> elements_;
  std::vector<std::vector<int64_t>> elements_of_slots_;  // elements_ of the steps in the device's slots
};

}  // namespace ingot
