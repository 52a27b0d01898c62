// ingot export: writes a checkpoint's model for other programs.
#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/run_note.h"
#include "ingot/checkpoint/gguf_export.h"
#include "ingot/checkpoint/hf_export.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

struct ExportArguments {
  std::string checkpoint;
  std::string hf, gguf;  // the folder or the file to write
  std::string type;      // empty: f32 for a folder, f16 for a GGUF file
  int64_t file_bytes = 5'000'000'000, mean_of = 1;
  bool is_averaged = false, is_quiet = false, is_json = false;

  LoadedWeights weights() const { return is_averaged ? LoadedWeights::kAveraged : LoadedWeights::kTrained; }
};

DType hf_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (text == name(dtype)) return dtype;
  fail(ErrorKind::kUsage, "--type must be f32, bf16 or f16 with --hf, got {}", text);
}

GgufType gguf_type(const std::string& text) {
  if (text == "f32") return GgufType::kF32;
  if (text == "f16") return GgufType::kF16;
  if (text == "bf16") return GgufType::kBf16;
  if (text == "q8_0") return GgufType::kQ8_0;
  fail(ErrorKind::kUsage, "--type must be f32, f16, bf16 or q8_0 with --gguf, got {}", text);
}

void warn_of_damage(const std::filesystem::path& checkpoint, const std::string& what) {
  fmt::print(stderr, "{}\n",
             visible_text(fmt::format("warning: {}: {}; passed over", checkpoint.string(), what)));
}

// Prints what was written, as text or as one JSON object.
void report(const ExportArguments& arguments, const std::string& text, const nlohmann::ordered_json& object) {
  if (arguments.is_json)
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else if (!arguments.is_quiet)
    fmt::print("{}", text);
}

void export_to_hf(const ExportArguments& arguments) {
  const std::string type = arguments.type.empty() ? "f32" : arguments.type;
  const HfExport result = export_hf(arguments.checkpoint, arguments.hf,
                                    {.dtype = hf_dtype(type),
                                     .file_bytes = static_cast<uint64_t>(arguments.file_bytes),
                                     .weights = arguments.weights(),
                                     .mean_of = arguments.mean_of},
                                    warn_of_damage);
  std::string text =
      fmt::format("written: {}: {}, {} tensors, {} in {} file{}\n", visible_line(arguments.hf),
                  result.model_type, result.tensors, format_bytes(static_cast<double>(result.bytes)),
                  result.files, result.files == 1 ? "" : "s");
  if (result.model_type == "ingot")
    text +=
        "transformers has no such model: load it with trust_remote_code=True, which runs "
        "modeling_ingot.py\n";
  report(arguments, text,
         {{"out", arguments.hf},
          {"format", "hf"},
          {"type", type},
          {"bytes", result.bytes},
          {"model_type", result.model_type},
          {"tensors", result.tensors},
          {"files", result.files}});
}

void export_to_gguf(const ExportArguments& arguments) {
  const std::string type = arguments.type.empty() ? "f16" : arguments.type;
  const GgufType numbers = gguf_type(type);
  const LoadedModel loaded =
      arguments.mean_of > 1
          ? load_mean_model(arguments.checkpoint, arguments.mean_of, arguments.weights(), warn_of_damage)
          : load_model(arguments.checkpoint, DType::f32, arguments.weights(), warn_of_damage);
  print_notes(export_gguf(loaded, numbers, arguments.gguf));
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(arguments.gguf, error);  // not a device or a pipe
  const uintmax_t bytes = is_file ? std::filesystem::file_size(arguments.gguf, error) : 0;
  report(arguments, fmt::format("written: {}: GGUF, {}\n", visible_line(arguments.gguf), type),
         {{"out", arguments.gguf},
          {"format", "gguf"},
          {"type", type},
          {"bytes", is_file ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json(nullptr)}});
}

void export_model(const ExportArguments& arguments) {
  if (arguments.hf.empty() == arguments.gguf.empty())
    fail(ErrorKind::kUsage, "say what to write: --hf DIR or --gguf FILE");
  note_on_run(arguments.checkpoint);
  if (!arguments.hf.empty())
    export_to_hf(arguments);
  else
    export_to_gguf(arguments);
}

}  // namespace

void add_export_command(Command& app) {
  auto arguments = std::make_shared<ExportArguments>();
  Command* command = app.add_subcommand("export", "Write a checkpoint's model for other programs");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  command->add_option("--hf", arguments->hf, "Write a folder for Hugging Face transformers")
      ->type_name("DIR");
  command->add_option("--gguf", arguments->gguf, "Write a GGUF file for llama.cpp")->type_name("FILE");
  command->add_option(
      "--type", arguments->type,
      "Of the weights: f32 (default with --hf), f16 (with --gguf), bf16 or, with --gguf, q8_0");
  command
      ->add_option("--file-bytes", arguments->file_bytes,
                   "With --hf: begin another file of weights beyond this size")
      ->count(1)
      ->capture_default_str();
  command->add_flag("--ema", arguments->is_averaged, "The moving averages of the weights (optimizer.ema)");
  command
      ->add_option("--average", arguments->mean_of, "The mean of the weights of a run's last N checkpoints")
      ->type_name("N")
      ->count(1, 1000);
  command->add_flag("--quiet", arguments->is_quiet, "Print warnings and errors only, and what --json prints");
  command->add_flag("--json", arguments->is_json, "Print one JSON object about what was written");
  command->callback([arguments] { export_model(*arguments); });
}

}  // namespace ingot
