// ingot launch: a run that is watched, and started again when it dies.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/train_arguments.h"
#include "ingot/console/terminal.h"
#include "ingot/core/error.h"
#include "ingot/core/process/child_program.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/launch/incident.h"
#include "ingot/launch/local_job.h"
#include "ingot/launch/supervisor.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/run/record/run_status.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

struct LaunchArguments {
  int ranks = 0;  // 0: as many as the layout has
  std::string launcher, hosts;
  int restarts = -1;               // -1: any number
  std::vector<std::string> words;  // behind "--"
};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; (begin = text.find_first_not_of(" \t", begin)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

// Parses the words behind "train" as `ingot train` does.
TrainArguments parse_training(const std::vector<std::string>& words) {
  TrainArguments arguments;
  CommandLine line("ingot launch --", "", "");
  Command* train = line.root().add_subcommand("train", "Train a model");
  add_train_options(*train, arguments);
  std::vector<std::string> all = {"ingot"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  if (const int code = line.run(static_cast<int>(pointers.size()), pointers.data()); code != 0)
    throw Exit{code};
  arguments.complete();
  return arguments;
}

// Returns true if the folder holds a run that is not complete, which the same command continues: a job that
// Slurm requeues starts with its first arguments.
bool is_unfinished(const fs::path& run) {
  const auto status = read_run_status(run);
  return status && status->status != "completed";
}

LocalJobOptions job_options(const LaunchArguments& given, const TrainArguments& training,
                            const RunConfig& config) {
  LocalJobOptions options;
  options.config = config;
  options.run = training.out.empty() ? default_run_folder(training, config) : training.out;
  options.program = this_program().string();
  for (const std::string& word : given.words)
    if (word != "--resume" && &word != &given.words.front()) options.train.push_back(word);
  if (training.out.empty()) options.train.insert(options.train.end(), {"--out", options.run.string()});
  options.launcher = split_words(given.launcher);
  if (!given.hosts.empty()) options.hosts = parse_hosts(given.hosts);
  const bool is_alone = config.parallel.ranks() == 1 && options.hosts.empty();
  if (options.launcher.empty() && !is_alone) options.launcher = {"mpirun"};
  return options;
}

void launch(const LaunchArguments& given) {
  if (given.words.empty() || given.words.front() != "train")
    fail(ErrorKind::kUsage,
         "nothing to launch: write the command behind two dashes, as in ingot launch -n 2 -- train PRESET "
         "--set parallel.dp=2");
  const TrainArguments training = parse_training(given.words);
  std::vector<std::string> notes;  // the ranks print them
  const RunConfig config = configure_training(training, notes);
  check_layout(config, given.ranks > 0 ? given.ranks : static_cast<int>(config.parallel.ranks()));
  const LocalJobOptions options = job_options(given, training, config);
  if (fs::exists(options.run / "run.json") && !training.is_resume && !is_unfinished(options.run))
    fail(ErrorKind::kUsage, "the run in {} is complete: choose another --out, or go on with --resume",
         options.run.string());
  // Must be created before any other thread starts.
  const StopSignals signals(
      [&](const char* name) {
        Terminal terminal({.fd = STDERR_FILENO, .is_stop_requested = &signals.is_stop_requested()});
        terminal.write(fmt::format("launch: {}: the run saves and ends; a second signal kills it\n", name));
      },
      StopSignals::Second::kCounts);
  const auto say = [](const std::string& line) { fmt::print(stderr, "launch: {}\n", line); };
  LocalJob job(options, signals.count(), say);
  IncidentLog log(options.run);
  Supervisor supervisor(job, log, given.restarts < 0 ? std::nullopt : std::optional<int>(given.restarts),
                        say);
  if (const int code = supervisor.run(); code != 0) throw Exit{code};
}

}  // namespace

void add_launch_command(Command& app) {
  auto arguments = std::make_shared<LaunchArguments>();
  Command* command = app.add_subcommand(
      "launch", "Train under a supervisor, which starts the run again when it dies or hangs");
  command->add_option("-n", arguments->ranks, "Ranks; default: as many as the layout (parallel.*) has")
      ->type_name("N")
      ->in_range(1, 1 << 20);
  command->add_option("--mpirun", arguments->launcher, "What starts several ranks; default mpirun")
      ->type_name("\"COMMAND ...\"");
  command
      ->add_option("--hosts", arguments->hosts,
                   "Machines and their ranks; if one is lost, the run goes on with the others")
      ->type_name("HOST:N,...");
  command
      ->add_option("--restarts", arguments->restarts, "Most restarts; default: while the run makes progress")
      ->type_name("K")
      ->in_range(0, 1 << 20);
  command->add_option("command", arguments->words, "The run: -- train PRESET ...")
      ->type_name("-- train ...")
      ->may_be_empty();
  command->callback([arguments] { launch(*arguments); });
}

}  // namespace ingot
