// FP8 over the steps of a training run: what the casts of every tensor did in this step, and for delayed
// scaling the largest values of the steps before.
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
    Fp8Stats stats;    // of this step
  };

  // history: steps that delayed scaling looks back on (0: nothing is kept); margin: octaves it leaves.
  Fp8State(const std::vector<std::string>& names, int64_t history, int64_t margin);

  // On the CPU, casts add to it.
  Fp8Stats& operator[](int tensor) { return entries_[static_cast<size_t>(tensor)].stats; }
  // What a cast did, as far as the host knows: of a device's, the number of elements.
  void add(int tensor, const Fp8Stats& stats);
  const std::vector<Entry>& entries() const { return entries_; }
  Fp8Stats total() const;

  // max(format) / (largest amax of the last steps) / 2^margin; 0 while no step has been seen.
  float delayed_scale(int tensor, DType format) const;

  // Before a step: counts from zero. After it: its amaxes (finite ones) enter the history.
  void begin_step();
  void end_step();

  // Where a CUDA device does the casting, its part of the state. On the CPU begin_step is that without a
  // stream, and the others do nothing.
  void bring_to_device(Stream& stream);
  void begin_step(Stream& stream);
  // bring_back ends the step at hand. receive: of up to two such steps the oldest becomes what entries() say;
  // REQUIRES: the stream has passed it. forget: none of them will.
  void bring_back(Stream& stream);
  void receive();
  void forget() { brought_.clear(); }
  Fp8Device* device() { return device_ ? &*device_ : nullptr; }
  // Elements that the step at hand has cast so far, by tensor, on a device; kernels that are launched as a
  // graph are casts that nobody adds.
  const std::vector<int64_t>& elements() const { return elements_; }
  void add_elements(const std::vector<int64_t>& elements);

  // The history, (tensors, history) oldest first, 0 where there is none yet; for checkpoints.
  std::vector<float>& amaxes() { return amaxes_; }

 private:
  std::vector<Entry> entries_;
  int64_t history_;
  float margin_factor_;
  std::vector<float> amaxes_;
  std::optional<Fp8Device> device_;
  std::vector<int64_t> elements_;
  struct Brought {
    size_t slot;
    std::vector<int64_t> elements;
  };
  std::vector<Brought> brought_;
};

}  // namespace ingot
