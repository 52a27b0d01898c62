#include "ingot/sweep/sweep_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <thread>

#include "ingot/config/run_plan.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/run/record/run_status.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{20}, kLook{500};

}  // namespace

SweepRunner::SweepRunner(const SweepSpec& spec, const std::vector<SweepRun>& runs,
                         const SweepOptions& options, Console& console,
                         const std::atomic<bool>& is_interrupted)
    : spec_(spec), runs_(runs), options_(options), console_(console), is_interrupted_(is_interrupted) {
  make_folders(options_.out / "runs");
  make_folders(options_.out / "logs");
  for (size_t i = 0; i < runs_.size(); ++i) {
    lengths_.push_back({runs_[i].setting, RunPlan(runs_[i].config).steps()});
    results_.push_back(read_run_result(folder(i)));
    if (results_[i].status == "failed") results_[i].status = "interrupted";
    steps_at_begin_ += static_cast<double>(results_[i].steps);
  }
}

std::optional<double> SweepRunner::loss_at(size_t run, int64_t steps) const {
  const RunResult& result = results_[run];
  if (result.status == "diverged" || result.status == "failed")
    return std::numeric_limits<double>::infinity();
  if (result.status == "completed" && steps >= lengths_[run].steps) return result.val_loss;
  const auto found = result.evaluations.find(steps);
  if (result.status == "running" || steps >= lengths_[run].steps || found == result.evaluations.end())
    return std::nullopt;
  return found->second;
}

HalvingTargets SweepRunner::targets() const {
  return halving_targets(lengths_, options_.halving_eta,
                         [this](size_t run, int64_t steps) { return loss_at(run, steps); });
}

size_t SweepRunner::free_place() const {
  std::set<size_t> taken;
  for (const auto& [run, child] : children_) taken.insert(child.place);
  size_t place = 0;
  while (taken.contains(place)) ++place;
  return place;
}

void SweepRunner::start(size_t run, int64_t target) {
  const bool is_resume = can_resume(folder(run));
  if (!is_resume) fs::remove_all(folder(run));  // what a run that was killed before its first checkpoint left
  const int64_t stop_at = target < lengths_[run].steps ? target : 0;
  const std::vector<std::string> train =
      train_arguments(spec_, runs_[run], folder(run).string(), options_.jobs.threads, stop_at, is_resume);
  std::vector<std::string> words = {options_.program.string()};
  if (runs_[run].config.parallel.ranks() > 1)
    words.insert(words.end(), {"launch", "--restarts", "0", "--mpirun", options_.launcher, "--"});
  words.insert(words.end(), train.begin(), train.end());
  const size_t place = free_place();
  children_[run] = {
      .program = std::make_unique<ChildProgram>(words, errors(run), options_.jobs.places[place]),
      .target = target,
      .place = place,
      .begin = Clock::now()};
  results_[run].status = "running";
}

// Returns true if anything remains to be done.
bool SweepRunner::start_what_can() {
  const HalvingTargets all = targets();
  bool remains = false;
  for (size_t run = 0; run < runs_.size(); ++run) {
    if (all.steps[run] == 0) continue;
    remains = true;
    if (results_[run].status == "running" || children_.size() >= options_.jobs.places.size()) continue;
    start(run, all.steps[run]);
  }
  return remains;
}

// A sweep that was killed leaves runs that are still saving; they are waited for.
void SweepRunner::look_at_others() {
  for (size_t run = 0; run < runs_.size(); ++run)
    if (results_[run].status == "running" && !children_.contains(run))
      results_[run] = read_run_result(folder(run));
}

