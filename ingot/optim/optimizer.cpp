#include "ingot/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/work.h"
#include "ingot/optim/parameter_groups.h"
#include "ingot/optim/rules/shared_options.h"

namespace ingot {
namespace {

constexpr int64_t kShardGranule = 256;  // shards of parameters begin at multiples of this

void check_param(const OptimParam& p) {
  const int64_t n = p.elements();
  check_tensor(p.w, p.w.dtype == DType::bf16 ? DType::bf16 : DType::f32, {n}, "Optimizer: w");
  check_tensor(p.g, DType::f32, {n}, "Optimizer: g");
  if (p.tail) check_tensor(p.tail, DType::u16, {n}, "Optimizer: tail");
  INGOT_CHECK(p.w.dtype == DType::f32 ? !p.tail : !p.compute,
              "Optimizer: {}: a tail is for bf16 weights, a copy for f32 weights", p.name);
  if (p.compute)
    check_tensor(p.compute, p.compute.dtype == DType::f16 ? DType::f16 : DType::bf16, {n},
                 "Optimizer: compute");
  int64_t rows = 0;
  for (int64_t part : p.fused_rows) rows += part;
  INGOT_CHECK(p.is_scattered || p.begin() % kShardGranule == 0,
              "Optimizer: a shard of {} begins at {}, no multiple of {}", p.name, p.begin(), kShardGranule);
  int64_t in_rects = 0;
  for (const Rect& rect : p.rects) in_rects += rect.elements();
  INGOT_CHECK(!p.is_shard() || in_rects == n, "Optimizer: {}: rectangles of {} elements, the shard has {}",
              p.name, in_rects, n);
  INGOT_CHECK(p.copies >= 0 && p.copies <= n && (p.copies == 0 || p.is_shard()),
              "Optimizer: {} copies among the {} elements of {}", p.copies, n, p.name);
  INGOT_CHECK(p.fused_rows.empty() || (p.is_matrix() && rows == p.whole()[0]),
              "Optimizer: fused_rows of {} must sum to its rows, got {}", p.name, rows);
}

}  // namespace

Optimizer::Group Optimizer::make_group(const OptimizerConfig& config, const GroupConfig* given,
                                       Device device) {
  const RuleConfig& rule = given ? given->rule : config.rule;
  const RuleEntry& entry = resolve_rule(rule, config.rule);
  const GivenOptions options = resolve_options(rule, config.rule);
  Group group{.entry = &entry, .rule = entry.make(options, device)};
  group.matrix_rule = dynamic_cast<const MatrixRule*>(group.rule.get());
  group.weight_decay = entry.number(options, kWeightDecay.key);
  group.momentum = entry.momentum(options);
  if (given && given->lr) group.lr_ratio = *given->lr / config.lr;
  if (given && given->lr_scale) group.lr_ratio = *given->lr_scale;
  group.decays_vectors = given && given->rule.options.find(kWeightDecay.key);
  return group;
}

std::vector<Optimizer::Group> Optimizer::make_groups(const OptimizerConfig& config, Device device) {
  std::vector<Group> groups;
  for (const GroupConfig& given : config.groups) groups.push_back(make_group(config, &given, device));
  groups.push_back(make_group(config, nullptr, device));
  MomentumMeaning driven = MomentumMeaning::kBeta1;
  for (const Group& group : groups)
    if (group.entry->momentum_meaning() == MomentumMeaning::kMomentum) driven = MomentumMeaning::kMomentum;
  for (Group& group : groups) group.is_momentum_driven = group.entry->momentum_meaning() == driven;
  return groups;
}

std::vector<Optimizer::Member> Optimizer::make_members(const OptimizerConfig& config,
                                                       std::vector<OptimParam> params) const {
  const std::vector<int> assigned = assign_groups(config.groups, params);
  std::vector<Member> members;
  for (size_t i = 0; i < params.size(); ++i) {
    check_param(params[i]);
    const size_t group = assigned[i] < 0 ? groups_.size() - 1 : static_cast<size_t>(assigned[i]);
    const RuleNeeds needs = groups_[group].rule->needs(params[i]);
    members.push_back({.memory = {std::move(params[i]), {}}, .group = group, .needs = needs});
  }
  return members;
}

std::vector<StateSpec> Optimizer::kept_state(const Member& member) const {
  std::vector<StateSpec> specs = rule_of(member).state(member.memory.param);
  for (StateSpec& spec : specs) {
    const bool is_kept = spec.scope == StateScope::kWhole ? member.keeps.whole : member.keeps.elements;
    if (!is_kept) spec.shape = {0};
  }
  return specs;
}

size_t Optimizer::arena_bytes() const {
  size_t total = 0;
  for (const Member& member : members_)
    for (const StateSpec& spec : kept_state(member))
      total += static_cast<size_t>(spec.shape.elements()) * size_bytes(spec.dtype) + Arena::kDeviceAlign;
  if (ema_ > 0)
    for (const Member& member : members_)
      total += static_cast<size_t>(member.memory.param.elements()) * sizeof(float) + Arena::kDeviceAlign;
  return total;
}

size_t Optimizer::scratch_bytes() const {
  size_t most = 0, of_matrices = 0;
  for (const Member& member : members_) {
    size_t& largest = matrix_rule_of(member) ? of_matrices : most;
    largest = std::max(largest, rule_of(member).scratch_bytes(member.memory.param));
  }
  Arena reductions("reductions plan", memory_of(device_));
  for (const auto& counts : reduction_counts_)
    for (const int64_t n : counts) reductions.alloc(DType::f32, {n});
  if (!matrices_.empty()) most = std::max(most, of_matrices + comm_.scratch_bytes(memory_of(device_)));
  return reductions.peak_bytes() + most;
}

Optimizer::Optimizer(const OptimizerConfig& config, std::vector<OptimParam> params, UpdateComm* comm,
                     Backing backing)
    : ema_(config.ema),
      device_(params.empty() ? Device::kCpu : params.front().w.device),
      groups_(make_groups(config, device_)),
      members_(make_members(config, std::move(params))),
      comm_(plan_matrices(comm)),
      reduction_counts_(count_reductions()),
      arena_("optimizer", arena_bytes(), memory_of(device_), backing),
      scratch_("optimizer scratch", scratch_bytes(), memory_of(device_), backing) {
  std::vector<const OptimParam*> all;
  for (size_t i = 0; i < members_.size(); ++i) {
    add_states(i);
    stats_.push_back({.name = members_[i].memory.param.name});
    all.push_back(&members_[i].memory.param);
  }
  sums_ = make_update_sums(std::move(all), device_, backing);
}

void Optimizer::add_states(size_t i) {
  ParamState& memory = members_[i].memory;
  const OptimParam& param = memory.param;
  OptimParam whole = param;
  whole.shape = param.whole();
  whole.logical = {};
  const std::vector<StateSpec> specs = kept_state(members_[i]),
                               whole_specs = rule_of(members_[i]).state(whole);
  for (size_t k = 0; k < specs.size(); ++k) {
    const StateSpec& spec = specs[k];
    memory.state.push_back(arena_.alloc(spec.dtype, spec.shape));
    State state{.name = spec.name + "." + param.name,
                .tensor = memory.state.back(),
                .param = param.id,
                .copies = param.copies,
                .whole = whole_specs[k].shape};
    state.is_per_element = spec.scope == StateScope::kElement;
    if (spec.scope == StateScope::kBlock) state.begin = param.begin() / kShardGranule;
    if (spec.scope == StateScope::kWhole) state.scope = ReplicaScope::kShardGroup;
    if (matrix_rule_of(members_[i])) state.scope = ReplicaScope::kNone;
    states_.push_back(std::move(state));
  }
  if (ema_ == 0) return;
  memory.average = arena_.alloc(DType::f32, {param.elements()});
  states_.push_back({.name = "ema." + param.name,
                     .tensor = memory.average,
                     .param = param.id,
                     .copies = param.copies,
                     .whole = {param.whole_elements()}});
}

double Optimizer::grad_norm(Stream& stream) {
  Work work;
  for (const Member& member : members_) work.bytes += static_cast<double>(member.memory.param.g.bytes());
  const OpSpan span(stream, "optimizer", work);
  return span.plans() ? 0 : sums_->grad_norm(stream);
}

MomentumRamp Optimizer::configured_momentum(const OptimizerConfig& config) {
  for (const Group& group : make_groups(config, Device::kCpu))
    if (group.is_momentum_driven) return group.momentum;
  return {};
}

RuleStep Optimizer::step_of(const Member& member, const StepInputs& inputs, float grad_scale,
                            const Tensor& factor) const {
  const Group& group = groups_[member.group];
  RuleStep step{.lr = inputs.lr * group.lr_ratio, .t = t_, .grad_scale = grad_scale, .factor = factor};
  if (member.memory.param.is_matrix() || group.decays_vectors) step.weight_decay = group.weight_decay;
  step.wants_totals = inputs.wants_stats;
  step.average_part = t_ == 1 ? 1.0f : static_cast<float>(1 - ema_);
  const bool is_driven = inputs.momentum && group.is_momentum_driven;
  step.momentum = is_driven ? *inputs.momentum : group.momentum.at(t_);
  return step;
}

Optimizer::ByOrder<int64_t> Optimizer::count_reductions() const {
  ByOrder<int64_t> counts{};
  for (const Member& member : members_)
    for (size_t order : {0, 1}) counts[member.needs.takes_maxima][order] += member.needs.shared[order];
  return counts;
}

bool Optimizer::has_reductions() const { return reduction_counts_ != ByOrder<int64_t>{}; }

// Allocates the reductions as zeros and gives each member its slice of them.
void Optimizer::make_reductions(Stream& stream) {
  for (size_t kind : {0, 1})
    for (size_t order : {0, 1}) {
      const int64_t count = reduction_counts_[kind][order];
      if (count == 0) continue;
      const Tensor all = scratch_.alloc(DType::f32, {count});
      fill_zero(all, stream);
      reductions_[kind][order] = all;
      int64_t begin = 0;
      for (Member& member : members_) {
        const int64_t n = member.needs.shared[order];
        if (member.needs.takes_maxima != (kind == 1) || n == 0) continue;
        member.reductions[order] = all.rows(begin, begin + n);
        begin += n;
      }
    }
}

void Optimizer::reduce(size_t param, int order, Stream& stream) {
  const WorkSpan span(stream, "optimizer", update_work(members_[param]));
  if (span.plans()) return;
  const Arena::Mark mark = scratch_.mark();
  rule_of(members_[param]).reduce(update_of(param), order, scratch_, stream);
  scratch_.release_to(mark);
}

void Optimizer::run_reductions(Stream& stream) {
  make_reductions(stream);
  for (int order : {0, 1}) {
    const auto t = static_cast<size_t>(order);
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].needs.shared[t] > 0) reduce(i, order, stream);
    if (reduction_counts_[0][t] > 0) comm_.sum(reductions_[0][t]);
    if (reduction_counts_[1][t] > 0) comm_.max(reductions_[1][t]);
  }
}

