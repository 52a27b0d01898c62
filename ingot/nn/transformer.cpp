#include "ingot/nn/transformer.h"

#include <algorithm>

#include "ingot/core/copy.h"
#include "ingot/nn/program/check.h"
#include "ingot/ops/rope.h"

namespace ingot {

Transformer::Transformer(const ModelConfig& config, DType compute, const HeadConfig& head,
                         const Fp8LinearConfig& fp8, const TensorParallel& tp,
                         const BlockExtension& extension)
    : config_(config), compute_(compute), tp_(tp), has_fp8_(fp8.recipe != Fp8Recipe::kNone) {
  INGOT_CHECK(config.vocab > 0 && config.kv_heads > 0 && config.head_dim > 0 && config.ffn > 0,
              "Transformer: the config must be resolved and its vocab set");
  tp.validate(config);
  layers_ = declare_model(params_, config, tp, fp8, extension);
  std::vector<std::string>& fp8_tensors = layers_.fp8_tensors;
  if (has_fp8_ && fp8_tensors.empty())
    fail(ErrorKind::kUsage,
         "precision.fp8_layers selects no linear whose dims are multiples of 16; the first linear is "
         "blocks.0.attention.qkv, {} x {}",
         config.qkv_width(), config.width);
  head_ = LossHead(config, head, compute, head_weight(), tp);
  head_.set_first_counter(static_cast<int>(fp8_tensors.size()));
  for (const std::string& name : head_.fp8_tensors()) fp8_tensors.push_back(name);
  if (config.positions == PositionKind::kRope) {
    rope_.resize(static_cast<size_t>(config.context * config.rotated_dims()));
    rope_table_ = Tensor(rope_.data(), DType::f32, {config.context, config.rotated_dims()});
    rope_table(rope_table_, config.rope_theta, config.rope_scaling);
  }
}

Transformer::Saved Transformer::make_saved(Arena& arena, int64_t B, int64_t T) const {
  return make_saved(arena, B, T, recompute_plan({}, config_.layers));
}

Transformer::Saved Transformer::make_saved(Arena& arena, int64_t B, int64_t T,
                                           const RecomputePlan& plan) const {
  return make_saved(arena, B, T, plan, all_units());
}

Transformer::Saved Transformer::make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan,
                                           UnitRange units, size_t least_slot_bytes) const {
  INGOT_CHECK(0 <= units.first && units.first < units.end && units.end <= head_unit() + 1,
              "Transformer::make_saved: units [{}, {}) of {}", units.first, units.end, head_unit() + 1);
  INGOT_CHECK(plan.blocks.size() == block_count(units), "Transformer::make_saved: a plan of {} blocks for {}",
              plan.blocks.size(), block_count(units));
  INGOT_CHECK(plan.keeps_embedding || has_embedding(units),
              "Transformer::make_saved: what came from another stage cannot be made again");
  INGOT_CHECK(plan.is_forward_only || !tp_.has_partial_gradients() || tp_.rows(B * T) < B * T,
              "Transformer::make_saved: {} ranks cannot split {} tokens", tp_.count, B * T);
  Saved saved;
  saved.B = B;
  saved.T = T;
  saved.units = units;
  saved.plan = plan;
  size_t slot_bytes = least_slot_bytes;
  if (!plan.is_forward_only) {
    saved.training =
        build(Use::kTraining, B, T, plan, units, arena.device(), {.least_slot_bytes = slot_bytes});
    slot_bytes = std::max(slot_bytes, saved.training.slot_bytes);
  }
  saved.evaluation =
      build(Use::kEvaluation, B, T, plan, units, arena.device(), {.least_slot_bytes = slot_bytes});
  saved.take_slot(arena, slot_bytes);
  return saved;
}

void Transformer::Saved::take_slot(Arena& arena, size_t least_bytes) {
  const size_t bytes = std::max({least_bytes, training.slot_bytes, evaluation.slot_bytes});
  slot = arena.alloc(DType::u8, {static_cast<int64_t>(bytes)});
  if (training.program) in_training = training.values(slot);
  in_evaluation = evaluation.values(slot);
}

