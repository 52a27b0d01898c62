// ingot sweep: trains a configuration with several values of its keys, and tells which is best.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/ranks.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/config_units.h"
#include "ingot/config/device_support.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/core/process/child_program.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/run/record/folder_lock.h"
#include "ingot/run/run.h"
#include "ingot/run/thread_count.h"
#include "ingot/sweep/result_json.h"
#include "ingot/sweep/sweep_files.h"
#include "ingot/sweep/sweep_jobs.h"
#include "ingot/sweep/sweep_runner.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

struct SweepArguments {
  SweepSpec spec;
  std::vector<std::string> vary;
  int64_t jobs = 0;
  std::string budget, out, launcher = "mpirun --bind-to none";
  double halving_eta = 1;
  bool is_quiet = false, is_json = false, is_dry = false;
};

[[noreturn]] void refuse_folder(const std::string& out, const std::string& why) {
  fail(ErrorKind::kUsage, "{} holds a sweep {}; choose another --out", out, why);
}

// Adds what an earlier call into the same folder varied, and refuses a folder of another sweep.
void join_earlier(const SweepArguments& arguments, const SweepRecord& earlier, SweepRecord& record) {
  if (earlier.base_hash != record.base_hash)
    refuse_folder(arguments.out, "of another configuration: " + earlier.command);
  std::vector<Vary>& vary = record.spec.vary;
  bool has_same_keys = vary.size() == earlier.spec.vary.size();
  for (size_t i = 0; has_same_keys && i < vary.size(); ++i)
    has_same_keys = vary[i].key == earlier.spec.vary[i].key;
  if (!has_same_keys) refuse_folder(arguments.out, "over other keys: " + earlier.command);
  if (earlier.halving_eta != record.halving_eta)
    refuse_folder(arguments.out, "with another --halving: " + earlier.command);
  for (size_t i = 0; i < vary.size(); ++i) merge(vary[i], earlier.spec.vary[i]);
  record.spec.seeds = std::max(record.spec.seeds, earlier.spec.seeds);
  record.threads = earlier.threads;
}

std::string continuing_command(const SweepArguments& arguments, const SweepRecord& record) {
  std::vector<std::string> words = sweep_words(record.spec);
  for (const Vary& vary : record.spec.vary) {
    std::string values;
    for (const std::string& value : vary.values) values += (values.empty() ? "" : ",") + value;
    words.insert(words.end(), {"--vary", vary.key + "=" + values});
  }
  if (record.spec.seeds > 1) words.insert(words.end(), {"--seeds", std::to_string(record.spec.seeds)});
  if (record.halving_eta > 1) words.insert(words.end(), {"--halving", fmt::format("{}", record.halving_eta)});
  words.insert(words.end(), {"--out", arguments.out});
  return shell_line(words);
}

// Returns "12 runs, 2 at a time with 4 threads each", with the ranks and GPUs of a run if it has several.
std::string jobs_text(size_t runs, const SweepJobs& jobs) {
  std::string text = fmt::format("{} run{}, {} at a time with ", runs, runs == 1 ? "" : "s", jobs.jobs);
  if (jobs.ranks > 1) text += fmt::format("up to {} ranks of ", jobs.ranks);
  text += fmt::format("{} threads each", jobs.threads);
  for (size_t i = 0; i < jobs.places.size(); ++i)
    for (const std::string& assignment : jobs.places[i].environment)
      text += fmt::format("{}{}", i == 0 ? "; " : ", ", assignment);
  return text;
}

void print_dry_run(const SweepRecord& record, const std::vector<SweepRun>& runs, const SweepJobs& jobs) {
  for (const SweepRun& run : runs) fmt::print("{} seed={}\n", setting_text(record.spec, run), run.seed);
  fmt::print("{}; the largest takes {}\n", jobs_text(runs.size(), jobs),
             format_bytes(static_cast<double>(jobs.run_bytes)));
}

// Throws if runs failed, with the exit code of the first.
void require_success(const SweepSpec& spec, const std::vector<SweepRun>& runs,
                     const std::vector<RunResult>& results) {
  size_t failed = 0, first = 0;
  for (size_t i = results.size(); i-- > 0;)
    if (results[i].status == "failed") {
      ++failed;
      first = i;
    }
  if (failed == 0) return;
  fmt::print(stderr,
             "ingot: {} of {} runs failed; the first, {} seed={}: {}\nthe same command tries them again\n",
             failed, runs.size(), setting_text(spec, runs[first]), runs[first].seed, results[first].error);
  constexpr int kLastErrorCode = 6;
  const int code = results[first].exit_code;
  throw Exit{code > 0 && code <= kLastErrorCode ? code : exit_code(ErrorKind::kInternal)};
}

std::string default_folder(const std::string& source) { return "sweeps/" + fs::path(source).stem().string(); }