// The update reads and writes weights, gradients (which it may zero) and states, and writes the compute copy.
Work Optimizer::update_work(const Member& member, const Tensor& direction) {
  const OptimParam& param = member.memory.param;
  Work work = traffic({param.w, param.w, param.tail, param.tail, param.g, param.keeps_g ? Tensor{} : param.g,
                       param.compute, member.memory.average, member.memory.average, direction});
  for (const Tensor& state : member.memory.state) work.bytes += 2 * static_cast<double>(state.bytes());
  return work;
}

ParamUpdate Optimizer::update_of(size_t param, const Tensor& direction) const {
  const Member& member = members_[param];
  ParamUpdate update{
      .p = member.memory, .step = member.step, .reductions = member.reductions, .direction = direction};
  sums_->place_totals(update, param);
  return update;
}

void Optimizer::update_free(Stream& stream) {
  Work work;
  for (const Member& member : members_)
    if (is_free(member)) work.bytes += update_work(member).bytes;
  const WorkSpan span(stream, "optimizer", work);
  if (span.plans()) return;
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<ParamUpdate> updates;
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].group == group && is_free(members_[i])) updates.push_back(update_of(i));
    if (!updates.empty()) groups_[group].rule->update(updates, scratch_, stream);
  }
}

void Optimizer::update_param(size_t param, const Tensor& direction, Stream& stream) {
  const WorkSpan span(stream, "optimizer", update_work(members_[param], direction));
  if (span.plans()) return;
  const ParamUpdate update = update_of(param, direction);
  const Arena::Mark mark = scratch_.mark();
  rule_of(members_[param]).update({&update, 1}, scratch_, stream);
  scratch_.release_to(mark);
}

