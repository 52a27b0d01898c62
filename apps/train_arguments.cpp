#include "apps/train_arguments.h"

#include <fmt/core.h>

#include <ctime>
#include <filesystem>
#include <system_error>

#include "apps/command_line.h"
#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/config/config_environment.h"
#include "ingot/config/config_keys.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/nearest.h"
#include "ingot/config/presets.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

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

std::string train_footer() {
  std::string text = "Presets:\n";
  for (const Preset& preset : presets())
    text += fmt::format("  {:<22} {}\n", preset.name, preset_summary(preset));
  return text + "\nKeys of --set and of files ([section] key = value):\n" + config_reference();
}

}  // namespace

void TrainArguments::complete() {
  is_resume |= is_resume_anyway;
  find_source_in_data(*this);
  if (is_resume && out.empty()) fail(ErrorKind::kUsage, "--resume needs the run folder: --out DIR");
}

RunConfig configure_training(const TrainArguments& arguments, std::vector<std::string>& notes) {
  ConfigBuilder builder;
  if (arguments.is_resume) require_known_formats(arguments.out + "/checkpoints");
  if (!arguments.source.empty()) builder.add_source(arguments.source);
  if (arguments.source.empty() && arguments.is_resume) {
    if (!path_exists(arguments.out + "/config.toml"))
      fail(ErrorKind::kUsage,
           "--resume: {} holds no run (no config.toml); `ingot status` lists the runs in runs/",
           arguments.out);
    builder.add_source(arguments.out + "/config.toml");
    builder.config().train.stop_at = 0;  // it ended the previous run, not this one
  }
  if (!arguments.data.empty()) builder.add_texts("data.train", arguments.data, "--data");
  add_environment(builder);
  for (const std::string& assignment : arguments.overrides) builder.add_override(assignment);
  if (!arguments.init.empty())
    builder.add_override("train.init_from=" + toml_string(arguments.init), "--init");
  if (!arguments.is_resume)
    complete_from_start(builder);
  else if (!arguments.source.empty() && path_exists(arguments.out + "/config.toml"))
    complete_from_start(builder, arguments.out + "/config.toml");
  const RunConfig& config = builder.build();
  notes = builder.notes();
  return config;
}

std::string default_run_folder(const TrainArguments& arguments, const RunConfig& config) {
  const std::string name = arguments.source.empty() ? config.preset : arguments.source;
  return "runs/" + default_run_name(name, std::time(nullptr));
}

void add_train_options(Command& command, TrainArguments& arguments) {
  command.add_option("config", arguments.source, "A preset, or a TOML file's path")
      ->type_name("PRESET|FILE.toml");
  command
      .add_option("--data", arguments.data, "Text to train on: files, folders, globs, .bin shards, .jsonl")
      ->type_name("PATH ...");
  command.add_option("--set", arguments.overrides, "Override a key; may be repeated")
      ->type_name("key=value")
      ->repeated();
  command.add_option("--out", arguments.out, "Run folder; default runs/<preset>-<date>-<time>")
      ->type_name("DIR");
  command
      .add_option("--init", arguments.init,
                  "Start from the model and tokenizer of a folder of Hugging Face, or a checkpoint")
      ->type_name("DIR");
  command.add_flag("--resume", arguments.is_resume, "Go on from the newest checkpoint in --out");
  command.add_flag("--resume-anyway", arguments.is_resume_anyway,
                   "The same, also with keys or data that change which text comes next");
  command.add_flag("--print-config", arguments.prints_config, "Print the resolved configuration and end");
  command.add_flag("--print-program", arguments.prints_program,
                   "Print the operations of a micro-batch, with shapes and addresses, and end");
  command.add_flag("--quiet", arguments.is_quiet, "Print warnings and errors only; train.log has all lines");
  command.add_flag("--json", arguments.is_json, "Print run.json at the end, and all else on standard error");
  command.footer(train_footer);
}

}  // namespace ingot
