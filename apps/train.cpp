// ingot train: from a configuration to a trained model in a run folder.
#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/launch.h"
#include "ingot/core/error.h"
#include "ingot/parallel/mesh_parts.h"
#include "ingot/train/config_toml.h"
#include "ingot/train/console.h"
#include "ingot/train/on_cuda.h"
#include "ingot/train/presets.h"
#include "ingot/train/run.h"
#include "ingot/train/run_folder.h"

namespace ingot {
namespace {

// A handler may touch nothing but a lock-free atomic, and has no other way to be told of one.
std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// The first signal asks the run to save and end; SA_RESETHAND lets a second one end it at once.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { is_interrupted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);  // which mpirun passes on to all ranks
}

struct TrainArguments {
  std::string source;  // preset or file
  std::vector<std::string> data, overrides;
  std::string out;
  bool is_resume = false;
  bool prints_config = false;
};

RunConfig configure(const TrainArguments& arguments) {
  ConfigBuilder builder;
  if (!arguments.source.empty()) builder.add_source(arguments.source);
  if (arguments.source.empty() && arguments.is_resume) {
    builder.add_source(arguments.out + "/config.toml");
    builder.config().train.stop_at = 0;  // it ended that run, not this one
  }
  if (!arguments.data.empty()) builder.add_texts("data.train", arguments.data, "--data");
  for (const std::string& assignment : arguments.overrides) builder.add_override(assignment);
  return builder.build();
}

// Rank 0 opens the run's folder, then every other rank its own in it.
std::unique_ptr<RunFolder> open_folder(const std::string& out, bool is_resume, Communicator& world) {
  std::unique_ptr<RunFolder> folder;
  if (world.rank() == 0) folder = std::make_unique<RunFolder>(out, is_resume);
  world.barrier("run folder");
  if (world.rank() > 0) folder = RunFolder::of_rank(out, world.rank());
  return folder;
}

std::unique_ptr<Console> open_console(const Communicator& world) {
  if (world.rank() == 0) return Console::standard();
  return std::make_unique<Console>([](std::string_view) {}, 0);  // the rank's train.log has it all
}

// Whether it was interrupted, and saved.
bool train_on(Communicator& world, Mesh& mesh, const RunConfig& config, std::string out, bool is_resume) {
  CommReducer(world).broadcast(out, 0);  // a folder named after the time has rank 0's
  stop_on_signals();
  const std::unique_ptr<Console> console = open_console(world);
  const std::unique_ptr<RunFolder> folder = open_folder(out, is_resume, world);
  const TrainOutcome outcome = run_training(config, *folder, is_resume, *console, is_interrupted,
                                            std::make_unique<MeshParts>(world, mesh));
  if (outcome.status != TrainOutcome::Status::kInterrupted) return false;
  console->line(fmt::format("interrupted and saved; go on with: ingot train --resume --out {}", out));
  return true;
}

void train(const TrainArguments& arguments) {
  if (arguments.is_resume && arguments.out.empty())
    fail(ErrorKind::kUsage, "--resume needs the run folder: --out DIR");
  const RunConfig config = configure(arguments);
  if (arguments.prints_config) {
    fmt::print("{}", config_toml(config, ConfigDocs::kComments));
    return;
  }
  if (config.data.train.empty())
    fail(ErrorKind::kUsage,
         "no text to train on: give --data FILE (or data.train), or start from the preset demo");
  require_device(config.train.device);
  const std::string name = arguments.source.empty() ? config.preset : arguments.source;
  const std::string out =
      arguments.out.empty() ? "runs/" + default_run_name(name, std::time(nullptr)) : arguments.out;
  bool is_saved = false;
  launch(config, is_interrupted, [&](Communicator& world, Mesh& mesh) {
    is_saved = train_on(world, mesh, config, out, arguments.is_resume);
  });
  if (is_saved) throw Exit{kExitInterrupted};
}

std::string footer() {
  std::string text = "Presets:\n";
  for (const Preset& preset : presets())
    text += fmt::format("  {:<22} {}\n", preset.name, preset_summary(preset));
  return text + "\nKeys of --set and of files ([section] key = value):\n" + config_reference();
}

}  // namespace

void add_train_command(Command& app) {
  auto arguments = std::make_shared<TrainArguments>();
  Command* command = app.add_subcommand("train", "Train a model");
  command->add_option("config", arguments->source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml");
  command
      ->add_option("--data", arguments->data, "Text to train on: files, folders, globs, .bin shards, .jsonl")
      ->type_name("PATH");
  command->add_option("--set", arguments->overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command->add_option("--out", arguments->out, "Run folder; default runs/<preset>-<date>-<time>")
      ->type_name("DIR");
  command->add_flag("--resume", arguments->is_resume, "Go on from the newest checkpoint in --out");
  command->add_flag("--print-config", arguments->prints_config, "Print the resolved configuration and end");
  command->footer(footer);
  command->callback([arguments] { train(*arguments); });
}

}  // namespace ingot
