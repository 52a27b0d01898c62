// Tensor parallelism: fills the seam nn/region.h with a group of ranks (the tp axis of the mesh). What each
// rank has is nn/tensor_share.h.
//
// Two ways through a region of N tokens, per direction (Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et
// al. 2022, arXiv:2205.05198):
//
//                      enter          leave            enter backward   leave backward
//   tokens whole       -              all_reduce       all_reduce       -
//   tokens split       all_gather     reduce_scatter   reduce_scatter   all_gather
//
// Both move the same bytes. Sums are those of comm/communicator.h: every rank gets the same bits, so what all
// ranks have (norms, positions, row-parallel biases, the residual stream) stays equal by the bit.
#pragma once

#include "ingot/comm/communicator.h"
#include "ingot/nn/region.h"
#include "ingot/nn/tensor_share.h"

namespace ingot {

class TensorRegion : public Region {
 public:
  // Borrows the group.
  explicit TensorRegion(Communicator& group) : group_(group) {}

  void sum(std::string_view name, const Tensor& t, Stream& stream) override;
  void max(std::string_view name, const Tensor& t, Stream& stream) override;
  void gather(std::string_view name, const Tensor& all, const Tensor& own, Stream& stream) override;

 protected:
  void spread(std::string_view name, const Tensor& all, const Tensor& own, Stream& stream) override;
  void collect(std::string_view name, const Tensor& own, const Tensor& partial, Stream& stream) override;

 private:
  Communicator& group_;
};

// This rank's share of a model in a group.
TensorShare tensor_share(const Communicator& group, bool splits_tokens);

}  // namespace ingot
