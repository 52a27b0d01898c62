// ingot eval: the loss of a checkpoint on text.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "ingot/core/error.h"
#include "ingot/train/run.h"

namespace ingot {
namespace {

struct EvalArguments {
  std::string checkpoint;
  EvalOptions options;
  bool is_json = false;
};

void eval(const EvalArguments& arguments) {
  const EvalOptions& o = arguments.options;
  if (!o.compute.empty() && o.compute != "f32" && o.compute != "bf16" && o.compute != "f16")
    fail(ErrorKind::kUsage, "--compute must be f32, bf16 or f16, got {}", o.compute);
  if (o.batch_size < 1) fail(ErrorKind::kUsage, "--batch-size must be at least 1, got {}", o.batch_size);
  if (o.max_tokens < 0) fail(ErrorKind::kUsage, "--max-tokens must not be negative, got {}", o.max_tokens);
  const auto [result, context] = evaluate_checkpoint(arguments.checkpoint, arguments.options);
  if (!arguments.is_json) {
    fmt::print("loss {:.4f} | {:.4f} bits/byte | top-1 {:.1f}% | {} tokens in windows of {}\n", result.loss,
               result.bits_per_byte, 100 * result.top1, result.tokens, context);
    return;
  }
  const nlohmann::ordered_json json = {{"loss", result.loss},
                                       {"tokens", result.tokens},
                                       {"bits_per_byte", result.bits_per_byte},
                                       {"top1", result.top1},
                                       {"context", context}};
  fmt::print("{}\n", json.dump());
}

}  // namespace

void add_eval_command(Command& app) {
  auto arguments = std::make_shared<EvalArguments>();
  Command* command = app.add_subcommand("eval", "Loss, bits per byte and top-1 of a checkpoint on text");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  EvalOptions& o = arguments->options;
  command->add_option("--data", o.data, "Text: files, folders, globs, .bin shards, .jsonl")
      ->type_name("PATH")
      ->required();
  command->add_option("--text-field", o.text_field, "The field of a JSONL line that holds the text")
      ->capture_default_str();
  command->add_option("--compute", o.compute, "f32, bf16 or f16; default as it was trained");
  command->add_flag("--ema", o.is_averaged, "The moving averages of the weights (optimizer.ema)");
  command->add_option("--batch-size", o.batch_size, "Windows at once")->capture_default_str();
  command->add_option("--max-tokens", o.max_tokens, "Stop after about so many tokens; 0: all");
  command->add_flag("--json", arguments->is_json,
                    "One JSON object: loss, tokens, bits_per_byte, top1, context");
  command->callback([arguments] { eval(*arguments); });
}

}  // namespace ingot
