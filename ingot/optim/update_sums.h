// UpdateSums adds up what the optimizer reports about its parameters: the squares of the gradients for their
// norm, and the totals of updates. Every order of summation depends only on the parameters' sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/optim/rule.h"

namespace ingot {

class UpdateSums {
 public:
  virtual ~UpdateSums() = default;

  // Returns the norm of all gradients. Synchronises with the stream.
  virtual double grad_norm(Stream& stream) = 0;
  // On a CUDA device, starts to sum the squares and returns their partial sums (kSquareParts) f32
  // (optim/cuda_update.h) without waiting for them. On the CPU, the result is empty.
  virtual Tensor squares(Stream& stream) = 0;
  // Gives the update of a parameter the place of its totals.
  virtual void place_totals(ParamUpdate& update, size_t param) = 0;
  // Returns the totals of each parameter in the last step, which wanted them. Synchronises with the stream.
  virtual std::vector<RangeTotals> totals(Stream& stream) = 0;
  // Number of gradients that the rules skipped in the last step.
  virtual int64_t non_finite() const = 0;
};

// params (borrowed) stay where they are. A plan (Backing::kAddresses) computes no sums; on a device it has
// their memory.
std::unique_ptr<UpdateSums> make_update_sums(std::vector<const OptimParam*> params, Device device,
                                             Backing backing);

}  // namespace ingot
