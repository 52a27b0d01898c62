#include "ingot/nn/transformer.h"

#include "ingot/core/copy.h"
#include "ingot/ops/int8_matrix.h"
#include "ingot/ops/residual_add.h"
#include "ingot/ops/rope.h"

namespace ingot {
namespace {

RopeScaling::Kind kind_of(RopeScalingKind kind) {
  switch (kind) {
    case RopeScalingKind::kLinear:
      return RopeScaling::Kind::kLinear;
    case RopeScalingKind::kLlama3:
      return RopeScaling::Kind::kLlama3;
    case RopeScalingKind::kYarn:
      return RopeScaling::Kind::kYarn;
    case RopeScalingKind::kNone:
      break;
  }
  return RopeScaling::Kind::kNone;
}

RopeScaling scaling_of(const RopeScalingConfig& c) {
  return {.kind = kind_of(c.kind),
          .factor = c.factor,
          .low_freq_factor = c.low_freq_factor,
          .high_freq_factor = c.high_freq_factor,
          .beta_fast = c.beta_fast,
          .beta_slow = c.beta_slow,
          .original_context = c.original_context};
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, DType compute, const HeadConfig& head,
                         const Fp8LinearConfig& fp8, const TensorParallel& tp)
    : config_(config), compute_(compute), tp_(tp) {
  INGOT_CHECK(config.vocab > 0 && config.kv_heads > 0 && config.head_dim > 0 && config.ffn > 0,
              "Transformer: the config must be resolved and its vocab set");
  tp.validate(config);
  wte_ = params_.add(table_spec("embedding.weight", ParamRole::kEmbedding, embedding_unit()));
  if (config.positions == PositionKind::kLearned)
    wpe_ = params_.add({.name = "positions.weight",
                        .shape = {config.context, config.width},
                        .role = ParamRole::kPosition,
                        .init_std = config.init_std,
                        .unit = embedding_unit()});
  for (int l = 0; l < config.layers; ++l) {
    const std::string prefix = fmt::format("blocks.{}.", l);
    AttentionLayer attention(params_, l + 1, prefix, config, tp, l);
    MlpLayer mlp(params_, l + 1, prefix, config, tp, l);
    attention.use_fp8(params_, fp8, fp8_tensors_);
    mlp.use_fp8(params_, fp8, fp8_tensors_);
    blocks_.push_back({std::move(attention), std::move(mlp)});
  }
  final_norm_ = Norm(params_, head_unit(), "head.norm", config, tp);
  if (!config.is_tied) lm_head_ = params_.add(table_spec("head.weight", ParamRole::kHead, head_unit()));
  if (fp8.recipe != Fp8Recipe::kNone && fp8_tensors_.empty())
    fail(ErrorKind::kUsage,
         "precision.fp8_layers selects no linear whose dims are multiples of 16; the first linear is "
         "blocks.0.attention.qkv, {} x {}",
         config.qkv_width(), config.width);
  head_ = LossHead(config, head, compute, head_weight(), tp);
  head_.set_first_counter(static_cast<int>(fp8_tensors_.size()));
  for (const std::string& name : head_.fp8_tensors()) fp8_tensors_.push_back(name);
  if (config.positions == PositionKind::kRope) {
    rope_.resize(static_cast<size_t>(config.context * config.head_dim));
    rope_table_ = Tensor(rope_.data(), DType::f32, {config.context, config.head_dim});
    rope_table(rope_table_, config.rope_theta, scaling_of(config.rope_scaling));
  }
}

// The spec of a (Vp, C) table, whose rows are sharded over the tensor-parallel ranks.
ParamSpec Transformer::table_spec(const char* name, ParamRole role, int unit) const {
  const int64_t Vp = config_.vocab_padded(), C = config_.width;
  const bool is_zero = role == ParamRole::kHead && config_.projection_init == ProjectionInit::kZero;
  ParamSpec spec{.name = name,
                 .shape = {tp_.slice(Vp), C},
                 .role = role,
                 .init = is_zero ? Init::kZero : Init::kNormal,
                 .init_std = role == ParamRole::kHead ? config_.head_std() : config_.init_std,
                 .padding_rows = Vp - config_.vocab,
                 .is_overwritten = role == ParamRole::kHead || config_.is_tied,
                 .unit = unit};
  if (tp_.count > 1)
    spec.slice = {.full = {Vp, C}, .rows = {{.first = tp_.first(Vp), .count = tp_.slice(Vp)}}};
  return spec;
}

namespace {

// Memory of one slot: a tensor for each result that some block of the slot shares.
BlockPlan shared_places(const RecomputePlan& plan, int slot) {
  const auto place = [&](auto of) {
    for (const BlockPlan& block : plan.blocks)
      if (block.slot == slot && of(block) == Place::kShared) return Place::kOwn;
    return Place::kNone;
  };
  return {.attention = {.x = place([](const BlockPlan& b) { return b.attention.x; }),
                        .h = place([](const BlockPlan& b) { return b.attention.h; }),
                        .heads = place([](const BlockPlan& b) { return b.attention.heads; }),
                        .post = Place::kNone,
                        .has_codes = false},
          .mlp = {.x = place([](const BlockPlan& b) { return b.mlp.x; }),
                  .h = place([](const BlockPlan& b) { return b.mlp.h; }),
                  .pre = place([](const BlockPlan& b) { return b.mlp.pre; }),
                  .act = place([](const BlockPlan& b) { return b.mlp.act; }),
                  .post = Place::kNone,
                  .has_codes = false},
          .slot = slot};
}

}  // namespace

Transformer::Saved Transformer::make_saved(Arena& arena, int64_t B, int64_t T) const {
  return make_saved(arena, B, T, recompute_plan({}, config_.layers));
}

Transformer::Saved Transformer::make_saved(Arena& arena, int64_t B, int64_t T,
                                           const RecomputePlan& plan) const {
  return make_saved(arena, B, T, plan, all_units());
}

Transformer::Saved Transformer::make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan,
                                           UnitRange units) const {
  INGOT_CHECK(0 <= units.first && units.first < units.end && units.end <= head_unit() + 1,
              "Transformer::make_saved: units [{}, {}) of {}", units.first, units.end, head_unit() + 1);
  INGOT_CHECK(plan.blocks.size() == block_count(units), "Transformer::make_saved: a plan of {} blocks for {}",
              plan.blocks.size(), block_count(units));
  INGOT_CHECK(plan.keeps_embedding || has_embedding(units),
              "Transformer::make_saved: what came from another stage cannot be made again");
  const int64_t N = B * T, n = tp_.rows(N);
  INGOT_CHECK(plan.is_forward_only || !tp_.has_partial_gradients() || n < N,
              "Transformer::make_saved: {} ranks cannot split {} tokens", tp_.count, N);
  Saved saved;
  saved.B = B;
  saved.T = T;
  saved.units = units;
  saved.plan = plan;
  saved.x = arena.alloc(compute_, {n, config_.width});
  std::vector<AttentionLayer::Saved> shared_attention;
  std::vector<MlpLayer::Saved> shared_mlp;
  for (int slot = 0; slot < plan.slots(); ++slot) {
    const BlockPlan shared = shared_places(plan, slot);
    shared_attention.push_back(
        blocks_.front().attention.make_saved(arena, B, T, compute_, shared.attention, {}));
    shared_mlp.push_back(blocks_.front().mlp.make_saved(arena, N, compute_, shared.mlp, {}));
  }
  for (size_t l = 0; l < plan.blocks.size(); ++l) {
    BlockPlan block = plan.blocks[l];
    const auto slot = static_cast<size_t>(block.slot);
    // The first block's input can use the memory of the final norm's input: forward writes that after it
    // last reads the embedding, and backward no longer needs it when it recomputes the embedding.
    const bool has_final_memory = l == 0 && !plan.keeps_embedding;
    if (has_final_memory) block.attention.x = Place::kNone;
    saved.attention.push_back(
        blocks_[l].attention.make_saved(arena, B, T, compute_, block.attention, shared_attention[slot]));
    if (has_final_memory) saved.attention.back().x = saved.x;
    saved.attention.back().norm = blocks_[l].attention.make_stats(arena, N);
    saved.mlp.push_back(blocks_[l].mlp.make_saved(arena, N, compute_, block.mlp, shared_mlp[slot]));
    saved.mlp.back().norm = blocks_[l].mlp.make_stats(arena, N);
  }
  saved.d = arena.alloc(compute_, {n, config_.width});
  if (!has_head(units)) return saved;
  saved.norm = final_norm_.make_stats(arena, n);
  saved.losses = arena.alloc(DType::f32, {N});
  saved.is_correct = arena.alloc(DType::u8, {N});
  saved.sums = arena.alloc(DType::u8, {1 + kCheckSums, kLossTotalsBytes});
  return saved;
}

void Transformer::cast_weights(LayerContext& ctx) const {
  for (const Block& block : blocks_) {
    block.attention.cast_weights(ctx);
    block.mlp.cast_weights(ctx);
  }
}

std::vector<Fp8State::Weight> Transformer::fp8_weights() const {
  std::vector<Fp8State::Weight> weights;
  for (const Block& block : blocks_) {
    block.attention.add_fp8_weights(weights);
    block.mlp.add_fp8_weights(weights);
  }
  return weights;
}

void Transformer::bring_to_device(Stream& stream) {
  if (stream.device == Device::kCpu || !rope_table_ || device_tables_) return;
  Arena measure("rotary table", Memory::kDevice);
  measure.alloc(DType::f32, rope_table_.shape);
  device_tables_.emplace("rotary table", measure.peak_bytes(), Memory::kDevice);
  device_rope_table_ = device_tables_->alloc(DType::f32, rope_table_.shape);
  copy(device_rope_table_, rope_table_, stream);
  synchronize(stream);
}

Transformer::HeadScratch Transformer::head_scratch(Arena& arena, int64_t N, bool has_grads) const {
  HeadScratch scratch;
  scratch.h = all_rows(arena, N);
  if (has_grads) scratch.dh = all_rows(arena, N);
  return scratch;
}

Transformer::EmbeddingScratch Transformer::embedding_scratch(Arena& arena, int64_t N,
                                                             bool has_dropout) const {
  EmbeddingScratch scratch;
  if (has_dropout) scratch.d = own_rows(arena, N);
  scratch.d_all = all_rows(arena, N);
  return scratch;
}

void Transformer::plan_units(Arena& arena, int64_t B, int64_t T, bool is_training,
                             const CacheShape& caches) const {
  {
    const ScratchScope scope(arena);
    all_rows(arena, B * T);  // embed() uses these
  }
  for (const Block& block : blocks_) {  // the blocks differ in which linears are in FP8
    block.attention.plan_forward(arena, B, T, compute_, is_training, caches);
    block.mlp.plan_forward(arena, B * T, compute_, is_training);
  }
}

size_t Transformer::scratch_bytes(int64_t B, int64_t T, bool is_training, Device device) const {
  const int64_t N = B * T;
  Arena arena("scratch plan", memory_of(device));
  {
    const ScratchScope scope(arena);
    own_rows(arena, N);
    plan_units(arena, B, T, is_training);
    head_scratch(arena, N, is_training);
    head_.plan(arena, N, is_training);
  }
  if (!is_training) return arena.peak_bytes();
  final_norm_.plan_backward(arena);
  {
    const ScratchScope scope(arena);  // recompute() uses what follows
    own_rows(arena, N);
    plan_units(arena, B, T, is_training);
  }
  for (const Block& block : blocks_) {
    block.mlp.plan_backward(arena, N, compute_);
    block.attention.plan_backward(arena, B, T, compute_);
  }
  embedding_scratch(arena, N, true);
  return arena.peak_bytes();
}

void Transformer::embed(LayerContext& ctx, const Tensor& tokens, const Tensor& x,
                        const CachedPositions& cached) const {
  const ScratchScope scope(ctx.scratch);
  const int64_t N = tokens.elements(), T = cached.learned ? N : tokens.dim(1);
  const Tensor all = all_rows(ctx.scratch, N);
  const Tensor partial = all ? all : x;
  Tensor wpe = cached.learned ? cached.learned : ctx.params.weight(wpe_);
  if (tp_.rank != 0) wpe = {};  // one rank adds it to the sum
  if (const Int8Matrix* codes = ctx.params.int8_weight(wte_))
    int8_embedding(partial, tokens.reshape({N}), *codes, wpe, ctx.stream);
  else
    embedding_slice_forward(partial, tokens.reshape({N}), table_slice(ctx.params.weight(wte_)), wpe, T, 0,
                            ctx.stream);
  ctx.region.leave(x, partial, ctx.stream);
  apply_dropout(ctx, x, 0, tp_.first_row(N));
}

void Transformer::expect_documents() {
  for (Block& b : blocks_) b.attention.expect_documents();
}

void Transformer::run_units(LayerContext& ctx, const MicroBatch& batch, Saved& saved, const Tensor& h) const {
  ctx.params.prefetch(saved.units.first);
  if (has_embedding(saved.units)) {
    if (saved.units.first + 1 < saved.units.end) ctx.params.prefetch(saved.units.first + 1);
    embed(ctx, batch.tokens, stage_input(saved));
  }
  run_blocks(ctx, batch.documents(), rope_table_on(ctx.stream), saved, h, {});
}

void Transformer::run_blocks(LayerContext& ctx, const DocumentMask& documents, const Tensor& rope,
                             Saved& saved, const Tensor& h, const std::vector<CachedTokens>& cached) const {
  // h holds the delta of the residual stream until the end. Generation leaves the sum to the norm on every device, as
  // its products take the time of reading the weights.
  const auto memory = [&](const Tensor& sum) {
    return ResidualMemory{.delta = h, .sum = cached.empty() ? sum : Tensor{}};
  };
  ResidualStream residual{stage_input(saved), {}};
  for (size_t l = 0; l < saved.attention.size(); ++l) {
    const int unit = block_unit(first_block(saved.units) + l);
    if (unit + 1 < saved.units.end) ctx.params.prefetch(unit + 1);
    const NamedRange range(ctx.stream.trace, "block", first_block(saved.units) + l);
    residual = block(saved, l).attention.forward(ctx, saved.attention[l], residual, memory(saved.mlp[l].x),
                                                 documents, rope, cached.empty() ? nullptr : &cached[l]);
    residual = block(saved, l).mlp.forward(ctx, saved.mlp[l], residual, memory(block_output(saved, l)));
  }
  if (has_head(saved.units))
    final_norm_.forward(ctx, h, saved.norm, saved.x, residual);
  else
    add_delta(ctx, saved.x, residual);
}

LossSums read_sums(const Tensor& sums) {
  const LossTotals all = read_loss_sums(sums_row(sums, 0));
  return {.loss = all.loss,
          .counted = all.counted,
          .correct = all.correct,
          .raw = read_raw_loss(sums.rows(1, 1 + kCheckSums))};
}

void LossSums::add(const LossSums& other) {
  loss += other.loss;
  counted += other.counted;
  correct += other.correct;
  head_tiles += other.head_tiles;
  head_filtered += other.head_filtered;
  if (other.raw.tokens > 0) raw = other.raw;
}

LossSums Transformer::forward(LayerContext& ctx, const MicroBatch& batch, Saved& saved, float grad_scale,
                              int64_t checked_tokens) const {
  const int64_t N = saved.B * saved.T;
  check_tensor(batch.tokens, DType::i32, {saved.B, saved.T}, "Transformer::forward: tokens");
  check_tensor(batch.targets, DType::i32, {saved.B, saved.T}, "Transformer::forward: targets");
  const ScratchScope scope(ctx.scratch);
  const bool has_grads = grad_scale != 0;
  const Tensor own = own_rows(ctx.scratch, N);
  run_units(ctx, batch, saved, own);
  if (!has_head(saved.units)) return {};

  const HeadScratch scratch = head_scratch(ctx.scratch, N, has_grads);
  const Tensor h = scratch.h ? scratch.h : own, dh = scratch.dh ? scratch.dh : saved.d;
  ctx.region.enter(h, own, ctx.stream);
  const Tensor all_targets = batch.targets.reshape({N});
  if (has_grads) open_gradients(ctx, params_[head_weight()].unit, true);
  const LinearCrossEntropyReport report = head_.forward(
      ctx, {.losses = saved.losses, .is_correct = saved.is_correct, .dx = has_grads ? dh : Tensor{}}, h,
      all_targets, grad_scale);
  if (has_grads) ctx.region.enter_backward(saved.d, dh, ctx.stream);
  fill_zero(saved.sums, ctx.stream);
  loss_sums(sums_row(saved.sums, 0), saved.losses, saved.is_correct, all_targets, ctx.stream);
  if (checked_tokens > 0)
    head_.check(ctx, saved.sums.rows(1, 1 + kCheckSums), saved.losses, h, all_targets, checked_tokens);
  LossSums sums;
  if (saved.sums.device == Device::kCpu) sums = read_sums(saved.sums);
  sums.head_tiles = report.tiles;
  sums.head_filtered = report.filtered_tiles;
  return sums;
}

void Transformer::recompute(LayerContext& ctx, const MicroBatch& batch, const Saved& saved, size_t begin,
                            size_t end) const {
  const bool makes_input = begin == 0 && !saved.plan.keeps_embedding;
  const RecomputePlan::Again last = saved.plan.again(end - 1);  // a longer segment is overwritten as a whole
  if (!makes_input && !last.heads && !last.pre) return;
  const Span span(ctx.stream.trace, "recompute");
  const ScratchScope scope(ctx.scratch);
  const Tensor h = own_rows(ctx.scratch, saved.B * saved.T);
  if (makes_input) embed(ctx, batch.tokens, saved.attention.front().x);
  ResidualStream residual{saved.attention[begin].x, {}};
  for (size_t l = begin; l < end; ++l) {
    const RecomputePlan::Again again = saved.plan.again(l);
    const ResidualMemory after_attention{.delta = again.residual ? h : Tensor{}, .sum = saved.mlp[l].x};
    if (again.heads)
      residual = block(saved, l).attention.forward(ctx, saved.attention[l], residual, after_attention,
                                                   batch.documents(), rope_table_on(ctx.stream), nullptr);
    if (!again.residual) residual = {saved.mlp[l].x, {}};
    const bool goes_on = l + 1 < end;
    const ResidualMemory after_mlp{.delta = goes_on ? h : Tensor{}, .sum = block_output(saved, l)};
    if (again.pre) residual = block(saved, l).mlp.forward(ctx, saved.mlp[l], residual, after_mlp);
  }
}

void Transformer::open_gradients(LayerContext& ctx, int unit, bool has_products) const {
  const OldGradients old = ctx.params.open_gradients(unit);
  ctx.overwrites_gradients = has_products && old != OldGradients::kNone;
  if (old == OldGradients::kNone) return;
  for (size_t p = 0; p < params_.specs().size(); ++p) {
    const int id = static_cast<int>(p);
    const ParamSpec& spec = params_[id];
    const bool is_zeroed = spec.is_overwritten ? !has_products : old == OldGradients::kAll;
    if (spec.unit == unit && is_zeroed) fill_zero(ctx.params.grad(id), ctx.stream);
  }
}

void Transformer::backward(LayerContext& ctx, const MicroBatch& batch, Saved& saved) const {
  INGOT_CHECK(!saved.plan.is_forward_only, "Transformer::backward: forward kept nothing");
  const int64_t N = saved.B * saved.T;
  Tensor d = saved.d;  // (n, C), with the amax of the cast that is next, if d itself is cast
  if (has_head(saved.units)) {
    if (!saved.attention.empty()) d = last_block(saved).mlp.with_d_amax(ctx, d);
    const bool has_params = head_unit() < params_.units();  // false: no gain and a tied table
    if (has_params) open_gradients(ctx, head_unit(), false);
    final_norm_.backward(ctx, d, saved.d, saved.x, saved.norm, {});
    if (has_params) ctx.params.start_reduction(head_unit());
  }
  for (size_t l = saved.attention.size(); l-- > 0;) {
    const int unit = block_unit(first_block(saved.units) + l);
    const NamedRange range(ctx.stream.trace, "block", first_block(saved.units) + l);
    if (unit > saved.units.first) ctx.params.prefetch(unit - 1);
    if (saved.plan.segment_end(l) == l + 1) recompute(ctx, batch, saved, saved.plan.segment_begin(l), l + 1);
    const auto& [attention, mlp] = block(saved, l);
    open_gradients(ctx, unit, true);
    const Tensor d_middle = attention.with_d_amax(ctx, saved.d);
    mlp.backward(ctx, saved.mlp[l], d_middle, d);
    d = l > 0 ? block(saved, l - 1).mlp.with_d_amax(ctx, saved.d) : saved.d;
    attention.backward(ctx, saved.attention[l], d, d_middle, batch.documents(), rope_table_on(ctx.stream));
    ctx.params.start_reduction(unit);
  }
  if (!has_embedding(saved.units)) {
    if (!has_head(saved.units) || head_weight() != wte_) return;
    open_gradients(ctx, embedding_unit(), false);  // the head's forward added to it, maybe long ago
    return ctx.params.start_reduction(embedding_unit());
  }
  const ScratchScope scope(ctx.scratch);
  const EmbeddingScratch scratch = embedding_scratch(ctx.scratch, N, ctx.dropout.p > 0);
  const Tensor own = dropout_gradient(ctx, scratch.d, saved.d, 0, tp_.first_row(N));
  const Tensor d_all = scratch.d_all ? scratch.d_all : own;
  ctx.region.leave_backward(d_all, own, ctx.stream);
  open_gradients(ctx, embedding_unit(), false);
  embedding_slice_backward(table_slice(ctx.params.grad(wte_)), ctx.params.grad(wpe_), d_all,
                           batch.tokens.reshape({N}), saved.T, 0, ctx.stream);
  ctx.params.start_reduction(embedding_unit());
}

}  // namespace ingot
