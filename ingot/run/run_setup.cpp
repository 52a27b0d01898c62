#include "ingot/run/run_setup.h"

#include <filesystem>
#include <string>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/run/record/stale_files.h"
#include "ingot/run/run_start.h"

namespace ingot {
namespace {

// Returns nullopt if some rank is interrupted.
std::optional<RunData> load_data(const RunConfig& config, const std::optional<ResumePoint>& resumed,
                                 const std::atomic<bool>& is_interrupted, Communicator& world) {
  std::optional<std::string> tokenizer;
  ChatSetup chat{.context = config.model.context, .has_pairs = config.head.dpo_beta > 0};
  if (resumed && resumed->changes.keeps_tokenizer()) {
    tokenizer = read_file(resumed->checkpoint.path / "tokenizer.json");
    chat.side = read_side_files(resumed->checkpoint.path);
  }
  struct ToldToEnd {};
  std::optional<RunData> loaded;
  try {
    const auto progress = [&](std::string_view, int64_t, int64_t) {
      if (is_interrupted) throw ToldToEnd{};
    };
    loaded = load_run_data(config.data, tokenizer, progress, chat);
  } catch (const ToldToEnd&) {
  }
  if (world.is_any(!loaded)) loaded.reset();
  return loaded;
}

void complete_vocab(RunConfig& config, const Tokenizer& tokenizer) {
  const int64_t wanted = tokenizer.vocab_size();
  if (config.model.vocab != 0 && config.model.vocab < wanted)
    fail(
        ErrorKind::kUsage, "model.vocab = {} is too small for the tokenizer's {} tokens; {}",
        config.model.vocab, wanted,
        config.train.init_from.empty() ? "leave it 0" : "leave out data.tokenizer, the model brings its own");
  if (config.model.vocab == 0) config.model.vocab = wanted;
}

}  // namespace

void complete_side_files(Tokenizer& tokenizer, const std::filesystem::path& folder) {
  const std::filesystem::path own = folder / "tokenizer.json";
  if (folder.empty() || !path_exists(own) || load_tokenizer(own)->to_json() != tokenizer.to_json()) return;
  TokenizerSideFiles side = tokenizer.side_files();
  side.fill_from(read_side_files(folder));
  tokenizer.set_side_files(std::move(side));
}

// Only rank 0's list includes changes of the layout, because only rank 0 reads the run's config.toml.
ResumePoint find_resume_point(CheckpointStore& store, const RunConfig& given, const RunFolder& folder,
                              Console& console, Communicator& world, DataMismatch data_mismatch) {
  const auto found = newest_healthy(store, console, world);
  if (!found && !store.list().empty())
    fail(ErrorKind::kData,
         "{}: there is no healthy checkpoint to resume: all are damaged or cannot be read; restore one, or "
         "start "
         "again into a new folder",
         store.folder().string());
  if (!found)
    fail(ErrorKind::kUsage, "{}: there is no healthy checkpoint to resume; {}", store.folder().string(),
         has_only_stale_files(folder.run())
             ? "the run ended before its first step: start it again without --resume, into the same folder"
             : "start again into a new folder");
  std::optional<std::filesystem::path> run_config;
  if (world.rank() == 0) run_config = folder.config();
  return {.checkpoint = *found, .changes = ResumeCheck(found->path, run_config, given, data_mismatch)};
}

std::optional<RunSetup> load_run(RunConfig config, std::optional<ResumePoint> resumed, RunFolder& folder,
                                 Console& console, const std::atomic<bool>& is_interrupted,
                                 Communicator& world) {
  std::optional<RunData> data = load_data(config, resumed, is_interrupted, world);
  if (!data) return std::nullopt;
  if (resumed)
    config = resumed->changes.with_vocab(config, *data->tokenizer);
  else
    complete_vocab(config, *data->tokenizer);
  complete_side_files(*data->tokenizer,
                      resumed ? resumed->checkpoint.path : std::filesystem::path(config.train.init_from));
  const RunInputs& inputs = folder.record().inputs.emplace(hashes_of(*data));
  const TextHashes text{.train = inputs.train_hash, .val = inputs.val_hash};
  Sampler sampler = sampler_of(config, *data);
  if (const double epochs = config.train.epochs; epochs > 0) {
    complete_epochs(config, sampler.windows_per_epoch());
    data->summary += fmt::format("; {:g} epochs are {} steps", epochs, config.train.steps);
  }
  RunTasks tasks(config, *data->tokenizer, [&](const std::string& text) { console.warning(text); });
  const RunPlan plan(config);
  return RunSetup{.folder = folder,
                  .console = console,
                  .is_interrupted = is_interrupted,
                  .world = world,
                  .resumed = std::move(resumed),
                  .data = *std::move(data),
                  .config = std::move(config),
                  .text = text,
                  .tasks = std::move(tasks),
                  .sampler = std::move(sampler),
                  .plan = plan};
}

}  // namespace ingot
