// CommLog records when this rank's operations were started, ran and were waited for, for measurements and
// traces. Any thread may write. REQUIRES for take(): no operation is in progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ingot/comm/communicator.h"

namespace ingot {

class CommLog {
 public:
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::string group, name;
    CommOperation::Kind kind = CommOperation::Kind::kBarrier;
    int64_t bytes = 0;                         // of this rank's input
    int peer = 0;                              // as in CommOperation
    uint64_t number = 0;                       // number of operations that this rank started earlier
    Clock::time_point started, begun, ended;   // the caller starts it; a message begins at once
    Clock::time_point wait_begun, wait_ended;  // when the caller waited
    double ran_s() const { return std::chrono::duration<double>(ended - begun).count(); }
    double waited_s() const { return std::chrono::duration<double>(wait_ended - wait_begun).count(); }
  };

  // Each records a time of operation `ticket` of a group. `name` is the operation's name or a description.
  void started(const void* group, uint64_t ticket, const std::string& group_name, const std::string& name,
               const CommOperation& operation);
  void begun(const void* group, uint64_t ticket);
  void ended(const void* group, uint64_t ticket);
  void waited(const void* group, uint64_t ticket, Clock::time_point since);

  // Returns how many operations have been started.
  uint64_t operations() const;

  // Returns and removes the operations that have been waited for, in the order of their waits.
  std::vector<Event> take();

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<const void*, uint64_t>, Event> running_;
  std::vector<Event> done_;
  uint64_t started_ = 0;
};

}  // namespace ingot