size_t Transformer::slot_bytes(int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units,
                               Device device) const {
  const Use use = plan.is_forward_only ? Use::kEvaluation : Use::kTraining;
  return build(use, B, T, plan, units, device, {.is_measured = true}).slot_bytes;
}

size_t Transformer::scratch_bytes(int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units,
                                  Device device) const {
  Arena measure("scratch plan", memory_of(device));
  return make_saved(measure, B, T, plan, units).scratch_bytes();
}

size_t Transformer::scratch_bytes(int64_t B, int64_t T, bool is_training, Device device) const {
  if (!is_training) return scratch_bytes(B, T, forward_only_plan(config_.layers), all_units(), device);
  return scratch_bytes(B, T, recompute_plan({}, config_.layers), all_units(), device);
}

Transformer::Values Transformer::Built::values(const Tensor& slot) const {
  const auto at = [&](ValueId id) { return program->tensor(id, slot); };
  return {.input = at(input),
          .x = at(x),
          .d_x = at(d_x),
          .d_input = at(d_input),
          .d = at(losses.d),
          .losses = at(losses.losses),
          .is_correct = at(losses.is_correct),
          .sums = at(losses.sums)};
}

ValueId Transformer::message_value(Builder& b, const char* name, size_t block) const {
  const Packed message = message_before(b.spec(), layers_, block);
  return b.value(name, compute_, message.shape, message.placement, Role::kStream);
}

Shape Transformer::message_shape(int first, int64_t B, int64_t T) const {
  return message_before({.B = B, .T = T, .tp = tp_}, layers_, first_block({first, first + 1})).shape;
}

bool Transformer::trains_below(int unit) const {
  return std::ranges::any_of(params_.specs(),
                             [&](const ParamSpec& spec) { return spec.is_trained && spec.unit < unit; });
}

int64_t Transformer::largest_message(int64_t B, int64_t T) const {
  int64_t most = 0;
  for (int unit = 1; unit <= head_unit(); ++unit) most = std::max(most, message_shape(unit, B, T).elements());
  return most;
}

Transformer::Built Transformer::build(Use use, int64_t B, int64_t T, const RecomputePlan& plan,
                                      UnitRange units, Device device, const BuildOptions& options) const {
  const bool is_training = use == Use::kTraining;
  Builder b({.compute = compute_,
             .device = device,
             .B = B,
             .T = T,
             .tp = tp_,
             .is_training = is_training,
             .has_dropout = is_training && config_.dropout > 0,
             .has_documents = has_documents_,
             .has_fp8 = is_training && has_fp8_,
             .joins_products = options.joins_products,
             .caches = options.caches,
             .plan = plan,
             .first_block = static_cast<int>(first_block(units)),
             .params = &params_});
  Built built;
  StreamValues stream;
  b.enter(scope_of(units.first), "");
  if (has_embedding(units)) {
    stream = begin_stream(b, layers_);
  } else {
    built.input = message_value(b, "input", first_block(units));
    stream = read_message(b, built.input, layers_, first_block(units));
  }
  const size_t end_block = first_block(units) + block_count(units);
  for (size_t l = first_block(units); l < end_block; ++l) run_block(b, stream, layers_, l);
  Gradients gradients;
  if (has_head(units)) {
    b.enter({.unit = head_unit()}, "head.");
    built.norm = norm(b, stream.x, layers_.final_norm);
    fuse(b, use != Use::kGeneration);
    if (use != Use::kGeneration) built.losses = losses(b, built.norm, head_);
    if (is_training) gradients.set(built.norm, built.losses.d);
  } else {
    b.enter(scope_of(units.end - 1), "");
    built.x = message_of(b, stream, layers_, end_block);
    fuse(b, use != Use::kGeneration);
    b.enter(scope_of(units.end - 1), "");
    if (is_training && trains_below(units.end))
      gradients.set(built.x, built.d_x = message_value(b, "d output", end_block));
  }
  size_t border = b.ops().size();
  if (is_training) {
    differentiate(b, gradients);
    if (!has_embedding(units) && trains_below(units.first)) built.d_input = gradients.get(built.input);
    drop_unused_gradients(b, border, built.d_input);
    recompute(b, border);
  }
  border = call_store(b, border, params_, units);
  observe_amaxes(b);
  check_placements(b.ops(), b.values(), params_);
  if (is_training) check_gradients(b.ops(), params_, units);
  const size_t end = b.ops().size();
  std::vector<Pinned> pinned;
  const auto pin = [&](ValueId id, size_t first, size_t last) {
    if (id != kNoValue) pinned.push_back({id, first, last});
  };
  pin(built.input, 0, 1);
  pin(built.x, border - 1, border);
  pin(built.d_x, border, border + 1);
  pin(built.d_input, end - 1, end);
  if (use == Use::kGeneration) pin(built.norm, border - 1, border);
  for (const ValueId id : {built.losses.losses, built.losses.is_correct, built.losses.sums})
    pin(id, border - 1, end);
  if (options.is_measured) {
    built.slot_bytes = kept_bytes(b, border, pinned);
    return built;
  }
  built.program = std::make_shared<Program>(std::move(b), border, pinned, options.least_slot_bytes);
  built.slot_bytes = built.program->slot_bytes();
  return built;
}

