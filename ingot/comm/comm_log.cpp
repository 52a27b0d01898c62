#include "ingot/comm/comm_log.h"

namespace ingot {

void CommLog::started(const void* group, uint64_t ticket, const std::string& group_name,
                      const std::string& name, const CommOperation& operation) {
  const std::lock_guard lock(mutex_);
  Event& event = running_[{group, ticket}];
  event = {};
  event.group = group_name;
  event.name = name;
  event.kind = operation.kind;
  event.bytes = static_cast<int64_t>(operation.in.bytes());
  event.peer = operation.peer;
  event.number = started_++;
  event.started = event.begun = Clock::now();
}

void CommLog::begun(const void* group, uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  running_[{group, ticket}].begun = Clock::now();
}

void CommLog::ended(const void* group, uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  running_[{group, ticket}].ended = Clock::now();
}

void CommLog::waited(const void* group, uint64_t ticket, Clock::time_point since) {
  const std::lock_guard lock(mutex_);
  const auto place = running_.find({group, ticket});
  if (place == running_.end()) return;  // it was started before this log was in use
  Event& event = place->second;
  event.wait_begun = since;
  event.wait_ended = Clock::now();
  if (event.ended < event.begun) event.ended = event.wait_ended;  // messages have no end of their own
  done_.push_back(std::move(event));
  running_.erase(place);
}

uint64_t CommLog::operations() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

std::vector<CommLog::Event> CommLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

}  // namespace ingot
