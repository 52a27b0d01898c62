// The times and the order of every rank's operations, as JSON: what bench/smpi.py compares between real and
// simulated ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ingot/comm/comm_log.h"
#include "ingot/comm/communicator.h"

namespace ingot {

struct StepBegin {
  CommLog::Clock::time_point time;
  uint64_t number = 0;  // of the step's first operation (CommLog::Event)
};

// One rank's operations during some steps.
struct OperationTimes {
  std::span<const CommLog::Event> events;
  std::span<const StepBegin> begins;
};

// Rank 0 prints {ranks, layout, step_s, losses, operations: [{rank, step, group, name, kind, bytes, peer,
// start_s, end_s, wait_s}]}. Every rank's operations are in the order in which it started them. Times are
// seconds since the rank began the step; wait_s is how long the rank waited for the operation. All ranks of
// `world` call it.
void print_operations(const OperationTimes& own, const std::string& layout, double step_s,
                      const std::vector<double>& losses, Communicator& world);

}  // namespace ingot
