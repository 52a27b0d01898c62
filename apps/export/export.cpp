// ingot export: a checkpoint in the format of another program.
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/run_note.h"
#include "ingot/checkpoint/gguf_export.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

struct ExportArguments {
  std::string checkpoint, gguf, type = "f16";
  bool is_averaged = false;
};

GgufType gguf_type(const std::string& text) {
  if (text == "f32") return GgufType::kF32;
  if (text == "f16") return GgufType::kF16;
  if (text == "bf16") return GgufType::kBf16;
  if (text == "q8_0") return GgufType::kQ8_0;
  fail(ErrorKind::kUsage, "--type must be f32, f16, bf16 or q8_0, got '{}'", text);
}

void write_as_gguf(const ExportArguments& arguments) {
  const GgufType type = gguf_type(arguments.type);
  note_on_run(arguments.checkpoint);
  const LoadedModel loaded =
      load_model(arguments.checkpoint, DType::f32,
                 arguments.is_averaged ? LoadedWeights::kAveraged : LoadedWeights::kTrained,
                 [](const std::filesystem::path& path, const std::string& what) {
                   print_notes({fmt::format("{}: {}", path.string(), what)});
                 });
  print_notes(export_gguf(loaded, type, arguments.gguf));
  fmt::print("{}: GGUF, {}\n", arguments.gguf, arguments.type);
}

// Each format has a flag that names its output.
void export_checkpoint(const ExportArguments& arguments) {
  if (!arguments.gguf.empty()) return write_as_gguf(arguments);
  fail(ErrorKind::kUsage, "name what to write: --gguf FILE");
}

}  // namespace

void add_export_command(Command& app) {
  auto arguments = std::make_shared<ExportArguments>();
  Command* command = app.add_subcommand("export", "Write a checkpoint in another program's format");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  command->add_option("--gguf", arguments->gguf, "GGUF file to write, for llama.cpp");
  command->add_option("--type", arguments->type, "Numbers of a GGUF file: f32, f16, bf16 or q8_0")
      ->capture_default_str();
  command->add_flag("--ema", arguments->is_averaged, "The moving averages of the weights (optimizer.ema)");
  command->callback([arguments] { export_checkpoint(*arguments); });
}

}  // namespace ingot
