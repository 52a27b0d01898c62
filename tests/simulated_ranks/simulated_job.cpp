#include "tests/simulated_ranks/simulated_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/launch/elastic.h"
#include "ingot/launch/job_errors.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/record/heartbeat.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/simulated_ranks/verdict.h"

namespace ingot::simulated {
namespace fs = std::filesystem;
namespace {

constexpr int kFirstPid = 500'000'000;  // above every real one

int pid_of(size_t attempt, int rank) { return kFirstPid + 1000 * static_cast<int>(attempt) + rank; }

// As in apps/train.cpp: rank 0 opens the run's folder, then every other rank opens its subfolder.
std::unique_ptr<RunFolder> open_folder(const fs::path& run, bool is_resume, Communicator& world) {
  std::unique_ptr<RunFolder> folder;
  if (world.rank() == 0) folder = std::make_unique<RunFolder>(run, is_resume);
  std::string out = folder ? folder->path().string() : "";
  world.broadcast_text(out, 0);
  if (world.rank() > 0) folder = RunFolder::of_rank(out, world.rank());
  return folder;
}

}  // namespace

std::string host_of(int rank) { return fmt::format("node{}", rank / kRanksPerHost); }

SimulatedJob*& simulated_job() {
  static SimulatedJob* job = nullptr;
  return job;
}

SimulatedJob::SimulatedJob(Scheduler& scheduler, const Scenario& scenario, Bug bug, fs::path run)
    : scheduler_(scheduler),
      scenario_(scenario),
      bug_(bug),
      random_(scenario.seed ^ 0x0b0b0b0b),
      run_(std::move(run)),
      layout_(scenario.config.parallel) {
  const fs::path root = run_.parent_path(), aside = root.parent_path() / "aside";
  fs::create_directories(root);
  fs::create_directories(aside);
  files_ = std::make_unique<SimulatedFiles>(scheduler, scenario.seed ^ 0xf11e, root, aside, bug,
                                            [this](int rank, const std::string& path) {
                                              called(rank, path.find("/checkpoints/") != std::string::npos);
                                            });
  away_until_.resize(static_cast<size_t>((layout_.ranks() + kRanksPerHost - 1) / kRanksPerHost), 0);
}

SimulatedJob::~SimulatedJob() = default;

void SimulatedJob::supervisor_begins() {
  signals_ = 0;
  if (std::exchange(is_supervisor_killed_, false) && !has_lost_power_) wait_for_ranks();
  if (!has_lost_power_) return;
  has_lost_power_ = false;
  end_ranks();
  files_->cut_power();
}

// After the death of its supervisor, the launcher tells the ranks to end.
void SimulatedJob::wait_for_ranks() {
  ask_to_end();
  const auto has_ended = [](const Task* task) {
    return task->state == Task::State::kDone || task->state == Task::State::kDead;
  };
  while (!std::ranges::all_of(tasks_, has_ended) && !death_ && !stopped_ && !has_lost_power_) {
    check_progress();
    scheduler_.pass(0.05);
  }
  scheduler_.pass(1);
  end_ranks();
}

int64_t SimulatedJob::saved_step() {
  const std::vector<Checkpoint> saved = list_checkpoints(run_ / "checkpoints");
  return saved.empty() ? -1 : saved.front().step;
}

void SimulatedJob::choose_hosts() {
  int slots = 0;
  for (size_t host = 0; host < away_until_.size(); ++host)
    if (static_cast<int>(attempts_.size()) >= away_until_[host]) slots += kRanksPerHost;
  const std::optional<ParallelConfig> layout = layout_for(scenario_.config, slots);
  has_too_few_slots_ = !layout;
  if (bug_ == Bug::kStaleLayout) {
    has_too_few_slots_ = slots < layout_.ranks();
    return;
  }
  if (layout) layout_ = *layout;
}

void SimulatedJob::start() {
  if (will_damage_) damage_newest();
  will_damage_ = false;
  choose_hosts();
  const auto count = static_cast<size_t>(layout_.ranks());
  const auto good = newest_good_checkpoint(run_ / "checkpoints", {});
  attempts_.push_back({.layout = layout_,
                       .first_step = good ? good->step : 0,
                       .updates = std::vector<std::vector<Update>>(count),
                       .operations = std::vector<int64_t>(count, 0),
                       .save_calls = std::vector<std::vector<int64_t>>(count),
                       .fired = {},
                       .had_disk_trouble = files_->may_fail(),
                       .errors = {}});
  death_.reset();
  stopped_.reset();
  tasks_.clear();
  signs_.clear();
  calls_seen_ = 0;
  told_s_.assign(count, kNever_s);
  is_interrupted_.assign(count, false);
  if (has_too_few_slots_) {
    attempt().errors = "There are not enough slots available in the system\n";
    return launcher_sees(1);
  }
  clusters_.push_back(std::make_unique<Cluster>(scheduler_, random_.next(), static_cast<int>(count), bug_,
                                                [this](int rank) { called(rank, false); }));
  told_to_end_.clear();
  const bool is_one_late = random_.chance(0.1);
  for (int rank = 0; rank < static_cast<int>(count); ++rank) {
    told_to_end_.push_back(std::make_unique<std::atomic<bool>>(false));
    const double start_s = now_s() + random_.between(0, 0.5) + (is_one_late && rank == 1 ? 20 : 0);
    tasks_.push_back(&scheduler_.spawn(fmt::format("rank {}", rank), rank, pid_of(attempts_.size(), rank),
                                       start_s, [this, rank] { run_rank(rank); }));
  }
}

void SimulatedJob::run_rank(int rank) {
  set_num_threads(1);
  std::unique_ptr<Communicator> world = clusters_.back()->world(rank);
  std::optional<Mesh> mesh;  // outlives an error, as in apps/ranks.cpp
  try {
    RunConfig config = scenario_.config;
    config.parallel = attempt().layout;
    // As LocalJob::command().
    const bool is_resume = !list_checkpoints(run_ / "checkpoints").empty();
    config.checkpoint.is_made_at_start = !is_resume;
    mesh.emplace(Mesh::make(*world, mesh_shape(config.parallel)));
    Console console([](std::string_view) {}, 0);
    const std::unique_ptr<RunFolder> folder = open_folder(run_, is_resume, *world);
    folder->heartbeat().beat(0, TimeLimit::Phase::kStart, world->time_limit().seconds());
    TrainOutcome outcome;
    try {
      outcome =
          run_training(config, *folder, is_resume, console, *told_to_end_[static_cast<size_t>(rank)], *mesh);
    } catch (...) {
      clusters_.back()->abandon(rank);
      folder->remove_failed_start();
      throw;
    }
    is_interrupted_[static_cast<size_t>(rank)] = outcome.status == TrainOutcome::Status::kInterrupted;
    world->barrier("the job ends");
  } catch (const Error& error) {
    clusters_.back()->abandon(rank);
    if (rank > 0) scheduler_.pass(1);  // as let_rank_zero_report_first()
    note_error(rank, error.what(), exit_code(error.kind()));
  } catch (const std::exception& error) {
    clusters_.back()->abandon(rank);
    note_error(rank, error.what(), exit_code(ErrorKind::kInternal));
  }
}

void SimulatedJob::note_error(int rank, const std::string& text, int exit_code) {
  attempt().errors += fmt::format("ingot: rank {} of {}: {}\n", rank, ranks(), text);
  launcher_sees(exit_code);
  // The rank waits for its end.
  scheduler_.block();
}

void SimulatedJob::launcher_sees(int exit_code) {
  if (!death_) death_ = {exit_code, now_s() + random_.between(0.02, 0.4)};
}

// The watchdog of the ranks (comm/mpi_watchdog.h): an operation that takes too long ends the job.
void SimulatedJob::watch_operations() {
  if (!scenario_.has_watchdog || death_ || bug_ == Bug::kHelperBeats) return;
  const auto waits_s = [&](const Task& task) {
    return task.state == Task::State::kBlocked && !task.waits_for.empty() ? now_s() - task.waits_since_s : -1;
  };
  const auto teller = std::ranges::find_if(tasks_, [&](const Task* task) {
    return waits_s(*task) > clusters_.back()->time_limit(task->rank).seconds();
  });
  if (teller == tasks_.end()) return;
  std::string& errors = attempt().errors;
  errors += fmt::format(
      "ingot: rank {} of {}: an operation is late (more than {:.3g} s, by parallel.timeout = "
      "\"auto\"); every rank's last ones:\n",
      (*teller)->rank, ranks(), clusters_.back()->time_limit((*teller)->rank).seconds());
  for (const Task* task : tasks_) {
    std::string text = "world: done with everything";
    if (waits_s(*task) >= 0) text = fmt::format("{} for {:.3g} s", task->waits_for, waits_s(*task));
    if (task->is_stopped) text = "does not answer";
    errors += fmt::format("  rank {}: {}\n", task->rank, text);
  }
  launcher_sees(1);
}

// Ends the seed if the ranks wait for each other, or if a hang is not seen.
void SimulatedJob::check_progress() {
  if (death_ || tasks_.empty()) return;
  if (stopped_) {
    constexpr double kNaming_s = 5, kSlack_s = 5, kStart_s = 30;
    double limit_s = 0;
    bool has_lead = false;
    for (int rank = 0; rank < ranks(); ++rank)
      limit_s = std::max(limit_s, clusters_.back()->time_limit(rank).seconds());
    // A rank that is stopped while it writes a sign leaves the one before it, with its limit.
    for (const RankSign& sign : signs()) {
      limit_s = std::max(limit_s, sign.limit_s);
      has_lead = has_lead || sign.rank == 0;
    }
    if (!has_lead) limit_s += kStart_s;
    if (now_s() > stopped_->second + limit_s + kNaming_s + kSlack_s)
      end_seed("a hang is not seen",
               fmt::format("rank {} has been stopped for {:.0f} s; the limit is {:.0f} s", stopped_->first,
                           now_s() - stopped_->second, limit_s));
    return;
  }
  bool has_blocked = false;
  for (const Task* task : tasks_) {
    if (task->state == Task::State::kReady) return;
    has_blocked = has_blocked || task->state == Task::State::kBlocked;
  }
  if (!has_blocked) return;
  std::string text;
  for (const Task* task : tasks_)
    text += fmt::format("{}: {}\n", task->name,
                        task->state == Task::State::kBlocked ? "waits in " + task->waits_for : "has ended");
  end_seed("deadlock", text);
}

void SimulatedJob::end_ranks() {
  for (Task* task : tasks_) {
    if (task->state == Task::State::kDone) continue;
    files_->close_all(*task);
    scheduler_.kill(*task);
  }
}

std::optional<JobEnd> SimulatedJob::end() {
  if (is_supervisor_gone()) throw SupervisorGone{};
  const bool all_done = !tasks_.empty() && std::ranges::all_of(tasks_, [](const Task* task) {
    return task->state == Task::State::kDone;
  });
  if (all_done)
    return JobEnd{.status = std::ranges::count(is_interrupted_, true) > 0 ? JobEnd::Status::kInterrupted
                                                                          : JobEnd::Status::kCompleted};
  watch_operations();
  check_progress();
  if (!death_ || now_s() < death_->seen_s) return std::nullopt;
  std::string& errors = attempt().errors;
  for (const Task* task : tasks_)  // mpirun's SIGTERM reaches the ranks that wait
    if (task->state == Task::State::kBlocked && !task->waits_for.empty())
      errors += fmt::format("ingot: rank {} of {}: told to end, and waits for other ranks: {} for {:.3g} s\n",
                            task->rank, ranks(), task->waits_for, now_s() - task->waits_since_s);
  end_ranks();
  attempt().has_failed = true;
  JobEnd end{.status = JobEnd::Status::kFailed, .cause = cause_in(errors).value_or(Incident{})};
  end.cause.exit_code = death_->exit_code;
  if (end.cause.reason.empty())
    end.cause.reason = fmt::format("the launcher ended with exit code {}", death_->exit_code);
  return end;
}

void SimulatedJob::kill() {
  end_ranks();
  attempt().has_failed = true;
}

std::vector<RankSign> SimulatedJob::signs() {
  if (is_supervisor_gone()) throw SupervisorGone{};
  if (files_->calls() != calls_seen_) {
    calls_seen_ = files_->calls();
    signs_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto sign = read_heartbeat(rank == 0 ? run_ : run_ / "ranks" / std::to_string(rank));
      if (!sign || sign->process.pid != pid_of(attempts_.size(), rank)) continue;
      signs_.push_back({.rank = rank,
                        .host = host_of(rank),
                        .phase = sign->phase,
                        .count = sign->count,
                        .step = sign->step,
                        .first_step = sign->first_step,
                        .limit_s = sign->limit_s});
    }
  }
  for (RankSign& sign : signs_) {
    const Task& task = *tasks_[static_cast<size_t>(sign.rank)];
    sign.is_stopped = scenario_.sees_processes && task.is_stopped;
    sign.is_gone = scenario_.sees_processes && task.state == Task::State::kDead;
    if (bug_ == Bug::kHelperBeats) sign.count = static_cast<int64_t>(now_s() * 10);
  }
  return signs_;
}

void SimulatedJob::ask_to_end() {
  for (double& told_s : told_s_) told_s = now_s() + random_.between(0, 0.3);
}

void SimulatedJob::pause(double seconds) {
  const int before = signals_;
  const double end_s = now_s() + seconds;
  while (now_s() < end_s && signals_ == before && !is_supervisor_gone())
    scheduler_.pass(std::min(0.05, std::max(1e-6, end_s - now_s())));
  if (is_supervisor_gone()) throw SupervisorGone{};
}

void SimulatedJob::made_update(int64_t step, double loss) {
  attempt().updates[static_cast<size_t>(Scheduler::current()->rank)].push_back({step, loss});
}

}  // namespace ingot::simulated
