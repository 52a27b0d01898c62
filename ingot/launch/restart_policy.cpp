#include "ingot/launch/restart_policy.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Returns true if starting the same job again must end in the same way: the command, the configuration or the
// machine does not fit it.
bool is_lasting(const AttemptEnd& end) {
  if (end.has_step) return false;
  const int code = end.incident.exit_code;
  return end.incident.kind == IncidentKind::kError &&
         (code == exit_code(ErrorKind::kUsage) || code == exit_code(ErrorKind::kData) ||
          code == exit_code(ErrorKind::kMemory));
}

// Returns true if the program itself failed, so that the same reason at the same step shows that another
// attempt would fail there too. A signal from outside or a hang says nothing about the step.
bool is_own_fault(const Incident& incident) {
  return incident.kind == IncidentKind::kError || incident.kind == IncidentKind::kCrashed;
}

bool is_same(const Incident& a, const Incident& b) {
  return is_own_fault(a) && a.kind == b.kind && a.step == b.step && a.reason == b.reason;
}

}  // namespace

std::string RestartPolicy::reason_to_stop(const AttemptEnd& end) const {
  const Incident& incident = end.incident;
  if (is_lasting(end)) return "another start would end in the same way";
  if (incident.kind == IncidentKind::kStart && !before_) return "the first start gave no sign of life";
  if (before_ && is_same(before_->incident, incident))
    return fmt::format("the same step failed twice for the same reason (after step {})", incident.step);
  if (without_step_ >= kMaxWithoutStep)
    return fmt::format("the last {} attempts made no progress beyond step {}", without_step_, furthest_step_);
  if (without_checkpoint_ >= kMaxWithoutCheckpoint)
    return fmt::format(
        "{} attempts ended before they saved a checkpoint after step {}: lower checkpoint.every",
        without_checkpoint_, saved_step_);
  if (most_restarts_ && restarts_ >= *most_restarts_)
    return fmt::format("--restarts allows {}", *most_restarts_);
  return "";
}

RestartDecision RestartPolicy::judge(const AttemptEnd& end) {
  const bool is_further = end.has_step && end.incident.step > furthest_step_;
  const bool is_saved_later = end.saved_step > saved_step_;
  without_step_ = is_further || is_saved_later ? 0 : without_step_ + 1;
  without_checkpoint_ = is_saved_later ? 0 : without_checkpoint_ + 1;
  furthest_step_ = std::max(furthest_step_, end.incident.step);
  saved_step_ = std::max(saved_step_, end.saved_step);
  RestartDecision decision{.restarts = false, .pause_s = 0, .why_not = reason_to_stop(end)};
  before_ = end;
  if (!decision.why_not.empty()) return decision;
  ++restarts_;
  decision.restarts = true;
  if (without_checkpoint_ > 0)
    decision.pause_s = std::min(kLongestPause_s, std::exp2(without_checkpoint_ - 1));
  return decision;
}

}  // namespace ingot
