#include "tests/simulated_ranks/invariants.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/run/record/run_status.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/simulated_ranks/verdict.h"

namespace ingot::simulated {
namespace fs = std::filesystem;
namespace {

constexpr double kTolerance =
    1e-6;  // tolerance of losses after a change of the layout, as in elastic_ranks_test

constexpr const char* kNoCause = "no fault explains it";

bool is_same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool fits(double loss, double wanted, bool is_exact) {
  return is_exact ? is_same(loss, wanted) : std::abs(loss - wanted) <= kTolerance * std::abs(wanted);
}

bool is_fatal(Fault::Kind kind) {
  return kind != Fault::Kind::kStraggle && kind != Fault::Kind::kFullDisk &&
         kind != Fault::Kind::kWriteError && kind != Fault::Kind::kInterrupt &&
         kind != Fault::Kind::kSupervisorKill;
}

IncidentKind kind_of(Fault::Kind kind) {
  if (kind == Fault::Kind::kCrash) return IncidentKind::kCrashed;
  return kind == Fault::Kind::kStop ? IncidentKind::kHang : IncidentKind::kKilled;
}

// Returns why the incident is not what the attempt's faults did; empty if it is.
std::string mismatch(const Scenario& scenario, const Attempt& attempt, const Incident& incident) {
  const auto is_interrupt = [](const Fault& f) { return f.kind == Fault::Kind::kInterrupt; };
  if (std::ranges::count_if(attempt.fired, is_interrupt) > 1 && incident.kind == IncidentKind::kKilled)
    return "";  // the second signal kills the job
  // A rank may be killed while another one is stopped: then the death is seen first.
  auto fault = std::ranges::find_if(
      attempt.fired, [](const Fault& f) { return is_fatal(f.kind) && f.kind != Fault::Kind::kStop; });
  if (fault == attempt.fired.end())
    fault = std::ranges::find_if(attempt.fired, [](const Fault& f) { return is_fatal(f.kind); });
  if (fault == attempt.fired.end())
    return attempt.had_disk_trouble && incident.kind == IncidentKind::kError ? "" : kNoCause;
  const IncidentKind wanted = kind_of(fault->kind);
  // A rank may end in an error of the full disk before the fatal fault is seen.
  if (incident.kind == IncidentKind::kError && attempt.had_disk_trouble) return "";
  if (incident.kind != wanted && incident.kind != IncidentKind::kStart)
    return fmt::format("its kind should be {}", ingot::name(wanted));
  if (incident.rank == fault->rank) return "";
  const bool same_host = incident.rank && *incident.rank / kRanksPerHost == fault->rank / kRanksPerHost;
  if (fault->kind == Fault::Kind::kHostLost && same_host) return "";
  // From heartbeats alone the supervisor cannot tell which of the silent ranks waits for which.
  // Before rank 0's first heartbeat it can tell no rank at all.
  const bool is_told =
      scenario.has_watchdog || (scenario.sees_processes && incident.kind != IncidentKind::kStart);
  if (fault->kind == Fault::Kind::kStop && !is_told) return "";
  return fmt::format("its rank should be {}", fault->rank);
}

}  // namespace

void require_saved_checkpoints(const fs::path& run, const SimulatedJob& job) {
  if (job.saved().empty()) return;
  std::string damage;
  const auto newest =
      newest_good_checkpoint(run / "checkpoints", [&](const fs::path& path, const std::string& what) {
        damage += fmt::format("{}: {}; ", path.filename().string(), what);
      });
  const int64_t saved = *job.saved().rbegin();
  if (!newest || newest->step < saved)
    end_seed("a saved checkpoint is lost",
             fmt::format("step {} was reported as saved, the newest good checkpoint is of step {}; {}", saved,
                         newest ? newest->step : -1, damage));
  if (job.has_damaged() || job.saved().size() < 2) return;
  const auto is_good = [](const Checkpoint& checkpoint) {
    return verify_checkpoint(checkpoint.path).empty();
  };
  const auto good = std::ranges::count_if(list_checkpoints(run / "checkpoints"), is_good);
  constexpr int kKept = 2;  // checkpoint.keep
  if (good < kKept)
    end_seed("a saved checkpoint is lost",
             fmt::format("{} were saved, but {} good one is left", job.saved().size(), good));
}

void require_steps(const Scenario& scenario, const Undisturbed& undisturbed, const SimulatedJob& job) {
  bool is_exact = true;
  for (size_t number = 0; number < job.attempts().size(); ++number) {
    const Attempt& attempt = job.attempts()[number];
    is_exact = is_exact && attempt.layout.ranks() == scenario.config.parallel.ranks();
    for (size_t rank = 0; rank < attempt.updates.size(); ++rank) {
      int64_t step = attempt.first_step;
      for (const Update& update : attempt.updates[rank]) {
        ++step;
        if (update.step != step)
          end_seed("a step is lost or repeated",
                   fmt::format("attempt {}, rank {}: step {} came where step {} was due", number, rank,
                               update.step, step));
        const double wanted = undisturbed.losses.at(static_cast<size_t>(step - 1));
        if (!fits(update.loss, wanted, is_exact))
          end_seed("a loss differs", fmt::format("attempt {}, rank {}, step {}: {:.17g}, undisturbed {:.17g}",
                                                 number, rank, step, update.loss, wanted));
      }
    }
  }
}

void require_complete_run(const Scenario& scenario, const Undisturbed& undisturbed, const SimulatedJob& job,
                          const fs::path& run) {
  const bool is_exact = std::ranges::all_of(job.attempts(), [&](const Attempt& attempt) {
    return attempt.layout.ranks() == scenario.config.parallel.ranks();
  });
  int64_t step = 0;
  const RunConfig& config = scenario.config;
  const int64_t step_tokens = config.train.batch_size * config.train.grad_accum * config.model.context;
  for (const MetricsRow& row : read_metrics(run / "metrics.jsonl")) {
    const std::optional<double> loss = row.number("loss"), tokens = row.number("tokens");
    if (!loss) continue;
    ++step;
    if (static_cast<int64_t>(row.number("step").value_or(-1)) != step)
      end_seed(
          "a step is lost or repeated in metrics.jsonl",
          fmt::format("step {} is recorded where step {} was due", row.number("step").value_or(-1), step));
    if (static_cast<int64_t>(tokens.value_or(-1)) != step * step_tokens)
      end_seed("samples are lost or repeated",
               fmt::format("{} tokens after step {}", tokens.value_or(-1), step));
    if (!fits(*loss, undisturbed.losses.at(static_cast<size_t>(step - 1)), is_exact))
      end_seed("a loss differs", fmt::format("step {} in metrics.jsonl", step));
  }
  if (step != config.train.steps)
    end_seed("a step is lost or repeated in metrics.jsonl", fmt::format("{} steps are recorded", step));
  const auto newest = newest_good_checkpoint(run / "checkpoints", {});
  if (!newest || newest->step != config.train.steps)
    end_seed("a saved checkpoint is lost", "the last step's checkpoint is missing");
  const auto status = read_run_status(run);
  if (!status || status->status != "completed") end_seed("the run is not complete", "by its run.json");
}

void require_incidents(const Scenario& scenario, const SimulatedJob& job,
                       const std::vector<Incident>& incidents, size_t first) {
  size_t next = 0;
  for (size_t number = first; number < job.attempts().size(); ++number) {
    const Attempt& attempt = job.attempts()[number];
    if (!attempt.has_failed) continue;
    if (next == incidents.size()) {
      // The first start may end before there is a run; its own message says why then.
      if (number == first && attempt.had_disk_trouble) continue;
      end_seed("an incident is missing", fmt::format("of attempt {}", number));
    }
    const Incident& incident = incidents[next++];
    const std::string why = mismatch(scenario, attempt, incident);
    if (!why.empty())
      end_seed(why == kNoCause ? "an incident without a cause" : "the culprit is not named",
               fmt::format("attempt {}: \"{}\": {}\n{}", number, describe(incident), why, attempt.errors));
  }
  if (next < incidents.size()) end_seed("an incident without a cause", describe(incidents[next]));
}

}  // namespace ingot::simulated
