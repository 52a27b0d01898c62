// ingot export: writes a checkpoint's model for other programs.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/run_note.h"
#include "ingot/checkpoint/hf_export.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

struct ExportArguments {
  std::string checkpoint;
  std::string hf;  // folder to write
  std::string dtype = "f32";
  int64_t file_bytes = 5'000'000'000;
  bool is_averaged = false;
};

DType export_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (text == name(dtype)) return dtype;
  fail(ErrorKind::kUsage, "--dtype must be f32, bf16 or f16, got {}", text);
}

void export_to_hf(const ExportArguments& arguments) {
  const HfExport result = export_hf(
      arguments.checkpoint, arguments.hf,
      {.dtype = export_dtype(arguments.dtype),
       .file_bytes = static_cast<uint64_t>(arguments.file_bytes),
       .weights = arguments.is_averaged ? LoadedWeights::kAveraged : LoadedWeights::kTrained},
      [](const std::filesystem::path& checkpoint, const std::string& what) {
        fmt::print(stderr, "{}\n",
                   visible_text(fmt::format("warning: {}: {}; passed over", checkpoint.string(), what)));
      });
  fmt::print("written: {}: {}, {} tensors, {} in {} file{}\n", visible_line(arguments.hf), result.model_type,
             result.tensors, format_bytes(static_cast<double>(result.bytes)), result.files,
             result.files == 1 ? "" : "s");
  if (result.model_type == "ingot")
    fmt::print(
        "transformers has no such model: load it with trust_remote_code=True, which runs "
        "modeling_ingot.py\n");
}

// One of the formats must be asked for.
void export_model(const ExportArguments& arguments) {
  if (arguments.hf.empty()) fail(ErrorKind::kUsage, "say what to write: --hf FOLDER");
  note_on_run(arguments.checkpoint);
  export_to_hf(arguments);
}

}  // namespace

void add_export_command(Command& app) {
  auto arguments = std::make_shared<ExportArguments>();
  Command* command = app.add_subcommand("export", "Write a checkpoint's model for other programs");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  command->add_option("--hf", arguments->hf, "Write a folder for Hugging Face transformers")
      ->type_name("DIR");
  command->add_option("--dtype", arguments->dtype, "Of the weights: f32, bf16 or f16")->capture_default_str();
  command->add_option("--file-bytes", arguments->file_bytes, "Begin another file of weights beyond this size")
      ->count(1)
      ->capture_default_str();
  command->add_flag("--ema", arguments->is_averaged, "The moving averages of the weights (optimizer.ema)");
  command->callback([arguments] { export_model(*arguments); });
}

}  // namespace ingot
