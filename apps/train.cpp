// ingot train: from a configuration to a trained model in a run folder.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/build_info.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/libraries.h"
#include "apps/ranks.h"
#include "apps/train_arguments.h"
#include "ingot/comm/placement.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/device_support.h"
#include "ingot/config/nearest.h"
#include "ingot/config/presets.h"
#include "ingot/console/console.h"
#include "ingot/console/terminal.h"
#include "ingot/core/error.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/memory/prepare_run.h"
#include "ingot/plan/job.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"
#include "ingot/run/thread_count.h"

namespace ingot {
namespace {

// The settings of a start that are not in the configuration.
struct Start {
  std::string out;           // the run folder, or the base name of a new one
  bool is_own_name = false;  // out is a default name: the folder must be new
  bool is_resume = false;
  DataMismatch data_mismatch = DataMismatch::kRefused;
  std::vector<std::string> notes;  // about the configuration
  std::vector<std::string> line;   // the command as typed
  bool is_quiet = false;           // print warnings only
  bool is_json = false;            // print run.json at the end
};

// Rank 0 opens the run's folder, then every other rank opens its subfolder.
std::unique_ptr<RunFolder> open_folder(const Start& start, Communicator& world) {
  std::unique_ptr<RunFolder> folder;
  if (world.rank() == 0)
    folder = start.is_own_name ? RunFolder::make_new(start.out)
                               : std::make_unique<RunFolder>(start.out, start.is_resume);
  std::string out = folder ? folder->path().string() : "";
  world.broadcast_text(out, 0);
  if (world.rank() > 0) folder = RunFolder::of_rank(out, world.rank());
  return folder;
}

// Called on the thread that waits for signals, concurrently with the console's output.
void acknowledge(const char* signal, const std::atomic<bool>& is_stop_requested) {
  if (!is_first_rank()) return;
  Terminal terminal({.fd = STDERR_FILENO, .is_stop_requested = &is_stop_requested});
  terminal.write(
      fmt::format("{}{}: the run ends and saves as soon as it can; a second signal ends it at once\n",
                  terminal.is_live() ? "\n" : "", signal));
}

std::unique_ptr<Console> open_console(const Communicator& world, const std::atomic<bool>& is_stop_requested,
                                      const Start& start) {
  if (world.rank() == 0 && start.is_quiet) return Console::quiet();
  if (world.rank() == 0)
    return Console::standard({.fd = start.is_json ? STDERR_FILENO : STDOUT_FILENO,
                              .allows_live = !is_launched(),
                              .is_stop_requested = &is_stop_requested});
  return std::make_unique<Console>([](std::string_view) {}, 0);  // the rank's train.log has all lines
}

RunOrigin origin_of(const std::vector<std::string>& line) {
  const BuildInfo build = program_build();
  return {.version = build.version,
          .commit = build.commit,
          .is_modified = build.is_modified,
          .arguments = line,
          .libraries = libraries_in_use};
}

// Returns true if the run was interrupted.
bool train_on(Mesh& mesh, const std::atomic<bool>& is_stop_requested, const RunConfig& given,
              const Start& start) {
  const std::unique_ptr<Console> console = open_console(*mesh.world, is_stop_requested, start);
  for (const std::string& note : start.notes) console->line("note: " + note);
  if (mesh.world->size() > 1)
    for (const std::string& misplacement :
         misplacements(mesh.shape, gather_places(*mesh.world, given.train.device)))
      console->warning(misplacement);
  const auto& [config, note, warning] = prepare_run(given, mesh, memory_limits(given.train.device));
  if (!note.empty()) console->line("note: " + note);
  if (!warning.empty()) console->warning(warning + "; train.overcommit starts it all the same");
  const std::unique_ptr<RunFolder> folder = open_folder(start, *mesh.world);
  folder->record().origin = origin_of(start.line);
  folder->heartbeat().beat(0, TimeLimit::Phase::kStart, mesh.world->time_limit().seconds());
  TrainOutcome outcome;
  try {
    outcome = run_training(config, *folder, start.is_resume, *console, is_stop_requested, mesh,
                           start.data_mismatch);
  } catch (...) {
    folder->remove_failed_start();
    throw;
  }
  if (outcome.status == TrainOutcome::Status::kNotBegun) {
    folder->remove_failed_start();
    console->line("interrupted while the text was read: nothing to save");
    return true;
  }
  if (start.is_json && mesh.world->rank() == 0) fmt::print("{}", read_file(folder->path() / "run.json"));
  if (outcome.status != TrainOutcome::Status::kInterrupted) return false;
  console->line(fmt::format("interrupted and saved; go on with: ingot train --resume --out {}",
                            folder->path().string()));
  return true;
}

void train(TrainArguments arguments) {
  arguments.complete();
  Start start;
  const RunConfig config = configure_training(arguments, start.notes);
  if (arguments.prints_config) {
    print_notes(start.notes);
    fmt::print("{}", config_toml(config, ConfigDocs::kComments));
    return;
  }
  if (arguments.prints_program) {
    RunConfig planned = config;
    if (planned.model.vocab == 0) planned.model.vocab = planned_vocab(planned.data);
    fmt::print("{}", programs_text(planned));
    return;
  }
  // Must be created before any other thread starts.
  const StopSignals signals([&](const char* name) { acknowledge(name, signals.is_stop_requested()); });
  const std::atomic<bool>& is_stop_requested = signals.is_stop_requested();
  if (config.data.train.empty())
    fail(ErrorKind::kUsage,
         "no text to train on: give --data FILE (or data.train), or start from the preset demo");
  prepare_pipeline(config);
  require_device(config);
  require_threads(config.train);
  start.is_own_name = arguments.out.empty();
  start.out = start.is_own_name ? default_run_folder(arguments, config) : arguments.out;
  start.is_resume = arguments.is_resume;
  start.data_mismatch = arguments.is_resume_anyway ? DataMismatch::kAccepted : DataMismatch::kRefused;
  start.line = arguments.line;
  start.is_quiet = arguments.is_quiet;
  start.is_json = arguments.is_json;
  bool is_interrupted = false;
  run_on_ranks(config, is_stop_requested,
               [&](Mesh& mesh) { is_interrupted = train_on(mesh, is_stop_requested, config, start); });
  if (is_interrupted) throw Exit{kExitInterrupted};
}

}  // namespace

void add_train_command(Command& app, const std::vector<std::string>& line) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->line = line;
  Command* command = app.add_subcommand("train", "Train a model");
  add_train_options(*command, *arguments);
  command->callback([arguments] { train(*arguments); });
}

}  // namespace ingot