void Optimizer::step(const StepInputs& inputs, float grad_scale, Stream& stream) {
  make_step(inputs, grad_scale, {}, stream);
}

void Optimizer::step_by_factor(const StepInputs& inputs, const Tensor& factor, Stream& stream) {
  INGOT_CHECK(device_ == Device::kCuda && !inputs.wants_stats,
              "Optimizer::step_by_factor: not on a device, or stats");
  make_step(inputs, 1, factor, stream);
}

void Optimizer::make_step(const StepInputs& inputs, float grad_scale, const Tensor& factor, Stream& stream) {
  const Span span(stream.trace, "optimizer");
  INGOT_CHECK(!inputs.momentum || (*inputs.momentum >= 0 && *inputs.momentum < 1),
              "Optimizer::step: momentum must lie in [0, 1), got {}", inputs.momentum.value_or(0));
  ++t_;
  for (Member& member : members_) member.step = step_of(member, inputs, grad_scale, factor);
  update_free(stream);
  run_reductions(stream);
  for (size_t i = 0; i < members_.size(); ++i)
    if (members_[i].needs.is_whole) update_param(i, {}, stream);
  if (!matrices_.empty()) update_matrices(stream);
  scratch_.release_to(0);
  if (inputs.wants_stats && stream.backing == Backing::kMemory) read_stats(stream);
}

void Optimizer::read_stats(Stream& stream) {
  const std::vector<RangeTotals> totals = sums_->totals(stream);
  for (size_t i = 0; i < members_.size(); ++i) {
    stats_[i].weight_norm = std::sqrt(totals[i].weight_squares);
    stats_[i].grad_norm = std::sqrt(totals[i].grad_squares);
    stats_[i].update_norm = std::sqrt(totals[i].update_squares);
    stats_[i].update_dot_weight = totals[i].update_dot_weight;
  }
}

size_t Optimizer::state_bytes() const {
  size_t total = 0;
  for (const State& state : states_) total += state.tensor.bytes();
  return total;
}

std::string Optimizer::summary() const {
  std::string text;
  for (const RuleEntry& entry : rules()) {
    const auto has_rule = [&](const Member& m) { return groups_[m.group].entry == &entry; };
    const auto count = std::count_if(members_.begin(), members_.end(), has_rule);
    if (count > 0) text += fmt::format("{} for {} tensors, ", entry.name, count);
  }
  return text + fmt::format("{:.1f} MB of state", static_cast<double>(state_bytes()) * 1e-6);
}

}  // namespace ingot
