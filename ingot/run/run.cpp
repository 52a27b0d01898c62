#include "ingot/run/run.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ingot/checkpoint/served_model.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/file.h"
#include "ingot/infer/generate.h"
#include "ingot/memory/memory_check.h"
#include "ingot/nn/int8_weights.h"
#include "ingot/run/data/load_stream.h"
#include "ingot/run/trained_text.h"
#include "ingot/train/local_executor.h"
#include "ingot/train/recompute_choice.h"

namespace ingot {
namespace {

// Returns the [data] section of the run that wrote a checkpoint; the defaults if it cannot be read.
DataConfig data_config_of(const std::filesystem::path& checkpoint) {
  if (!path_exists(checkpoint / "config.toml")) return {};
  try {
    ConfigBuilder builder;
    builder.add_toml(read_file(checkpoint / "config.toml"), "config.toml");
    return builder.config().data;
  } catch (const Error&) {
    return {};
  }
}

// Returns 8-bit weights in the model's compute dtype.
std::unique_ptr<ParamStore> widened(const Transformer& model, ParamStore& weights) {
  const Masters masters = model.compute() == DType::f32 ? Masters::kF32 : Masters::kNone;
  auto all = std::make_unique<ResidentStore>(model.params(), model.compute(), false, masters);
  Stream stream;
  dynamic_cast<Int8Weights&>(weights).copy_to(*all, stream);
  return all;
}

}  // namespace

CheckpointEval evaluate_checkpoint(const std::filesystem::path& checkpoint, const EvalOptions& options) {
  LoadedModel loaded = load_served(checkpoint, options.model);
  Transformer& model = *loaded.model;
  if (options.model.has_int8_weights) loaded.params = widened(model, *loaded.params);
  const int64_t T = model.config().context;
  const DataConfig trained = data_config_of(loaded.path);
  const ChatFormat chat{.tokenizer = *loaded.tokenizer,
                        .template_name = trained.chat_template,
                        .source = loaded.path.string(),
                        .loss_on = trained.loss_on,
                        .context = T};
  loaded.tokenizer->set_finds_special(trained.finds_special);
  const TokenSource text = load_stream(options.data, options.text_field, *loaded.tokenizer, {}, &chat);
  if (text.tokens() < 2)
    fail(ErrorKind::kData, "the text has {} tokens; at least 2 are needed to predict one", text.tokens());
  const int64_t windows = (text.tokens() - 1 + T - 1) / T;
  const int64_t B = std::min(options.batch_size, windows);
  if (text.is_masked()) model.expect_documents();
  const RecomputePlan plan = forward_only_plan(model.config().layers);
  const size_t scratch_bytes = model.scratch_bytes(B, T, false);
  require_memory(activation_bytes(model, B, T, plan, Device::kCpu) + scratch_bytes,
                 fmt::format("activations of {} x {} tokens", B, T));
  const BatchShape shape{
      .batch = B, .context = T, .vocab_size = model.config().vocab, .document_mask = text.is_masked()};
  LocalExecutor executor(model, {.shape = shape, .recompute = plan});
  Arena scratch("scratch", scratch_bytes);
  Region region;
  Stream stream;
  LayerContext ctx{
      .params = *loaded.params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const EvalWalk walk{.max_tokens = options.max_tokens,
                      .shape = shape,
                      .data_shard = {.ranks = 1, .rank = 0, .batch_size = B, .global_batch = B},
                      .should_continue = options.should_continue};
  const EvalResult result = evaluate(executor, ctx, text, walk, *self_communicator());
  if (!std::isfinite(result.loss))
    fail(ErrorKind::kNumerics,
         "{}: the loss on the text is {}, though every weight is finite; try --compute f32, or an earlier "
         "checkpoint",
         checkpoint.string(), result.loss);
  return {.result = result,
          .context = T,
          .checkpoint = loaded.path,
          .warning = trained_text_warning(loaded.path, options.data, text)};
}

void generate_from_checkpoint(const std::filesystem::path& checkpoint, const GenerateOptions& options,
                              const TextsInOrder::Sink& write,
                              const std::function<void(const std::filesystem::path&)>& read) {
  ServedModel served(checkpoint, options.model);
  if (read) read(served.path());
  const auto count = std::ssize(options.prompts);
  const int64_t slots = std::clamp<int64_t>(options.batch, 1, std::max<int64_t>(count, 1));
  const InferBytes bytes = Generator::planned_bytes(served.model(), {.slots = slots}, options.model.device);
  served.make_ready(bytes.host, bytes.device, fmt::format("keys and values of {} whole contexts", slots));
  Region alone;
  Generator generator(served.model(), served.params(), alone, served.stream(), {.slots = slots});
  TextsInOrder in_order(options.prompts.size(), write);
  const TextRequest request{.prompts = options.prompts,
                            .finds_special = options.finds_special,
                            .tokens = options.tokens,
                            .sample = options.sample,
                            .seed = options.seed};
  generate_texts(generator, served.tokenizer(), request,
                 [&](size_t i, std::string_view piece, bool is_last) { in_order.add(i, piece, is_last); });
}

}  // namespace ingot