void sweep(SweepArguments arguments) {
  if (is_launched())
    fail(ErrorKind::kUsage,
         "a sweep starts its runs itself, each with its ranks: start it without mpirun or srun");
  SweepRecord record;
  record.spec = arguments.spec;
  record.halving_eta = arguments.halving_eta;
  for (const std::string& text : arguments.vary) record.spec.vary.push_back(parse_vary(text));
  const RunConfig base = base_config(record.spec);
  if (base.data.train.empty())
    fail(ErrorKind::kUsage,
         "no text to train on: give --data FILE (or data.train), or start from the preset demo");
  require_device(base);
  require_threads(base.train);
  record.base_hash = config_hash(base);
  if (record.halving_eta != 1 && record.halving_eta < 2)
    fail(ErrorKind::kUsage, "--halving must be 2 or more, got {}", record.halving_eta);
  double budget_s = 0;
  if (!arguments.budget.empty()) {
    budget_s = parse_duration_s(arguments.budget).value_or(0);
    if (budget_s <= 0)
      fail(ErrorKind::kUsage, "--budget: wanted a time such as 30m or 8h, got \"{}\"", arguments.budget);
  }
  if (record.halving_eta > 1 && base.train.max_time_s > 0)
    fail(ErrorKind::kUsage,
         "--halving compares runs after equal parts of their steps; train.max_time must be 0");
  if (arguments.out.empty()) arguments.out = default_folder(record.spec.source);
  if (const auto earlier = read_sweep_record(arguments.out)) join_earlier(arguments, *earlier, record);
  const std::vector<SweepRun> runs = sweep_runs(record.spec);
  const SweepJobs jobs = plan_jobs(record.spec, runs, static_cast<int>(arguments.jobs), record.threads,
                                   {.cores = num_threads(),
                                    .memory = host_memory_limit(),
                                    .cpus = allowed_cpus(),
                                    .gpus = visible_gpus()});
  record.threads = jobs.threads;
  record.command = continuing_command(arguments, record);
  if (arguments.is_dry) return print_dry_run(record, runs, jobs);

  const StopSignals signals([](const char* name) {
    fmt::print(stderr, "{}: the runs save and end; the same command goes on\n", name);
  });
  const std::unique_ptr<Console> console =
      arguments.is_quiet ? Console::quiet()
                         : Console::standard({.fd = arguments.is_json ? STDERR_FILENO : STDOUT_FILENO,
                                              .is_stop_requested = &signals.is_stop_requested()});
  make_folders(arguments.out);
  const FolderLock lock(arguments.out);
  SweepRunner runner(record.spec, runs,
                     {.program = this_program(),
                      .launcher = arguments.launcher,
                      .out = arguments.out,
                      .jobs = jobs,
                      .halving_eta = record.halving_eta,
                      .budget_s = budget_s},
                     *console, signals.is_stop_requested());
  const auto write = [&] { write_sweep_files(arguments.out, record, runs, runner.results()); };
  write();
  console->line(fmt::format("{} | folder {}", jobs_text(runs.size(), jobs), arguments.out));
  const SweepRunner::End end = runner.run(write);
  write();
  if (arguments.is_json)
    fmt::print("{}", sweep_json(record, runs, runner.results()));
  else
    console->line("\n" + sweep_markdown(record, runs, runner.results()) + "\nwritten: " + arguments.out +
                  "/report.html");
  if (end != SweepRunner::End::kComplete) {
    console->line(fmt::format("{}; go on with the same command", end == SweepRunner::End::kInterrupted
                                                                     ? "interrupted"
                                                                     : "the budget is used up"));
    throw Exit{kExitInterrupted};
  }
  require_success(record.spec, runs, runner.results());
}

constexpr const char* kSweepFooter =
    "A run is a process of its own, `ingot train`, in DIR/runs; one with several ranks is `ingot launch`. "
    "A sweep that\n"
    "was ended or killed goes on when the same command is given again; other values of the same keys, or "
    "more seeds,\n"
    "are added.\n"
    "\n"
    "--halving ETA trains all settings for a part of their steps, continues the best 1/ETA of them by mean "
    "validation\n"
    "loss, and so on, until one has trained to its end. The others have the status \"stopped\". Leave it out "
    "for tables\n"
    "that compare settings.\n"
    "\n"
    "DIR/sweep.json, table.md, table.csv, KEY.svg and report.html have the result.\n";

}  // namespace

void add_sweep_command(Command& app) {
  auto arguments = std::make_shared<SweepArguments>();
  Command* command = app.add_subcommand("sweep", "Train with several values of keys, and compare them");
  command->add_option("config", arguments->spec.source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml")
      ->required();
  command
      ->add_option("--vary", arguments->vary,
                   "The values of a key: KEY=a,b,c or KEY=lo..hi:log:n; may be repeated")
      ->type_name("KEY=VALUES")
      ->repeated()
      ->required();
  command
      ->add_option("--seeds", arguments->spec.seeds,
                   "Runs of each setting, with seeds from train.seed upwards")
      ->count(1, 1000)
      ->capture_default_str();
  command
      ->add_option("--jobs", arguments->jobs,
                   "Runs at a time; default: as many as cores (or GPUs) and memory allow")
      ->count(1, 1000);
  command->add_option("--mpirun", arguments->launcher, "What starts the ranks of a run with several")
      ->type_name("\"COMMAND ...\"")
      ->capture_default_str();
  command->add_option("--budget", arguments->budget, "Save and end after this time, such as 30m")
      ->type_name("TIME");
  command->add_option("--halving", arguments->halving_eta, "Stop hopeless settings early: see below")
      ->type_name("ETA");
  command->add_option("--data", arguments->spec.data, "Text to train on, as for `ingot train`")
      ->type_name("PATH ...");
  command->add_option("--set", arguments->spec.overrides, "Override a key for all runs; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command->add_option("--out", arguments->out, "The sweep's folder; default sweeps/<preset>")
      ->type_name("DIR");
  command->add_flag("--dry-run", arguments->is_dry, "List the runs and end");
  command->add_flag("--quiet", arguments->is_quiet, "Print warnings and errors only, and what --json prints");
  command->add_flag("--json", arguments->is_json, "Print sweep.json at the end");
  command->footer([] { return std::string(kSweepFooter); });
  command->callback([arguments] { sweep(*arguments); });
}

}  // namespace ingot
