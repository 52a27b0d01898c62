// ingot generate: streams text from a checkpoint. Control characters are escaped on a terminal and
// unchanged in a pipe or a file.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/run_note.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  GenerateOptions options;
  bool is_json = false;
};

void generate(const GenerateArguments& arguments) {
  const GenerateOptions& o = arguments.options;
  o.sample.validate();
  note_on_run(arguments.checkpoint);
  if (arguments.is_json) {
    std::string text;
    generate_from_checkpoint(arguments.checkpoint, o, [&](std::string_view piece) { text += piece; });
    using nlohmann::ordered_json;
    const ordered_json json = {
        {"checkpoint", arguments.checkpoint}, {"prompt", o.prompt}, {"seed", o.seed}, {"text", text}};
    fmt::print("{}\n", json.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    return;
  }
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  generate_from_checkpoint(arguments.checkpoint, o, [&](std::string_view piece) {
    const std::string shown = is_terminal ? visible_text(piece) : std::string(piece);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
}

}  // namespace

void add_generate_command(Command& app) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& o = arguments->options;
  Command* command = app.add_subcommand("generate", "Continue a prompt");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  command->add_option("--prompt", o.prompt, "Text to go on from");
  command->add_flag("--ema", o.is_averaged, "From the moving averages of the weights (optimizer.ema)");
  command->add_option("--tokens", o.tokens, "Tokens to make")->count(1)->capture_default_str();
  command->add_option("--temperature", o.sample.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", o.sample.top_k, "From the k likeliest tokens; 0: all")
      ->count(0)
      ->capture_default_str();
  command->add_option("--top-p", o.sample.top_p, "From the likeliest tokens of this total probability")
      ->capture_default_str();
  command->add_option("--seed", o.seed, "Equal seeds give equal text")->capture_default_str();
  command->add_flag("--json", arguments->is_json, "Print one JSON object");
  command->callback([arguments] { generate(*arguments); });
}

}  // namespace ingot