void SweepRunner::judge_end(size_t run, const Child& child, int code) {
  RunResult result = read_run_result(folder(run));
  const bool has_diverged = code == exit_code(ErrorKind::kNumerics);
  if (has_diverged) result.status = "diverged";
  if (code != 0 && code != kExitInterrupted && !has_diverged) {
    result.status = "failed";
    result.exit_code = code;
    result.error = last_error(errors(run));
    constexpr int kSignal = 128;
    if (code > kSignal && is_ending_)  // the child was asked to end before it could save anything
      result.status = "interrupted";
    else if (code > kSignal)
      result.error =
          fmt::format("signal {} ended the process; if memory ran out, take fewer --jobs", code - kSignal);
    else if (result.error.empty())
      result.error = fmt::format("the process ended with exit code {}", code);
  }
  results_[run] = std::move(result);
  if (code == 0 && !loss_at(run, child.target)) {
    results_[run].status = "failed";
    results_[run].exit_code = exit_code(ErrorKind::kInternal);
    results_[run].error = fmt::format("there is no evaluation after step {}", child.target);
  }
}

void SweepRunner::report(size_t run, const Child& child) {
  const RunResult& result = results_[run];
  const auto ended = std::ranges::count_if(results_, [](const RunResult& r) { return r.is_over(); });
  std::string what = result.status;
  if (const auto loss = loss_at(run, child.target);
      loss && result.status != "diverged" && result.status != "failed")
    what = fmt::format("val loss {:.4f} after step {}", *loss, result.steps);
  else if (result.status == "failed")
    what += ": " + result.error;
  else
    what += fmt::format(" after step {}", result.steps);
  console_.line(fmt::format("[{}/{}] {} seed={} | {} | {}", ended, runs_.size(),
                            setting_text(spec_, runs_[run]), runs_[run].seed, what,
                            format_time(std::chrono::duration<double>(Clock::now() - child.begin).count())));
}

// Returns true if a run has ended.
bool SweepRunner::reap() {
  bool has_ended = false;
  for (auto it = children_.begin(); it != children_.end();) {
    const std::optional<int> code = it->second.program->poll();
    if (!code) {
      ++it;
      continue;
    }
    judge_end(it->first, it->second, *code);
    report(it->first, it->second);
    it = children_.erase(it);
    has_ended = true;
  }
  return has_ended;
}

void SweepRunner::show_progress() {
  if (!console_.is_live()) return;
  double steps = 0, all = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    const auto status = results_[run].status == "running" ? read_run_status(folder(run)) : std::nullopt;
    const auto length = static_cast<double>(lengths_[run].steps);
    all += length;
    steps +=
        results_[run].is_over() ? length : static_cast<double>(status ? status->steps : results_[run].steps);
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double made = steps - steps_at_begin_;
  const auto ended = std::ranges::count_if(results_, [](const RunResult& r) { return r.is_over(); });
  std::string text = fmt::format("{} of {} runs ended, {} train | {:.1f}%", ended, runs_.size(),
                                 children_.size(), 100 * steps / std::max(all, 1.0));
  if (made > 0) text += " | eta " + format_time(elapsed * (all - steps) / made);
  console_.live(text);
}

SweepRunner::End SweepRunner::run(const std::function<void()>& on_change) {
  bool is_late = false;
  while (true) {
    is_late |=
        options_.budget_s > 0 && Clock::now() - begin_ > std::chrono::duration<double>(options_.budget_s);
    if ((is_late || is_interrupted_) && !is_ending_) {
      is_ending_ = true;
      for (auto& [run, child] : children_) child.program->signal(SIGTERM);
    }
    if (reap()) on_change();
    const bool remains = is_ending_ || start_what_can();
    if (!remains) return End::kComplete;
    if (is_ending_ && children_.empty()) break;
    if (Clock::now() > next_look_) {
      next_look_ = Clock::now() + kLook;
      look_at_others();
      show_progress();
    }
    std::this_thread::sleep_for(kPoll);
  }
  for (const int64_t left : targets().steps)
    if (left > 0) return is_interrupted_ ? End::kInterrupted : End::kOutOfBudget;
  return End::kComplete;
}

}  // namespace ingot
