// A Group holds the operations in progress of a group of simulated ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/plan/network.h"
#include "tests/simulated_ranks/scheduler.h"

namespace ingot::simulated {

struct Started {
  CommOperation what;
  Task* task = nullptr;
};

struct Collective {
  std::string name;
  std::vector<Started> ranks;  // by rank in the group
  int arrived = 0, waited = 0;
  double arrived_s = 0, done_s = 0;
  bool is_eager = false, is_executed = false;
};

struct Message {
  CommOperation what;
  Task* task = nullptr;
  bool is_send = false, is_matched = false, is_buffered = false;
  std::vector<std::byte> buffer;
  double posted_s = 0, done_s = 0;
};

struct Group {
  std::string key, name;
  std::vector<int> members;         // ranks in the world
  std::optional<GroupRoute> route;  // nullopt: a group of one rank
  std::map<uint64_t, Collective> collectives;
  double last_done_s = 0;
  // Pair holds the messages from one rank to another one, both in the group.
  struct Pair {
    std::deque<std::shared_ptr<Message>> sends, receives;
    double last_done_s = 0;
    std::shared_ptr<Message> held;  // of a planted bug
    int sent = 0;
  };
  std::map<std::pair<int, int>, Pair> pairs;
  std::map<uint64_t, std::vector<std::pair<int, int>>> splits;  // color and key by rank
  bool has_resumed = false;  // a planted bug has seen the checkpoint from which the run continues
};

}  // namespace ingot::simulated
