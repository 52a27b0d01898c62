// ingot eval: the loss of a checkpoint on text.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/precision_options.h"
#include "apps/run_note.h"
#include "ingot/console/console.h"
#include "ingot/core/visible_text.h"
#include "ingot/run/eval_watch.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

struct EvalArguments {
  std::string checkpoint;
  PrecisionOptions precision;
  EvalOptions options;
  bool is_quiet = false, is_json = false;
};

// Evaluates and shows the progress on standard error.
CheckpointEval evaluate_with_progress(const std::string& checkpoint, EvalOptions options) {
  Console console(std::make_unique<Terminal>(Terminal::Options{.fd = STDERR_FILENO}));
  const std::unique_ptr<Communicator> alone = self_communicator();
  const auto time_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  std::optional<EvalWatch> watch;  // its clock starts when the model and the text are loaded
  options.goes_on = [&](int64_t tokens, int64_t all) {
    if (!watch)
      watch.emplace(
          console, *alone, [] { return false; }, time_s);
    return watch->go_on(tokens, all);
  };
  return evaluate_checkpoint(checkpoint, options);
}

void eval(const EvalArguments& arguments) {
  EvalOptions options = arguments.options;
  options.compute = arguments.precision.compute_dtype();
  options.has_int8_weights = arguments.precision.has_int8_weights();
  note_on_run(arguments.checkpoint);
  const auto [result, context, checkpoint, warning] =
      arguments.is_quiet ? evaluate_checkpoint(arguments.checkpoint, options)
                         : evaluate_with_progress(arguments.checkpoint, options);
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", visible_line(warning));
  if (!arguments.is_json) {
    fmt::print("loss {:.4f} | {:.4f} bits/byte | top-1 {:.1f}% | {} tokens in windows of {} | {}\n",
               result.loss, result.bits_per_byte, 100 * result.top1, result.tokens, context,
               visible_line(checkpoint.string()));
    return;
  }
  const nlohmann::ordered_json json = {
      {"loss", result.loss}, {"tokens", result.tokens}, {"bits_per_byte", result.bits_per_byte},
      {"top1", result.top1}, {"context", context},      {"checkpoint", checkpoint.string()}};
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void add_eval_command(Command& app) {
  auto arguments = std::make_shared<EvalArguments>();
  Command* command = app.add_subcommand("eval", "Loss, bits per byte and top-1 of a checkpoint on text");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  EvalOptions& o = arguments->options;
  command->add_option("--data", o.data, "Text: files (.gz and .zst too), folders, globs, .bin shards, .jsonl")
      ->type_name("PATH")
      ->required();
  command->add_option("--text-field", o.text_field, "The field of a JSONL line that holds the text")
      ->capture_default_str();
  arguments->precision.add_to(*command);
  command->add_flag("--ema", o.is_averaged, "The moving averages of the weights (optimizer.ema)");
  command->add_option("--batch-size", o.batch_size, "Windows at once")->count(1)->capture_default_str();
  command->add_option("--max-tokens", o.max_tokens, "Stop after about so many tokens; 0: all")->count(0);
  command->add_flag("--quiet", arguments->is_quiet, "Show no progress");
  command->add_flag("--json", arguments->is_json,
                    "One JSON object: loss, tokens, bits_per_byte, top1, context, checkpoint");
  command->callback([arguments] { eval(*arguments); });
}

}  // namespace ingot
