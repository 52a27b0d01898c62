// MeshUpdate: the seam optim/shared_update.h for a mesh of ranks; the distributed Muon (after Jordan et al.
// 2024, whose owners were chosen by turns).
//
// Every matrix has an owner among all ranks that hold it, replicas or shards or both, chosen so that the
// costs of the owners' matrices are nearly equal. The work goes in rounds, one matrix of each owner at a
// time:
//
//   collect   the owner's replica puts the whole matrix together at the owner, from the pieces of the ranks
//   that
//             share the weights (all_to_all, f32)
//   compute   the owner alone orthogonalises it
//   return    each rank that shares the weights gets the direction of its piece (all_to_all), and all
//   replicas
//             get each other's (all_gather_into a buffer [replicas, pieces]), in bf16 or f32
//   apply     everyone moves its elements along what was returned, the owner too: all have the same bits
//
// Collecting round k + 1 and returning round k - 1 go on while round k computes. Replicas alone (parallel.dp)
// have nothing to collect, shards alone (parallel.fsdp, parallel.tp) nothing to gather. Messages of a round
// have the size of its largest piece; owners that have run out of matrices send padding.
//
// What is kept: the momentum of a rank's elements only where the owner's replica needs it (of replicas: at
// the owner alone), NorMuon's second moments at the owner.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/optim/shared_update.h"

namespace ingot {

// For each of `owners` the indices of its tasks, dearest first: every task, from the dearest on, to the owner
// with the least so far; of equals to the first.
std::vector<std::vector<size_t>> assign_by_cost(std::span<const double> costs, int owners);

class MeshUpdate final : public SharedUpdate {
 public:
  // Borrows both. weights: the ranks that share one copy of the weights; replicas: those with the same
  // pieces. payload: the dtype in which directions travel, bf16 or f32.
  MeshUpdate(Communicator& weights, Communicator& replicas, DType payload)
      : weights_(weights), replicas_(replicas), payload_(payload) {}

  void sum(const Tensor& t) override { weights_.all_reduce("update sums", t); }
  void max(const Tensor& t) override { weights_.all_reduce("update maxima", t, ReduceOp::kMax); }
  std::vector<Keeps> plan(std::vector<MatrixTask> tasks) override;
  size_t scratch_bytes() const override;
  void run(MatrixWork& work, Arena& scratch, Stream& stream) override;

  // Seconds that each round of the last step waited for others.
  const std::vector<double>& waits_s() const { return waits_s_; }
  // Of the largest owner's cost to the mean.
  double imbalance() const { return imbalance_; }

 private:
  struct Task {
    MatrixTask given;
    int replica = -1, rank = -1;           // the owner's; none where no rank here has elements
    std::vector<std::vector<Box>> pieces;  // of each rank that shares the weights
    std::vector<bool> is_counted;          // whether it has elements that no rank before it has
  };
  // Of one round, in every owner's place (replica * ranks + rank); -1: it has none.
  struct Round {
    std::vector<int> tasks;
    int64_t piece = 0;  // elements of a message
  };
  struct Buffers {
    Tensor matrix;          // f32, the largest
    Tensor sent, received;  // (ranks * piece) f32, where weights are shared
    Tensor outgoing, own;   // (ranks * piece) payload: to the pieces, and from the owners of this replica
    Tensor all;             // (replicas, ranks * piece) payload; without replicas: own

    Buffers(const MeshUpdate& update, Arena& arena);
  };
  struct Step;

  int ranks() const { return weights_.size(); }
  int task_of(const Round& round, int replica, int rank) const {
    const int owner = replica * ranks() + rank;
    return round.tasks[static_cast<size_t>(owner)];
  }
  void exchange_pieces();
  void make_rounds();

  Communicator &weights_, &replicas_;
  DType payload_;
  std::vector<Task> tasks_;
  std::vector<Round> rounds_;
  std::vector<std::string> names_;  // of the rounds' collectives, three each
  int64_t largest_piece_ = 0, largest_matrix_ = 0;
  double imbalance_ = 1;
  std::vector<double> waits_s_;
};

}  // namespace ingot
