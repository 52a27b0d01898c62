#include "ingot/run/run.h"

#include <cmath>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/core/visible_text.h"
#include "ingot/memory/memory_check.h"
#include "ingot/run/run_data.h"
#include "ingot/train/generate.h"
#include "ingot/train/local_executor.h"
#include "ingot/train/recompute_choice.h"

namespace ingot {
namespace {

void warn_damage(const std::filesystem::path& checkpoint, const std::string& what) {
  fmt::print(stderr, "{}\n",
             visible_text(fmt::format("warning: {}: {}; passed over", checkpoint.string(), what)));
}

LoadedWeights weights_of(bool is_averaged) {
  return is_averaged ? LoadedWeights::kAveraged : LoadedWeights::kTrained;
}

}  // namespace

CheckpointEval evaluate_checkpoint(const std::filesystem::path& checkpoint, const EvalOptions& options) {
  const LoadedModel loaded =
      load_model(checkpoint, options.compute, weights_of(options.is_averaged), warn_damage);
  const Transformer& model = *loaded.model;
  const int64_t T = model.config().context;
  const TokenSource text = load_stream(options.data, options.text_field, *loaded.tokenizer);
  if (text.tokens() < 2)
    fail(ErrorKind::kData, "the text has {} tokens; at least 2 are needed to predict one", text.tokens());
  const int64_t windows = (text.tokens() - 1 + T - 1) / T;
  const int64_t B = std::min(options.batch_size, windows);
  const RecomputePlan plan = forward_only_plan(model.config().layers);
  const size_t scratch_bytes = model.scratch_bytes(B, T, false);
  require_memory(activation_bytes(model, B, T, plan, Device::kCpu) + scratch_bytes,
                 fmt::format("activations of {} x {} tokens", B, T));
  const BatchShape shape{.batch = B, .context = T, .vocab_size = model.config().vocab};
  LocalExecutor executor(model, {.shape = shape, .recompute = plan});
  Arena scratch("scratch", scratch_bytes);
  Region region;
  Stream stream;
  LayerContext ctx{
      .params = *loaded.params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const EvalWalk walk{.max_tokens = options.max_tokens,
                      .shape = shape,
                      .data_shard = {.ranks = 1, .rank = 0, .batch_size = B, .global_batch = B},
                      .goes_on = options.goes_on};
  const EvalResult result = evaluate(executor, ctx, text, walk, *self_communicator());
  if (!std::isfinite(result.loss))
    fail(ErrorKind::kNumerics,
         "{}: the loss on the text is {}, though every weight is finite; try --compute f32, or an earlier "
         "checkpoint",
         checkpoint.string(), result.loss);
  return {.result = result, .context = T};
}

void generate_from_checkpoint(const std::filesystem::path& checkpoint, const GenerateOptions& options,
                              const std::function<void(std::string_view)>& write) {
  const LoadedModel loaded =
      load_model(checkpoint, std::nullopt, weights_of(options.is_averaged), warn_damage);
  Region alone;
  require_memory(Generator::planned_bytes(*loaded.model), "keys and values of the whole context");
  Generator generator(*loaded.model, *loaded.params, alone);
  generate_text(generator, *loaded.tokenizer, options.prompt, options.tokens, options.sample, options.seed,
                write);
}

}  // namespace ingot