void Transformer::cast_weights(LayerContext& ctx) const {
  for (const BlockLayers& block : layers_.blocks)
    for (const LinearLayer* layer : block.linears())
      if (ctx.fp8 && ctx.fp8->held(layer->fp8.first_tensor + 1)) {
        ctx.params.wait_weights(params_[layer->weight].unit);
        layer->fp8.cast_weight(ctx.params.weight(layer->weight), Fp8Context::of(ctx));
      }
}

std::vector<Fp8State::Weight> Transformer::fp8_weights() const {
  std::vector<Fp8State::Weight> weights;
  for (const BlockLayers& block : layers_.blocks)
    for (const LinearLayer* layer : block.linears())
      if (layer->fp8.has_one_scale())
        weights.push_back({layer->fp8.first_tensor + 1, {layer->out, layer->in}});
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

LossSums read_sums(const Tensor& sums) {
  const LossTotals all = read_loss_sums(sums_row(sums, 0));
  return {.loss = all.loss,
          .counted = all.counted,
          .correct = all.correct,
          .raw = read_raw_loss(sums.rows(1, 1 + kCheckSums)),
          .rewards = {read_loss_sums(sums_row(sums, 1)).loss, read_loss_sums(sums_row(sums, 2)).loss}};
}

void LossSums::add(const LossSums& other) {
  loss += other.loss;
  counted += other.counted;
  correct += other.correct;
  head_tiles += other.head_tiles;
  head_filtered += other.head_filtered;
  if (other.raw.tokens > 0) raw = other.raw;
  for (size_t i = 0; i < rewards.size(); ++i) rewards[i] += other.rewards[i];
}

LossSums Transformer::forward(LayerContext& ctx, const MicroBatch& batch, const Saved& saved,
                              float grad_scale, int64_t checked_tokens) const {
  check_tensor(batch.tokens, DType::i32, {saved.B, saved.T}, "Transformer::forward: tokens");
  check_tensor(batch.targets, DType::i32, {saved.B, saved.T}, "Transformer::forward: targets");
  const bool is_training = grad_scale != 0;
  INGOT_CHECK(!is_training || saved.training.program, "Transformer::forward: the plan is for evaluation");
  LinearCrossEntropyReport report;
  const Program& program = is_training ? *saved.training.program : *saved.evaluation.program;
  program.run(Section::kForward, saved.slot, ctx,
              {.batch = &batch,
               .rope_table = rope_table_on(ctx.stream),
               .grad_scale = grad_scale,
               .checked_tokens = checked_tokens,
               .report = &report});
  if (!has_head(saved.units)) return {};
  LossSums sums;
  const Tensor& values = (is_training ? saved.in_training : saved.in_evaluation).sums;
  if (values.device == Device::kCpu) sums = read_sums(values);
  sums.head_tiles = report.tiles;
  sums.head_filtered = report.filtered_tiles;
  return sums;
}

void Transformer::backward(LayerContext& ctx, const MicroBatch& batch, const Saved& saved) const {
  INGOT_CHECK(saved.training.program, "Transformer::backward: forward kept nothing");
  saved.training.program->run(Section::kBackward, saved.slot, ctx,
                              {.batch = &batch, .rope_table = rope_table_on(ctx.stream)});
}

}  // namespace ingot
