#include "tests/simulated_ranks/simulation.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/launch/supervisor.h"
#include "ingot/run/run.h"
#include "tests/simulated_ranks/invariants.h"
#include "tests/simulated_ranks/simulated_job.h"
#include "tests/simulated_ranks/verdict.h"

namespace ingot::simulated {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr int kMaxSupervisors = 8;     // that the user starts one after the other
constexpr unsigned kMaxReal_s = 30;    // of a seed; longer is a deadlock of real threads
constexpr double kLongest_s = 20'000;  // virtual time of a seed

int verdict_fd = -1;
Scheduler* scheduler = nullptr;  // of this process's simulation

fs::path scratch_folder() {
  std::error_code error;
  const fs::path memory = "/dev/shm";  // much faster, where it exists
  const fs::path base = fs::is_directory(memory, error) ? memory : fs::temp_directory_path();
  return base / fmt::format("ingot-simulated-ranks-{}", ::getppid());
}

void report(json verdict) {
  verdict["trace"] = scheduler->trace();
  verdict["virtual_s"] = Scheduler::current() ? scheduler->now_s() : 0;
  if (const SimulatedJob* job = simulated_job()) {
    verdict["attempts"] = job->attempts().size();
    size_t fired = 0;
    for (const Attempt& attempt : job->attempts()) fired += attempt.fired.size();
    verdict["fired"] = fired;
  }
  const std::string text = verdict.dump(-1, ' ', false, json::error_handler_t::replace);
  simulated_files() = nullptr;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::write(verdict_fd, text.data() + sent, text.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  ::_exit(0);
}

// Returns true if a supervisor may give up for this reason although only the seed's faults happened.
bool is_justified(const std::string& why) {
  for (const char* reason : {"made no progress", "the first start gave no sign of life",
                             "failed twice for the same reason", "in the same way"})
    if (why.find(reason) != std::string::npos) return true;
  return false;
}

// Runs supervisors until the run is complete.
void run_supervisors(const Scenario& scenario, const Undisturbed& undisturbed, SimulatedJob& job,
                     const fs::path& run) {
  std::string said;
  for (int count = 0; count < kMaxSupervisors; ++count) {
    job.supervisor_begins();
    require_saved_checkpoints(run, job);
    const size_t first = job.attempts().size();
    int code = -1;
    size_t earlier = 0;
    try {
      IncidentLog log(run);
      earlier = log.incidents().size();
      Supervisor supervisor(job, log, {}, [&](const std::string& line) { said += line + "\n"; });
      code = supervisor.run();
      const std::vector<Incident> incidents(log.incidents().begin() + static_cast<ptrdiff_t>(earlier),
                                            log.incidents().end());
      require_incidents(scenario, job, incidents, first);
      const bool may_end =
          code == 0 || job.signals() > 0 || incidents.empty() || is_justified(incidents.back().end);
      if (!may_end) end_seed("the supervisor gave up", said);
    } catch (const SupervisorGone&) {
    }
    if (!undisturbed.losses.empty()) require_steps(scenario, undisturbed, job);
    if (job.now_s() > kLongest_s) end_seed("the run takes too long", said);
    if (code == 0) return;
    scheduler->pass(5);
  }
  end_seed("the run is not complete", said + job.attempts().back().errors);
}

void run_scenario(const Scenario& scenario, const Undisturbed& undisturbed, Bug bug, const fs::path& root) {
  const fs::path run = root / "files" / "run";
  SimulatedJob job(*scheduler, scenario, bug, run);
  simulated_job() = &job;
  simulated_files() = &job.files();
  run_supervisors(scenario, undisturbed, job, run);
  require_saved_checkpoints(run, job);
  json verdict = {{"kind", ""}};
  if (undisturbed.losses.empty()) {  // this is the undisturbed run
    std::vector<double> losses;
    for (const Update& update : job.attempts().back().updates[0]) losses.push_back(update.loss);
    verdict["losses"] = losses;
    verdict["operations"] = job.attempts().back().operations;
    verdict["save_calls"] = job.attempts().back().save_calls;
  } else {
    require_complete_run(scenario, undisturbed, job, run);
  }
  report(verdict);
}

void write_text_file(const fs::path& path) {
  Random random(7);
  constexpr const char* kWords[] = {"the ", "cat ", "sat ", "on ", "a ", "mat.\n", "dog ", "ran "};
  std::string text;
  for (int i = 0; i < 700; ++i) text += kWords[random.below(8)];
  write_file(path, text);
}

// Runs in a child process: killed ranks and what they hold vanish with it.
json run_child(const Scenario& scenario, const Undisturbed& undisturbed, Bug bug) {
  int ends[2];
  if (::pipe(ends) != 0) return {{"kind", "pipe"}};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    verdict_fd = ends[1];
    ::alarm(kMaxReal_s);
    scheduler = new Scheduler(scenario.seed ^ 0xba70);  // its threads never end
    scheduler->adopt("supervisor", 400'000'000);
    try {
      run_scenario(scenario, undisturbed, bug, scratch_folder() / std::to_string(scenario.seed));
    } catch (const std::exception& error) {
      end_seed("an exception", error.what());
    }
    ::_exit(1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  json verdict = json::parse(text, nullptr, false);
  if (verdict.is_object()) return verdict;
  return {
      {"kind", WIFSIGNALED(status) ? fmt::format("a crash (signal {})", WTERMSIG(status)) : "no verdict"}};
}

const Undisturbed& undisturbed_of(int layout, const fs::path& text) {
  static std::map<int, Undisturbed> known;
  if (const auto found = known.find(layout); found != known.end()) return found->second;
  Scenario scenario;
  scenario.seed = 1'000'000'000 + static_cast<uint64_t>(layout);
  scenario.layout = layout;
  scenario.config = config_of(layout, text);
  const json verdict = run_child(scenario, {}, Bug::kNone);
  if (!verdict.contains("losses")) throw std::runtime_error("the undisturbed run failed: " + verdict.dump());
  return known[layout] = {.losses = verdict["losses"],
                          .operations = verdict["operations"],
                          .save_calls = verdict["save_calls"]};
}

}  // namespace

void end_seed(std::string_view kind, const std::string& text) {
  report({{"kind", kind}, {"text", text}});
  ::_exit(1);
}

Outcome run_seed(uint64_t seed, Bug bug) {
  const fs::path folder =
      scratch_folder().parent_path() / fmt::format("ingot-simulated-ranks-{}", ::getpid());
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder);
  write_text_file(folder / "text.txt");
  set_num_threads(1);
  const Undisturbed& undisturbed = undisturbed_of(layout_of(seed), folder / "text.txt");
  const Scenario scenario = scenario_of(seed, folder / "text.txt", undisturbed);
  const json verdict = run_child(scenario, undisturbed, bug);
  fs::remove_all(folder, error);
  return {.kind = verdict.value("kind", "no verdict"),
          .text = verdict.value("text", ""),
          .scenario = scenario.text(),
          .trace = verdict.value("trace", uint64_t{0}),
          .virtual_s = verdict.value("virtual_s", 0.0),
          .attempts = verdict.value("attempts", 0),
          .fired = verdict.value("fired", 0)};
}

}  // namespace ingot::simulated
