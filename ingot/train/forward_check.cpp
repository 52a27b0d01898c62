#include "ingot/train/forward_check.h"

#include <algorithm>

#include "ingot/core/copy.h"

namespace ingot {
namespace {

// Presents the f32 masters of another store as the weights that layers read.
class MasterStore final : public ParamStore {
 public:
  explicit MasterStore(ParamStore& store) : ParamStore(store.list()), store_(store) {}

  const UnitBuffers& buffers(int unit) override {
    buffers_ = store_.buffers(unit);
    buffers_.compute = buffers_.master;
    return buffers_;
  }

 private:
  ParamStore& store_;
  UnitBuffers buffers_;
};

// tokens: of a micro-batch, all of which are checked.
HeadConfig exact_head(const HeadConfig& trained, int64_t tokens) {
  HeadConfig head;
  head.kind = HeadKind::kDense;
  head.precision = HeadPrecision::kF32;
  head.z_loss = trained.z_loss;
  head.label_smoothing = trained.label_smoothing;
  head.raw_ce_every = trained.raw_ce_every;
  head.raw_ce_tokens = tokens;
  return head;
}

int64_t check_length(const RunConfig& config) {
  return std::min(config.model.context, config.head.raw_ce_tokens);
}

}  // namespace

std::unique_ptr<ForwardCheck> ForwardCheck::make(const RunConfig& config, const TrainingStore& params,
                                                 const Transformer& model, const BatchShape& shape) {
  const bool is_exact =
      config.precision.compute == DType::f32 && config.precision.fp8.recipe == Fp8Recipe::kNone;
  const bool has_masters = !params.is_sharded() && params.masters() == Masters::kF32 &&
                           config.model.lora.rank == 0 && model.tp().count == 1 && config.parallel.pp == 1;
  if (config.head.raw_ce_every == 0 || is_exact || !has_masters || config.model.dropout > 0 ||
      config.train.device != Device::kCpu)
    return nullptr;
  return std::unique_ptr<ForwardCheck>(new ForwardCheck(config, shape));
}

ForwardCheck::ForwardCheck(const RunConfig& config, const BatchShape& shape)
    : B_(std::min(shape.batch,
                  (config.head.raw_ce_tokens + check_length(config) - 1) / check_length(config))),
      T_(check_length(config)),
      has_documents_(shape.document_mask),
      model_(config.model.resolved(), DType::f32, exact_head(config.head, B_ * T_)) {}

ForwardCheck::Memory ForwardCheck::lay_out(Arena& arena) const {
  Memory memory;
  memory.batch.tokens = arena.alloc(DType::i32, {B_, T_});
  memory.batch.targets = arena.alloc(DType::i32, {B_, T_});
  if (has_documents_) memory.batch.doc_start = arena.alloc(DType::i32, {B_, T_});
  memory.saved = model_.make_saved(arena, B_, T_, forward_only_plan(model_.config().layers));
  return memory;
}

size_t ForwardCheck::scratch_bytes() const {
  Arena measure("forward check");
  const size_t pass = lay_out(measure).saved.scratch_bytes();
  return measure.peak_bytes() + pass;
}

void ForwardCheck::compare(RawLoss& raw, const Tensor& losses, const MicroBatch& batch,
                           const LayerContext& trained) const {
  const Span span(trained.stream.trace, "forward check");
  const ScratchScope scope(trained.scratch);
  Memory memory = lay_out(trained.scratch);
  const int64_t T = batch.tokens.dim(1);
  const auto take_prefixes = [&](const Tensor& to, const Tensor& from) {
    const Tensor all = from.reshape({from.elements()});
    for (int64_t b = 0; b < B_; ++b)
      copy(to.reshape({B_ * T_}).rows(b * T_, (b + 1) * T_), all.rows(b * T, b * T + T_), trained.stream);
  };
  take_prefixes(memory.batch.tokens, batch.tokens);
  take_prefixes(memory.batch.targets, batch.targets);
  if (has_documents_) take_prefixes(memory.batch.doc_start, batch.doc_start);
  MasterStore masters(trained.params);
  LayerContext ctx{.params = masters,
                   .region = trained.region,
                   .scratch = trained.scratch,
                   .stream = trained.stream,
                   .dropout = {},
                   .window = trained.window};
  const RawLoss exact = model_.forward(ctx, memory.batch, memory.saved, 0, B_ * T_).raw;
  raw.forward_tokens = exact.tokens;
  if (exact.tokens == 0) return;
  double sum = 0;
  for (int64_t b = 0; b < B_; ++b)
    for (int64_t t = 0; t < T_; ++t)
      if (memory.batch.targets.as<int32_t>()[b * T_ + t] != kIgnoreIndex)
        sum += static_cast<double>(losses.as<float>()[b * T + t]);
  raw.forward_objective = exact.objective;
  raw.forward_trained = sum / static_cast<double>(exact.tokens);
}

}  // namespace ingot
