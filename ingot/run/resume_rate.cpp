#include "ingot/run/resume_rate.h"

#include <fmt/core.h>

namespace ingot {

namespace {

constexpr double kJump = 1.2;

// Returns the rate of the last step before a position.
double last_rate(const RunPlan& plan, int64_t step, int64_t tokens, double time_s) {
  return plan.lr(plan.position(step - 1, tokens - plan.ramp().step_tokens(tokens - 1), time_s));
}

}  // namespace

std::string start_rate_warning(const StartWeights& start, const RunConfig& now) {
  if (!start.training || start.training->step < 1 || now.model.lora.rank > 0) return "";
  const auto& [before, step, tokens, spent_s] = *start.training;
  const double last = last_rate(RunPlan(before), step, tokens, spent_s);
  if (before.optimizer.rule.kind != now.optimizer.rule.kind || now.optimizer.lr <= last * kJump) return "";
  return fmt::format(
      "the learning rate rises to {:.3g}, and {} was last trained with {:.3g} (step {}): it may lose some of "
      "what it has learned{}",
      now.optimizer.lr, now.train.init_from, last, step,
      last > 0 ? fmt::format("; optimizer.lr={:.3g} continues with that rate", last) : "");
}

ResumeRate resume_rate(const RunConfig& before, const RunConfig& now, const RunPosition& next) {
  const RunPlan old_plan(before), plan(now);
  const double last = last_rate(old_plan, next.step, next.tokens, next.time_s);
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
