// CommReducer implements the interface train/reduce.h over a group of ranks. Sums are taken in rank
// order.
#pragma once

#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/train/reduce.h"

namespace ingot {

class CommReducer : public Reducer {
 public:
  explicit CommReducer(Communicator& group) : group_(group) {}

  void sum(std::span<double> values) override;
  void max(std::span<double> values) override;
  void broadcast(std::string& text, int from) override;
  int rank() const override { return group_.rank(); }
  int ranks() const override { return group_.size(); }

 private:
  // Returns all ranks' values; values[i] of rank r is at [r * n + i].
  std::span<const double> gather(std::span<double> values, const char* name);

  Communicator& group_;
  std::vector<double> all_;
};

}  // namespace ingot
