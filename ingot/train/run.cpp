#include "ingot/train/run.h"

#include "ingot/train/checkpoint.h"
#include "ingot/train/generate.h"
#include "ingot/train/run_data.h"

namespace ingot {
namespace {

void warn_damage(const std::filesystem::path& checkpoint, const std::string& what) {
  fmt::print(stderr, "warning: {}: {}; passed over\n", checkpoint.string(), what);
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
  Arena measure("activations");
  model.make_saved(measure, B, T, plan);
  Arena activations("activations", measure.peak_bytes());
  Arena scratch("scratch", model.scratch_bytes(B, T, false));
  Transformer::Saved saved = model.make_saved(activations, B, T, plan);
  Region region;
  Stream stream;
  LayerContext ctx{
      .params = *loaded.params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  Reducer alone;
  DeviceFeed feed(Device::kCpu, {}, 0);
  const EvalWalk walk{.max_tokens = options.max_tokens,
                      .has_document_mask = false,
                      .share = {.ranks = 1, .rank = 0, .batch_size = B, .global_batch = B}};
  return {.result = evaluate(model, ctx, feed, saved, text, walk, alone), .context = T};
}

void generate_from_checkpoint(const std::filesystem::path& checkpoint, const GenerateOptions& options,
                              const std::function<void(std::string_view)>& write) {
  const LoadedModel loaded = load_model(checkpoint, "", weights_of(options.is_averaged), warn_damage);
  Region alone;
  Generator generator(*loaded.model, *loaded.params, alone);
  generate_text(generator, *loaded.tokenizer, options.prompt, options.tokens, options.sample, options.seed,
                write);
}

}  // namespace ingot
