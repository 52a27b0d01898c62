// FluidNetwork shares the capacities of resources among the transfers in flight, max-min fairly: no
// transfer's rate can rise without lowering the rate of one that is not faster (progressive filling;
// Bertsekas & Gallager 1992, Data Networks, section 6.5.2). A transfer at rate x uses weight * x of each
// resource that it loads.
//
// Rates change only when transfers join or leave, and only among transfers that are connected to these by
// shared resources: settle() computes the rates of those components anew.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ingot/plan/network.h"

namespace ingot {

class FluidNetwork {
 public:
  explicit FluidNetwork(std::span<const double> capacities);

  // A transfer whose rate has changed.
  struct Change {
    int transfer;
    uint32_t version;  // of the rate: older ends of this transfer are void
    double end_s;      // when the transfer is done if the rate stays
  };

  // Adds a transfer of bytes > 0 and returns its number. It has no rate before settle(). loads must outlive
  // it.
  int join(double bytes, const Loads& loads, double now_s);
  // Removes a transfer; its number may be used again.
  void leave(int transfer);
  // Computes the rates that the calls since the last settle() changed. Valid until the next call.
  std::span<const Change> settle(double now_s);

  double bytes_per_s(int transfer) const { return at(transfer).rate; }
  bool is_current(int transfer, uint32_t version) const { return at(transfer).version == version; }

 private:
  struct Flow {
    const Loads* loads = nullptr;  // null if the number is free
    double bytes = 0;              // still to be moved at since_s
    double since_s = 0, rate = 0;
    double new_rate = 0;  // during settle()
    bool is_frozen = false;
    uint32_t version = 0;  // never falls, also if the number is used again
    uint64_t visit = 0;    // the last settle() that found this flow
  };
  struct Resource {
    double capacity = 0;
    double used = 0, weight = 0;  // of frozen flows, in bytes/s; sum over the other ones
    int growing = 0;              // flows that are not frozen
    bool is_dirty = false;
    uint64_t visit = 0;
    std::vector<int> flows;
  };

  const Flow& at(int flow) const { return flows_[static_cast<size_t>(flow)]; }
  Flow& at(int flow) { return flows_[static_cast<size_t>(flow)]; }
  Resource& resource(int number) { return resources_[static_cast<size_t>(number)]; }
  void mark(const Loads& loads);
  void find_component(int resource);
  void fill();
  void freeze(int flow, double rate);
  void apply(double now_s);

  std::vector<Resource> resources_;
  std::vector<Flow> flows_;
  std::vector<int> free_, dirty_;
  std::vector<int> component_resources_, component_flows_;
  std::vector<Change> changes_;
  uint64_t visit_ = 0;
};

}  // namespace ingot
