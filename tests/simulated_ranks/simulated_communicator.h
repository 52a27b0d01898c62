// Communicators of simulated ranks: threads of one process in virtual time (scheduler.h).
//
// An operation is done when its last rank has started it, plus its duration on an H100 cluster by the
// planner's model (plan/network.h, each operation alone on the network), plus a random delay. Collectives of
// one group keep their order, and so do messages between two ranks; everything else may be done in any order.
// A send may be done before it is received, as MPI allows, or only afterwards. Sums are those of the MPI
// communicator, bit for bit. Outputs are filled with NaN while an operation is in progress, so that a missing
// wait is seen.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/plan/network.h"
#include "tests/simulated_ranks/planted_bugs.h"
#include "tests/simulated_ranks/scheduler.h"

namespace ingot::simulated {

struct Group;

// Cluster holds what the ranks of one attempt share.
class Cluster {
 public:
  // called_in: called where a rank starts an operation; it may kill or stop the rank.
  Cluster(Scheduler& scheduler, uint64_t seed, int ranks, Bug bug, std::function<void(int rank)> called_in);
  ~Cluster();

  // This rank's communicator of all ranks.
  std::unique_ptr<Communicator> world(int rank);
  // The rank has failed, and the memory of its operations is gone: they are never done.
  void abandon(int rank);
  TimeLimit& time_limit(int rank) { return *limits_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(limits_.size()); }

  // For the communicators.
  Group& group(const std::string& key, const std::string& name, const std::vector<int>& members);
  Scheduler& scheduler() { return scheduler_; }
  Random& random() { return random_; }
  Bug bug() const { return bug_; }
  void called(int rank) { called_(rank); }
  const Network& network() const { return network_; }

 private:
  Scheduler& scheduler_;
  Random random_;
  Bug bug_;
  std::function<void(int)> called_;
  Network network_;
  std::vector<std::unique_ptr<TimeLimit>> limits_;
  std::map<std::string, std::unique_ptr<Group>> groups_;
};

}  // namespace ingot::simulated
