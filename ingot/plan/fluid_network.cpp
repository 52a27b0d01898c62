#include "ingot/plan/fluid_network.h"

#include <algorithm>
#include <limits>

#include "ingot/core/error.h"

namespace ingot {

FluidNetwork::FluidNetwork(std::span<const double> capacities) : resources_(capacities.size()) {
  for (size_t r = 0; r < capacities.size(); ++r) resources_[r].capacity = capacities[r];
}

int FluidNetwork::join(double bytes, const Loads& loads, double now_s) {
  INGOT_CHECK(bytes > 0 && !loads.empty(), "FluidNetwork: a transfer of {} bytes over {} resources", bytes,
              loads.size());
  if (free_.empty()) {
    free_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
  }
  const int number = free_.back();
  free_.pop_back();
  Flow& flow = at(number);
  flow.loads = &loads;
  flow.bytes = bytes;
  flow.since_s = now_s;
  flow.rate = 0;
  for (const Load& load : loads) resource(load.resource).flows.push_back(number);
  mark(loads);
  return number;
}

void FluidNetwork::leave(int transfer) {
  Flow& flow = at(transfer);
  for (const Load& load : *flow.loads) std::erase(resource(load.resource).flows, transfer);
  mark(*flow.loads);
  flow.loads = nullptr;
  ++flow.version;
  free_.push_back(transfer);
}

void FluidNetwork::mark(const Loads& loads) {
  for (const Load& load : loads) {
    Resource& changed = resource(load.resource);
    if (!changed.is_dirty) dirty_.push_back(load.resource);
    changed.is_dirty = true;
  }
}

std::span<const FluidNetwork::Change> FluidNetwork::settle(double now_s) {
  changes_.clear();
  ++visit_;
  for (const int start : dirty_) {
    resource(start).is_dirty = false;
    if (resource(start).visit == visit_ || resource(start).flows.empty()) continue;
    find_component(start);
    fill();
    apply(now_s);
  }
  dirty_.clear();
  return changes_;
}

// Collects the flows and resources that are connected with this resource.
void FluidNetwork::find_component(int start) {
  component_flows_.clear();
  component_resources_.assign(1, start);
  resource(start).visit = visit_;
  for (size_t next = 0; next < component_resources_.size(); ++next)
    for (const int number : resource(component_resources_[next]).flows) {
      Flow& flow = at(number);
      if (flow.visit == visit_) continue;
      flow.visit = visit_;
      component_flows_.push_back(number);
      for (const Load& load : *flow.loads) {
        if (resource(load.resource).visit == visit_) continue;
        resource(load.resource).visit = visit_;
        component_resources_.push_back(load.resource);
      }
    }
}

// Raises the rates of all flows together. A flow keeps its rate once it loads a full resource; the others
// rise further.
void FluidNetwork::fill() {
  for (const int r : component_resources_) {
    resource(r).used = resource(r).weight = 0;
    resource(r).growing = 0;
  }
  for (const int f : component_flows_) {
    at(f).is_frozen = false;
    for (const Load& load : *at(f).loads) {
      resource(load.resource).weight += load.weight;
      ++resource(load.resource).growing;
    }
  }
  constexpr double kRounding = 1 + 1e-12;  // resources that fill up at the same rate but for rounding
  for (size_t growing = component_flows_.size(); growing > 0;) {
    double level = std::numeric_limits<double>::infinity();
    for (const int r : component_resources_)
      if (resource(r).growing > 0)
        level = std::min(level, (resource(r).capacity - resource(r).used) / resource(r).weight);
    INGOT_CHECK(level < std::numeric_limits<double>::infinity(), "FluidNetwork: a transfer has no limit");
    const auto is_full = [&](const Resource& r) {
      return r.growing > 0 && (r.capacity - r.used) / r.weight <= level * kRounding;
    };
    size_t frozen = 0;
    for (const int r : component_resources_) {
      if (!is_full(resource(r))) continue;
      for (const int f : resource(r).flows) {
        if (at(f).is_frozen) continue;
        freeze(f, level);
        ++frozen;
      }
    }
    INGOT_CHECK(frozen > 0, "FluidNetwork: no transfer stops at {} bytes/s", level);
    growing -= frozen;
  }
}

void FluidNetwork::freeze(int flow, double rate) {
  at(flow).is_frozen = true;
  at(flow).new_rate = rate;
  for (const Load& load : *at(flow).loads) {
    Resource& loaded = resource(load.resource);
    loaded.used += load.weight * rate;
    --loaded.growing;
    // The last flow leaves no weight, whatever the rounding.
    loaded.weight = loaded.growing == 0 ? 0 : loaded.weight - load.weight;
  }
}

void FluidNetwork::apply(double now_s) {
  for (const int f : component_flows_) {
    Flow& flow = at(f);
    if (flow.new_rate == flow.rate) continue;
    flow.bytes = std::max(0.0, flow.bytes - flow.rate * (now_s - flow.since_s));
    flow.since_s = now_s;
    flow.rate = flow.new_rate;
    changes_.push_back({f, ++flow.version, now_s + flow.bytes / flow.rate});
  }
}

}  // namespace ingot
