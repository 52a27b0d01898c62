#include "ingot/launch/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "ingot/core/error.h"
#include "ingot/core/time_limit.h"
#include "ingot/run/record/utc_time.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

constexpr double kLook_s = 0.05;  // between two looks at the job
constexpr double kAsk_s = 1;      // between two requests to end
constexpr double kAsleep_s = 2;   // a longer time between two looks means that the supervisor was stopped too
constexpr double kNaming_s = 5;   // ranks that find a hang themselves, and name it, may take so long
constexpr double kStart_s = 30;   // the ranks of a job start within so long of each other
constexpr double kVanished_s = 3;  // a job ends so soon after the end of one of its ranks, or it never will
constexpr const char* kEndPhase = "end";
constexpr const char* kNoFolder = "the run's folder was removed or renamed";

// Returns the lowest rank that has given no sign of life; nullopt if all have.
std::optional<int> first_without_sign(const std::vector<RankSign>& signs, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    if (std::ranges::find(signs, rank, &RankSign::rank) == signs.end()) return rank;
  return std::nullopt;
}

}  // namespace

int Supervisor::run() {
  for (bool is_first = true;;) {
    Watch seen;
    if (job_.signals() == 0) job_.prepare();
    if (job_.signals() > 0) return interrupted_at_start();
    job_.start();
    const JobEnd end = watch(seen);
    if (end.status == JobEnd::Status::kCompleted) return 0;
    if (end.status == JobEnd::Status::kInterrupted) return kExitInterrupted;
    const Incident incident = incident_of(end, seen);
    // A process that gets the request before it can handle it is ended by the signal.
    if (job_.signals() == 1 && !seen.lead && incident.kind == IncidentKind::kStart)
      return interrupted_at_start();
    // The first attempt did not get as far as a run: its own message says why.
    if (!seen.lead && log_.incidents().empty() && is_first && incident.kind == IncidentKind::kError)
      return incident.exit_code;
    is_first = false;
    incident_s_ = seen.gone ? seen.gone_s : job_.now_s();
    if (const std::optional<int> code = go_on(incident, seen.has_step)) return *code;
  }
}

// The exit code of an attempt that was asked to end before it had begun.
int Supervisor::interrupted_at_start() {
  const int64_t step = job_.saved_step();
  say_(step < 0 ? "nothing to save: the run has not begun"
                : fmt::format("nothing to save after the checkpoint of step {}", step));
  return kExitInterrupted;
}

// Returns when the job has ended, by itself or because it was killed.
JobEnd Supervisor::watch(Watch& seen) {
  seen.last_look_s = seen.last_change_s = job_.now_s();
  double ask_s = 0;  // when the job is asked to end; again, if it was asked
  for (bool had_lead = false;;) {
    look(seen);
    note_recovery(seen);
    if (const std::optional<JobEnd> end = job_.end()) {
      for (const RankSign& sign : job_.signs())  // what happened since the last look
        if (sign.rank == 0) see_lead(seen, sign);
      return *end;
    }
    std::optional<Incident> trouble = fault(seen);
    if (job_.signals() > 1)
      trouble = Incident{.kind = IncidentKind::kKilled, .reason = "a second signal to end"};
    if (trouble) {
      job_.kill();
      return {.status = JobEnd::Status::kFailed, .cause = *trouble};
    }
    const bool is_new = seen.lead && !had_lead;
    had_lead = seen.lead.has_value();
    if (job_.signals() > 0 && (is_new || job_.now_s() >= ask_s)) {
      job_.ask_to_end();
      ask_s = job_.now_s() + kAsk_s;
    }
    job_.pause(kLook_s);
  }
}

void Supervisor::look(Watch& seen) {
  const double now_s = job_.now_s();
  const bool was_asleep = now_s - seen.last_look_s > kAsleep_s;
  seen.last_look_s = now_s;
  seen.signs = job_.signs();
  for (const RankSign& sign : seen.signs) {
    if (sign.rank == 0) {
      if (!seen.lead || seen.lead->count != sign.count) seen.last_change_s = now_s;
      see_lead(seen, sign);
    }
    if (sign.is_gone && !seen.gone && sign.phase != kEndPhase) {
      seen.gone = sign;
      seen.gone_s = now_s;
    }
  }
  if (was_asleep) seen.last_change_s = now_s;
}

void Supervisor::see_lead(Watch& seen, const RankSign& sign) {
  seen.lead = sign;
  if (sign.first_step >= 0 && sign.step > sign.first_step) seen.has_step = true;
}

