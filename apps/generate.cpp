// ingot generate: streams text from a checkpoint. Control characters are escaped on a terminal and
// unchanged in a pipe or a file.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_options.h"
#include "apps/run_note.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/formats/jsonl.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

struct GenerateArguments {
  std::string checkpoint, prompts_file;
  std::vector<std::string> prompts;
  ModelOptions model_options;
  GenerateOptions options;
  bool is_json = false;
};

// Returns the prompts of a file: its lines that are not blank, or the field "prompt" of JSON Lines.
std::vector<std::string> read_prompts(const std::filesystem::path& path) {
  std::vector<std::string> prompts;
  std::string prompt;
  if (path.extension() == ".jsonl" || path.extension() == ".ndjson") {
    for (JsonlReader reader(path, "prompt"); reader.next(prompt);) prompts.push_back(prompt);
  } else {
    const std::string text = read_file(path);
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      prompt = line.substr(0, line.find_last_not_of("\r") + 1);
      if (!prompt.empty()) prompts.push_back(prompt);
    }
  }
  if (prompts.empty())
    fail(ErrorKind::kData, "{}: no prompt; write one per line, or JSON Lines with a field \"prompt\"",
         path.string());
  return prompts;
}

void print_json(const GenerateOptions& o, const std::string& checkpoint, size_t prompt,
                const std::string& text) {
  const nlohmann::ordered_json json = {
      {"checkpoint", checkpoint}, {"prompt", o.prompts[prompt]}, {"seed", o.seed + prompt}, {"text", text}};
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::fflush(stdout);
}

// Says which checkpoint of a run is read, on standard error.
void note_checkpoint(const std::string& given, const std::filesystem::path& read) {
  if (read != given) fmt::print(stderr, "note: {}\n", visible_line(read.string()));
}

// Prints the texts of the prompts as they are made, with a line before each if there are several.
void print_texts(const GenerateArguments& arguments) {
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  const size_t count = arguments.options.prompts.size();
  bool is_first_piece = true;
  generate_from_checkpoint(
      arguments.checkpoint, arguments.options,
      [&](size_t prompt, std::string_view piece, bool is_last) {
        if (is_first_piece && count > 1) fmt::print("--- prompt {} of {}\n", prompt + 1, count);
        const std::string shown = is_terminal ? visible_text(piece) : std::string(piece);
        std::fwrite(shown.data(), 1, shown.size(), stdout);
        if (is_last) std::fputc('\n', stdout);
        std::fflush(stdout);
        is_first_piece = is_last;
      },
      [&](const auto& read) { note_checkpoint(arguments.checkpoint, read); });
}

void generate(GenerateArguments& arguments) {
  GenerateOptions& o = arguments.options;
  o.sample.validate();
  o.model = arguments.model_options.served();
  if (!arguments.prompts_file.empty() && !arguments.prompts.empty())
    fail(ErrorKind::kUsage, "--prompt and --prompts cannot be given together; put all prompts into the file");
  o.prompts = arguments.prompts_file.empty() ? arguments.prompts : read_prompts(arguments.prompts_file);
  if (o.prompts.empty()) o.prompts = {""};
  note_on_run(arguments.checkpoint);
  if (!arguments.is_json) return print_texts(arguments);
  std::string text, checkpoint;
  generate_from_checkpoint(
      arguments.checkpoint, o,
      [&](size_t prompt, std::string_view piece, bool is_last) {
        text += piece;
        if (is_last) print_json(o, checkpoint, prompt, std::exchange(text, {}));
      },
      [&](const auto& read) { checkpoint = read.string(); });
}

}  // namespace

void add_generate_command(Command& app) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& o = arguments->options;
  Command* command = app.add_subcommand("generate", "Continue prompts");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  command->add_option("--prompt", arguments->prompts, "Text to go on from; may be repeated")
      ->repeated()
      ->may_be_empty();
  command->add_option("--prompts", arguments->prompts_file,
                      "File with a prompt per line, or JSON Lines (.jsonl) with a field \"prompt\"");
  command->add_option("--batch-size", o.batch, "Prompts to continue at the same time")
      ->count(1, 4096)
      ->capture_default_str();
  arguments->model_options.add_to(*command);
  command->add_option("--tokens", o.tokens, "Tokens to make for each prompt")
      ->count(1)
      ->capture_default_str();
  add_sample_options(*command, o.sample);
  command->add_option("--seed", o.seed, "Equal seeds give equal text; prompt i has the seed plus i, from 0")
      ->capture_default_str();
  command->add_flag("--special", o.finds_special,
                    "A special token that a prompt spells, such as <|im_end|>, is one");
  command->add_flag("--json", arguments->is_json, "Print a JSON object per prompt, on a line of its own");
  command->callback([arguments] { generate(*arguments); });
}

}  // namespace ingot
