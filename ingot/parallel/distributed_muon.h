// DistributedMuon implements the interface optim/update_comm.h for a mesh of ranks: distributed Muon
// (after Jordan et al. 2024, who chose owners round-robin).
//
// Every matrix has one owner among all ranks that hold it, whether as replicas, shards or both. Owners
// are chosen so that the costs of their matrices are nearly equal. The work runs in rounds, with one
// matrix of each owner per round:
//
//   collect   the ranks of the owner's replica send their shards of the matrix to the owner (all_to_all, f32)
//   compute   the owner orthogonalises the matrix
//   return    each rank of that replica gets its shard of the direction (all_to_all); then replicas exchange
//             them (all_gather_into a buffer [replicas, shards]); both in bf16 or f32
//   apply     every rank, including the owner, updates its elements from the returned direction, so all
//             replicas have the same bits
//
// Round k computes while round k + 1 is collected and round k - 1 is returned. With replicas only
// (parallel.dp) there is nothing to collect; with shards only (parallel.fsdp, parallel.tp) there is
// nothing to gather. All messages of a round have the size of its largest shard; owners that have run out
// of matrices send padding.
//
// On a device the groups must carry its tensors (comm/device_group.h). Over NCCL a message waits for the
// stream's work that fills it and runs concurrently with the products of the next matrix. The stream waits
// for it, not the host.
//
// State: a rank stores the momentum of its elements only if it belongs to the owner's replica (with
// replicas only, the owner alone stores it). The owner stores NorMuon's second moments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/optim/update_comm.h"

namespace ingot {

// Returns the indices of the tasks of each of `owners`, most expensive first. Tasks are assigned from the
// most expensive to the cheapest, each to the owner with the lowest cost so far; ties go to the first
// owner.
std::vector<std::vector<size_t>> assign_by_cost(std::span<const double> costs, int owners);

class DistributedMuon final : public UpdateComm {
 public:
  // Borrows both groups. weights: the ranks that hold one copy of the weights together; replicas: the
  // ranks that hold the same shards. payload: the dtype in which directions travel, bf16 or f32.
  DistributedMuon(Communicator& weights, Communicator& replicas, DType payload)
      : weights_(weights), replicas_(replicas), payload_(payload) {}

  void sum(const Tensor& t) override { weights_.all_reduce("update sums", t); }
  void max(const Tensor& t) override { weights_.all_reduce("update maxima", t, ReduceOp::kMax); }
  std::vector<StatePlacement> plan(std::vector<MatrixTask> tasks) override;
  size_t scratch_bytes(Memory memory) const override;
  void run(MatrixWork& work, Arena& scratch, Stream& stream) override;

 private:
  struct Task {
    MatrixTask given;
    int replica = -1, rank = -1;            // the owner's place; -1 if no rank here has elements
    std::vector<std::vector<Rect>> shards;  // shards of each rank of the weights group
    std::vector<bool> is_added;             // per rank: true if it has elements that no earlier rank has
  };
  // The tasks of one round, indexed by owner (replica * ranks + rank); -1 if the owner has none.
  struct Round {
    std::vector<int> tasks;
    int64_t shard = 0;  // elements of a message
  };
  struct Buffers {
    Tensor matrix;          // f32, for the largest matrix
    Tensor sent, received;  // (ranks * shard) f32, if the weights are sharded
    Tensor outgoing, own;   // (ranks * shard) payload: to the shards, and from this replica's owners
    Tensor all;             // (replicas, ranks * shard) payload; empty without replicas

    Buffers(const DistributedMuon& update, Arena& arena);
  };
  struct Step;

  int ranks() const { return weights_.size(); }
  int task_of(const Round& round, int replica, int rank) const {
    const int owner = replica * ranks() + rank;
    return round.tasks[static_cast<size_t>(owner)];
  }
  void exchange_shards();
  void make_rounds();

  Communicator &weights_, &replicas_;
  DType payload_;
  std::vector<Task> tasks_;
  std::vector<Round> rounds_;
  std::vector<std::string> names_;  // names of the rounds' collectives, three per round
  int64_t largest_shard_ = 0, largest_matrix_ = 0;
};

}  // namespace ingot