// Returns what is wrong with a job that would not end by itself.
std::optional<Incident> Supervisor::fault(const Watch& seen) {
  const double now_s = job_.now_s();
  if (seen.gone && now_s - seen.gone_s > kVanished_s)
    return Incident{.kind = IncidentKind::kKilled,
                    .rank = seen.gone->rank,
                    .host = seen.gone->host,
                    .reason = "its process is gone, and the other ranks went on"};
  const double limit_s = seen.lead ? seen.lead->limit_s : TimeLimit::kPatient_s;
  const double silent_s = now_s - seen.last_change_s;
  const double naming_s = seen.lead ? kNaming_s : kStart_s + kNaming_s;
  if (silent_s <= limit_s + (job_.ranks() > 1 ? naming_s : 0)) return std::nullopt;
  if (!job_.has_folder())
    return Incident{
        .kind = IncidentKind::kError, .reason = kNoFolder, .exit_code = exit_code(ErrorKind::kDisk)};
  Incident hang{
      .kind = IncidentKind::kHang,
      .reason = fmt::format("no sign of life for {:.3g} s{}; the limit is {:.3g} s", silent_s,
                            seen.lead ? fmt::format(" (in \"{}\")", seen.lead->phase) : "", limit_s)};
  if (const std::optional<int> missing = first_without_sign(seen.signs, job_.ranks()); seen.lead && missing) {
    hang.rank = missing;
    hang.reason = "this rank has given no sign of life; " + hang.reason;
    return hang;
  }
  // All ranks wait for the one that is furthest behind.
  const auto last = std::ranges::min_element(seen.signs, {}, [](const RankSign& sign) {
    return std::tuple(!sign.is_stopped, sign.step, sign.count);
  });
  if (last != seen.signs.end()) {
    hang.rank = last->rank;
    hang.host = last->host;
    if (last->is_stopped) hang.reason = "its process is stopped (SIGSTOP); " + hang.reason;
  }
  return hang;
}

Incident Supervisor::incident_of(const JobEnd& end, const Watch& seen) const {
  Incident incident = end.cause;
  incident.time_s = unix_now_s();
  if (seen.lead) incident.step = std::max(seen.lead->step, seen.lead->first_step);
  if (!seen.lead && incident.kind != IncidentKind::kError) incident.kind = IncidentKind::kStart;
  const auto stopped = std::ranges::find_if(seen.signs, &RankSign::is_stopped);
  const bool is_hang = incident.kind == IncidentKind::kHang;
  const RankSign* culprit = nullptr;
  if (is_hang && stopped != seen.signs.end()) culprit = &*stopped;
  if (!is_hang && seen.gone) culprit = &*seen.gone;
  if (culprit && (!incident.rank || is_hang)) {
    incident.rank = culprit->rank;
    incident.host = culprit->host;
  }
  return incident;
}

std::optional<int> Supervisor::go_on(const Incident& incident, bool has_step) {
  say_(describe(incident));
  if (!job_.has_folder()) {  // A start, and the record of the incident, would make another one.
    say_(fmt::format("the run is not started again: {}; put it back, then give the same command", kNoFolder));
    return incident.exit_code;
  }
  open_ = incident;
  write([&] { log_.add(incident); });
  if (job_.signals() > 0) return incident.exit_code;
  const RestartDecision decision =
      policy_.judge({.incident = incident, .has_step = has_step, .saved_step = job_.saved_step()});
  if (!decision.restarts) {
    open_->end = decision.why_not;
    write([&] { log_.change_last(*open_); });
    say_("the run is not started again: " + decision.why_not);
    return incident.exit_code;
  }
  say_(decision.pause_s > 0 ? fmt::format("starting again in {:.3g} s", decision.pause_s) : "starting again");
  job_.pause(decision.pause_s);
  if (job_.signals() > 0) return kExitInterrupted;
  return std::nullopt;
}

void Supervisor::note_recovery(const Watch& seen) {
  if (!open_ || !seen.has_step) return;
  open_->steps_lost = std::max<int64_t>(0, open_->step - seen.lead->first_step);
  open_->recovery_s = job_.now_s() - incident_s_;
  open_->ranks = job_.ranks();
  write([&] { log_.change_last(*open_); });
  say_(fmt::format("going on from step {} on {} rank{} after {:.1f} s; {} step{} made again",
                   seen.lead->first_step, *open_->ranks, *open_->ranks == 1 ? "" : "s", *open_->recovery_s,
                   *open_->steps_lost, *open_->steps_lost == 1 ? " is" : "s are"));
  open_.reset();
}

// A disk that refuses the incident does not end the run.
void Supervisor::write(const std::function<void()>& change) {
  try {
    change();
  } catch (const Error& error) {
    say_(error.what());
  }
}

}  // namespace ingot
