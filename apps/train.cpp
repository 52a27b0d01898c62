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
#include "apps/launch.h"
#include "apps/libraries.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/device_support.h"
#include "ingot/config/nearest.h"
#include "ingot/config/presets.h"
#include "ingot/console/console.h"
#include "ingot/console/terminal.h"
#include "ingot/core/error.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/memory/memory_check.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"
#include "ingot/run/thread_count.h"

namespace ingot {
namespace {

struct TrainArguments {
  std::string source;  // preset or file
  std::vector<std::string> data, overrides;
  std::string out;
  bool is_resume = false;
  bool is_resume_anyway = false;
  bool prints_config = false;
  std::vector<std::string> line = {};  // the command as typed
};

// The settings of a start that are not in the configuration.
struct Start {
  std::string out;           // the run folder, or the base name of a new one
  bool is_own_name = false;  // out is a default name: the folder must be new
  bool is_resume = false;
  OtherText other_text = OtherText::kRefused;
  std::vector<std::string> notes;  // about the configuration
  std::vector<std::string> line;   // the command as typed
};

// The parser assigns every word after --data to --data. If the last of several words is a preset or a
// configuration file, this function moves it to arguments.source; for a misspelt preset it throws an error
// with the nearest name.
void find_source_in_data(TrainArguments& arguments) {
  std::vector<std::string>& data = arguments.data;
  if (!arguments.source.empty() || data.size() < 2) return;
  const std::string last = data.back();
  std::error_code error;
  const bool is_path = std::filesystem::exists(last, error);
  if (is_path ? last.ends_with(".toml") : find_preset(last).has_value()) {
    arguments.source = last;
    data.pop_back();
    return;
  }
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  const std::vector<std::string> nearest = nearest_names(last, names);
  if (!is_path && !nearest.empty())
    fail(ErrorKind::kUsage, "--data: {} is no file, and no preset is called so{}; a preset stands first: {}",
         last, did_you_mean(nearest), "ingot train PRESET --data PATH");
}

RunConfig configure(const TrainArguments& arguments, std::vector<std::string>& notes) {
  ConfigBuilder builder;
  if (!arguments.source.empty()) builder.add_source(arguments.source);
  if (arguments.source.empty() && arguments.is_resume) {
    builder.add_source(arguments.out + "/config.toml");
    builder.config().train.stop_at = 0;  // it ended the previous run, not this one
  }
  if (!arguments.data.empty()) builder.add_texts("data.train", arguments.data, "--data");
  for (const std::string& assignment : arguments.overrides) builder.add_override(assignment);
  const RunConfig& config = builder.build();
  notes = builder.notes();
  return config;
}

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
void acknowledge(const char* signal, const std::atomic<bool>& is_told_to_end) {
  if (!is_first_rank()) return;
  Terminal terminal({.fd = STDERR_FILENO, .is_told_to_end = &is_told_to_end});
  terminal.write(
      fmt::format("{}{}: the run ends and saves as soon as it can; a second signal ends it at once\n",
                  terminal.is_live() ? "\n" : "", signal));
}

std::unique_ptr<Console> open_console(const Communicator& world, const std::atomic<bool>& is_told_to_end) {
  if (world.rank() == 0)
    return Console::standard({.allows_live = !is_launched(), .is_told_to_end = &is_told_to_end});
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

// Returns true if the run was interrupted and saved.
bool train_on(Mesh& mesh, const std::atomic<bool>& is_told_to_end, const RunConfig& config,
              const Start& start) {
  const std::unique_ptr<Console> console = open_console(*mesh.world, is_told_to_end);
  for (const std::string& note : start.notes) console->line("note: " + note);
  const std::string too_much = check_memory(config, mesh, memory_limits(config.train.device));
  if (!too_much.empty()) console->warning(too_much + "; train.overcommit starts it all the same");
  const std::unique_ptr<RunFolder> folder = open_folder(start, *mesh.world);
  folder->record().origin = origin_of(start.line);
  TrainOutcome outcome;
  try {
    outcome =
        run_training(config, *folder, start.is_resume, *console, is_told_to_end, mesh, start.other_text);
  } catch (...) {
    folder->remove_failed_start();
    throw;
  }
  if (outcome.status != TrainOutcome::Status::kInterrupted) return false;
  console->line(fmt::format("interrupted and saved; go on with: ingot train --resume --out {}",
                            folder->path().string()));
  return true;
}

void train(TrainArguments arguments) {
  find_source_in_data(arguments);
  if (arguments.is_resume && arguments.out.empty())
    fail(ErrorKind::kUsage, "--resume needs the run folder: --out DIR");
  Start start;
  const RunConfig config = configure(arguments, start.notes);
  if (arguments.prints_config) {
    print_notes(start.notes);
    fmt::print("{}", config_toml(config, ConfigDocs::kComments));
    return;
  }
  // Must be created before any other thread starts.
  const StopSignals signals([&](const char* name) { acknowledge(name, signals.is_told_to_end()); });
  const std::atomic<bool>& is_told_to_end = signals.is_told_to_end();
  if (config.data.train.empty())
    fail(ErrorKind::kUsage,
         "no text to train on: give --data FILE (or data.train), or start from the preset demo");
  require_device(config.train.device);
  require_threads(config.train);
  const std::string name = arguments.source.empty() ? config.preset : arguments.source;
  start.is_own_name = arguments.out.empty();
  start.out = start.is_own_name ? "runs/" + default_run_name(name, std::time(nullptr)) : arguments.out;
  start.is_resume = arguments.is_resume;
  start.other_text = arguments.is_resume_anyway ? OtherText::kAccepted : OtherText::kRefused;
  start.line = arguments.line;
  bool is_saved = false;
  launch(config, is_told_to_end,
         [&](Mesh& mesh) { is_saved = train_on(mesh, is_told_to_end, config, start); });
  if (is_saved) throw Exit{kExitInterrupted};
}

std::string footer() {
  std::string text = "Presets:\n";
  for (const Preset& preset : presets())
    text += fmt::format("  {:<22} {}\n", preset.name, preset_summary(preset));
  return text + "\nKeys of --set and of files ([section] key = value):\n" + config_reference();
}

}  // namespace

void add_train_command(Command& app, const std::vector<std::string>& line) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->line = line;
  Command* command = app.add_subcommand("train", "Train a model");
  command->add_option("config", arguments->source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml");
  command
      ->add_option("--data", arguments->data, "Text to train on: files, folders, globs, .bin shards, .jsonl")
      ->type_name("PATH ...");
  command->add_option("--set", arguments->overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command->add_option("--out", arguments->out, "Run folder; default runs/<preset>-<date>-<time>")
      ->type_name("DIR");
  command->add_flag("--resume", arguments->is_resume, "Go on from the newest checkpoint in --out");
  command->add_flag("--resume-anyway", arguments->is_resume_anyway,
                    "The same, also with keys or data that change which text comes next");
  command->add_flag("--print-config", arguments->prints_config, "Print the resolved configuration and end");
  command->footer(footer);
  command->callback([arguments] {
    arguments->is_resume |= arguments->is_resume_anyway;
    train(*arguments);
  });
}

}  // namespace ingot
