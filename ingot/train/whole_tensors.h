// WholeTensors: masters and optimizer states of a training as whole tensors, one at a time, for rank 0 to
// write. Where ranks keep pieces (TrainingStore::is_sharded), all of them put a tensor together: rank 0 says
// which one, the others answer until it is done.
#pragma once

#include <cstddef>
#include <vector>

#include "ingot/core/staging.h"
#include "ingot/train/trainer.h"

namespace ingot {

// The logical tensor of which this rank has `part`: a parameter's numbers or state, one per element, or
// anything else of a parameter that is whole here.
Shape full_shape(const ParamSpec& spec, const Shape& part);

// to = elements [begin, end) of this rank's part of the parameter, out of all of `full`, each of
// element_bytes.
void copy_part(std::byte* to, const std::byte* full, const ParamSpec& spec, int64_t begin, int64_t end,
               size_t element_bytes);

class WholeTensors {
 public:
  explicit WholeTensors(Trainer& trainer) : trainer_(trainer), pieces_(trainer.params().pieces()) {}

  // Rank 0 alone. Valid until the next of them. master: f32, in the parameter's shape; state: number `k` of
  // Optimizer::states. REQUIRES: TrainingStore::expand_masters before a master.
  Tensor master(int id) { return ask(static_cast<size_t>(id)); }
  Tensor state(size_t k) { return ask(pieces_.size() + k); }
  // Rank 0, after the last one.
  void finish();

  // All other ranks: returns when rank 0 finishes.
  void answer();

 private:
  Tensor ask(size_t number);
  Tensor make(size_t number);

  Trainer& trainer_;
  Staging staging_;
  std::vector<ParamPiece> pieces_;
};

}  // namespace ingot
