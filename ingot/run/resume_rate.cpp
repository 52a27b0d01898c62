#include "ingot/run/resume_rate.h"

#include <fmt/core.h>

namespace ingot {

ResumeRate resume_rate(const RunConfig& before, const RunConfig& now, const RunPosition& next) {
  constexpr double kJump = 1.2;
  const RunPlan old_plan(before), plan(now);
  const int64_t last_tokens = old_plan.ramp().step_tokens(next.tokens - 1);
  const double last = old_plan.lr(old_plan.position(next.step - 1, next.tokens - last_tokens, next.time_s));
  const double coming = plan.lr(next);
  ResumeRate rate{.text = fmt::format("learning rate: {:.3g} at step {}, {:.3g} at step {}", last, next.step,
                                      coming, next.step + 1)};
  const bool is_planned = before.optimizer.lr != now.optimizer.lr || old_plan.lr(next) == coming;
  rate.is_jump = !is_planned && (coming > last * kJump || coming * kJump < last);
  if (!rate.is_jump) return rate;
  rate.text += ", because the schedule is another one now";
  if (last == 0 || coming == 0) return rate;
  rate.text += fmt::format("; to go on from where it was, --set optimizer.lr={:.3g}{}",
                           now.optimizer.lr * last / coming,
                           now.optimizer.groups.empty() ? "" : " and the lr of groups in proportion");
  return rate;
}

}  // namespace ingot
