// Tensor parallelism: TensorRegion implements the interface nn/region.h with a group of ranks (the tp dim
// of the mesh). nn/tensor_parallel.h defines each rank's shard.
//
// A region of N tokens uses these collectives (Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et al.
// 2022, arXiv:2205.05198):
//
//                      enter          leave            enter backward   leave backward
//   tokens whole       -              all_reduce       all_reduce       -
//   tokens split       all_gather     reduce_scatter   reduce_scatter   all_gather
//
// Both rows move the same bytes. Sums follow comm/communicator.h: every rank gets the same bits, so
// tensors that all ranks hold (norms, positions, row-parallel biases, the residual stream) stay
// bit-identical.
#pragma once

#include "ingot/comm/communicator.h"
#include "ingot/nn/region.h"
#include "ingot/nn/tensor_parallel.h"

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

// Returns this rank's place in the tensor-parallel group.
TensorParallel tensor_parallel(const Communicator& group, bool splits_tokens);

}  // namespace ingot
