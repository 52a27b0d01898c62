#include "ingot/nn/recompute.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ingot/core/error.h"

namespace ingot {
namespace {

struct Parts {
  bool norms = false, activation = false, mlp = false, attention = false, embedding = false;
  bool block = false;  // the whole block is recomputed

  Parts() = default;
  explicit Parts(const std::vector<RecomputePart>& list) {
    for (const RecomputePart part : list) {
      norms |= part == RecomputePart::kNorms;
      activation |= part == RecomputePart::kActivation;
      mlp |= part == RecomputePart::kMlp;
      attention |= part == RecomputePart::kAttention;
      embedding |= part == RecomputePart::kEmbedding;
    }
  }
};

// Plan of a block that is a segment by itself. If attention or the MLP is recomputed, its normalised
// rows are in shared memory: the recomputation leaves them there for backward, which saves a second
// pass over the norm.
BlockPlan block_plan(const Parts& parts) {
  const bool has_heads = !parts.attention && !parts.block, has_pre = !parts.mlp && !parts.block;
  const auto kept = [](bool is_own) { return is_own ? Storage::kOwn : Storage::kShared; };
  const auto norm = [&](bool is_own) { return is_own && parts.norms ? Storage::kNone : kept(is_own); };
  return {.attention = {.x = Storage::kOwn,
                        .h = norm(has_heads),
                        .heads = kept(has_heads),
                        .has_codes = has_heads},
          .mlp = {.x = kept(!parts.block),
                  .h = norm(has_pre),
                  .pre = kept(has_pre),
                  .act = parts.activation ? Storage::kNone : kept(has_pre),
                  .has_codes = has_pre}};
}

// Plan of a block in a segment that is recomputed as a whole; each block of a segment has its own slot.
BlockPlan segment_block_plan(const Parts& parts, int position) {
  const Storage h = parts.norms ? Storage::kNone : Storage::kShared;
  return {.attention = {.x = position == 0 ? Storage::kOwn : Storage::kShared,
                        .h = h,
                        .heads = Storage::kShared,
                        .has_codes = false},
          .mlp = {.x = Storage::kShared,
                  .h = h,
                  .pre = Storage::kShared,
                  .act = parts.activation ? Storage::kNone : Storage::kShared,
                  .has_codes = false},
          .slot = position};
}

// Segments of nearly equal length. The longer ones come last, because the last segment is never recomputed.
RecomputePlan segments_plan(const Parts& parts, int64_t layers, int64_t segments) {
  RecomputePlan plan;
  plan.keeps_embedding = !parts.embedding;
  for (int64_t s = 0; s < segments; ++s) {
    const int64_t length = (layers + s) / segments;
    for (int64_t i = 0; i < length; ++i)
      plan.blocks.push_back(segment_block_plan(parts, static_cast<int>(i)));
  }
  return plan;
}

}  // namespace

void RecomputeConfig::validate(int64_t layers, bool needs_budget) const {
  const bool is_auto = policy == RecomputePolicy::kAuto;
  if (policy == RecomputePolicy::kEveryK && k > layers)
    fail(ErrorKind::kUsage,
         "activations.k must be at most model.layers = {}, got {}; the nearest valid value is {}", layers, k,
         layers);
  if (is_auto && needs_budget && budget_bytes <= 0)
    fail(ErrorKind::kUsage,
         "activations.policy = \"auto\" needs activations.budget, the bytes that activations may take, such "
         "as "
         "\"512MiB\"");
  if (!is_auto && budget_bytes > 0)
    fail(ErrorKind::kUsage,
         "activations.budget = {} is kept by activations.policy = \"auto\" alone; set the policy, or the "
         "budget "
         "to 0",
         budget_bytes);
  if (policy == RecomputePolicy::kSelective && parts.empty())
    fail(ErrorKind::kUsage,
         "activations.parts must name a part for activations.policy = \"selective\"; to keep everything, the "
         "policy is \"none\"");
}

size_t RecomputePlan::segment_begin(size_t l) const {
  while (l > 0 && blocks[l].attention.x == Storage::kShared) --l;
  return l;
}

size_t RecomputePlan::segment_end(size_t l) const {
  do ++l;
  while (l < blocks.size() && blocks[l].attention.x == Storage::kShared);
  return l;
}

RecomputePlan::NeedsRecompute RecomputePlan::needs_recompute(size_t l) const {
  const size_t above = segment_end(l);
  const auto is_overwritten = [&](auto place) {
    if (place(blocks[l]) != Storage::kShared) return false;
    return std::any_of(
        blocks.begin() + static_cast<std::ptrdiff_t>(above), blocks.end(),
        [&](const BlockPlan& b) { return b.slot == blocks[l].slot && place(b) == Storage::kShared; });
  };
  return {.heads = is_overwritten([](const BlockPlan& b) { return b.attention.heads; }),
          .residual = is_overwritten([](const BlockPlan& b) { return b.mlp.x; }),
          .pre = is_overwritten([](const BlockPlan& b) { return b.mlp.pre; })};
}

namespace {

std::string block_summary(const RecomputePlan& plan, size_t l) {
  if (plan.segment_end(l) - plan.segment_begin(l) > 1) return "segment";
  const BlockPlan& block = plan.blocks[l];
  std::string text;
  const auto add = [&](bool is_again, const char* part) {
    if (!is_again) return;
    if (!text.empty()) text += ", ";
    text += part;
  };
  const bool is_whole = block.mlp.x == Storage::kShared;
  add(is_whole, "block");
  add(!is_whole && block.attention.heads == Storage::kShared, "attention");
  add(!is_whole && block.mlp.pre == Storage::kShared, "mlp");
  add(block.attention.h == Storage::kNone || block.mlp.h == Storage::kNone, "norms");
  add(block.mlp.act == Storage::kNone, "activation");
  return text.empty() ? "nothing" : text;
}

}  // namespace

std::string RecomputePlan::summary() const {
  std::string text;
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    const std::string kind = block_summary(*this, begin);
    while (end < blocks.size() && block_summary(*this, end) == kind) ++end;
    text += fmt::format("{}{} x ({})", text.empty() ? "" : ", ", end - begin, kind);
  }
  return keeps_embedding ? text : "embedding, " + text;
}

RecomputePlan recompute_plan(const RecomputeConfig& config, int64_t layers) {
  INGOT_CHECK(config.policy != RecomputePolicy::kAuto, "recompute_plan: auto is fastest_plan's");
  const Parts parts(config.parts);
  if (config.policy == RecomputePolicy::kSqrt) {
    const auto segments = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(layers))));
    return segments_plan(parts, layers, segments);
  }
  Parts whole = parts;
  whole.block = true;
  RecomputePlan plan;
  plan.keeps_embedding = !parts.embedding || config.policy == RecomputePolicy::kNone;
  for (int64_t l = 0; l < layers; ++l) {
    const bool is_whole = config.policy == RecomputePolicy::kBlock ||
                          (config.policy == RecomputePolicy::kEveryK && (l + 1) % config.k == 0);
    plan.blocks.push_back(config.policy == RecomputePolicy::kNone ? BlockPlan{}
                                                                  : block_plan(is_whole ? whole : parts));
  }
  return plan;
}

RecomputePlan forward_only_plan(int64_t layers) {
  Parts parts;
  parts.norms = parts.activation = true;
  RecomputePlan plan = segments_plan(parts, layers, 1);
  for (BlockPlan& block : plan.blocks) block.slot = 0;
  plan.is_forward_only = true;
  return plan;
}

double recompute_time_s(const RecomputePlan& plan, const BlockTimes& times) {
  double total_s = plan.keeps_embedding ? 0 : times.embedding_s;
  for (size_t l = 0; l < plan.blocks.size(); ++l) {
    const BlockPlan& block = plan.blocks[l];
    const RecomputePlan::NeedsRecompute again = plan.needs_recompute(l);
    const auto add = [&](bool is_again, double time_s) { total_s += is_again ? time_s : 0; };
    add(block.attention.h == Storage::kNone, times.norm_s);
    add(block.mlp.h == Storage::kNone, times.norm_s);
    add(block.mlp.act == Storage::kNone, times.activation_s);
    add(again.heads, times.heads_s);
    add(again.residual, times.proj_s);
    add(again.pre, times.pre_s);
    const bool is_last_of_segment = plan.segment_end(l) == l + 1;
    add(again.pre && !is_last_of_segment, times.activation_s + times.down_s);
  }
  return total_s;
}

namespace {

// All choices of parts that an automatic plan may assign to a block, from the most memory to the least.
std::vector<Parts> part_choices() {
  using P = RecomputePart;
  std::vector<Parts> choices;
  for (const std::vector<P>& list :
       std::initializer_list<std::vector<P>>{{},
                                             {P::kNorms},
                                             {P::kActivation},
                                             {P::kNorms, P::kActivation},
                                             {P::kNorms, P::kActivation, P::kMlp},
                                             {P::kNorms, P::kActivation, P::kAttention},
                                             {P::kNorms, P::kActivation, P::kMlp, P::kAttention}})
    choices.emplace_back(list);
  choices.push_back(choices.back());
  choices.back().block = true;
  return choices;
}

// Searches the candidates for the fastest plan. Counting a plan's bytes is slow, so it is done only for plans
// that may win.
class PlanSearch {
 public:
  PlanSearch(int64_t layers, const BlockTimes& times, size_t budget_bytes,
             const std::function<size_t(const RecomputePlan&)>& bytes)
      : layers_(layers), times_(times), budget_bytes_(budget_bytes), bytes_(bytes) {}

  RecomputePlan run() {
    const std::vector<Parts> choices = part_choices();
    for (const bool keeps_embedding : {true, false}) {
      for (const Parts& choice : choices) consider(mixed(choice, choice, layers_, keeps_embedding));
      for (size_t a = 0; a < choices.size(); ++a)
        for (size_t b = a + 1; b < choices.size(); ++b)
          mix([&](int64_t n) { return mixed(choices[b], choices[a], n, keeps_embedding); });
      for (int64_t segments = 1; segments < layers_; ++segments)
        consider(segmented(segments, keeps_embedding));
    }
    if (!best_)
      fail(ErrorKind::kUsage,
           "activations.budget = {} holds no plan: the smallest takes {} bytes; raise it, or lower "
           "train.batch_size or model.context",
           budget_bytes_, smallest_);
    return *best_;
  }

 private:
  using Cost = std::pair<double, size_t>;

  // Returns a plan whose first n blocks have one choice, and the others another.
  RecomputePlan mixed(const Parts& first, const Parts& other, int64_t n, bool keeps_embedding) const {
    RecomputePlan plan;
    plan.keeps_embedding = keeps_embedding;
    for (int64_t l = 0; l < layers_; ++l) plan.blocks.push_back(block_plan(l < n ? first : other));
    return plan;
  }
  RecomputePlan segmented(int64_t segments, bool keeps_embedding) const {
    Parts within;
    within.norms = within.activation = true;
    RecomputePlan plan = segments_plan(within, layers_, segments);
    plan.keeps_embedding = keeps_embedding;
    return plan;
  }

  // Returns true if the plan fits.
  bool consider(RecomputePlan plan) {
    const double time_s = recompute_time_s(plan, times_);
    if (best_ && time_s > best_cost_.first) return false;
    const Cost cost{time_s, bytes_(plan)};
    smallest_ = std::min(smallest_, cost.second);
    if (cost.second > budget_bytes_) return false;
    if (best_ && cost >= best_cost_) return true;
    best_cost_ = cost;
    best_ = std::move(plan);
    return true;
  }
  // Considers plans with 1 to layers - 1 blocks of a second choice, of which time and bytes are monotonic
  // functions.
  void mix(const std::function<RecomputePlan(int64_t)>& plan) {
    const auto time_s = [&](int64_t n) { return recompute_time_s(plan(n), times_); };
    if (layers_ < 2) return;
    const bool is_rising = time_s(1) <= time_s(layers_ - 1);
    const auto nth = [&](int64_t i) {
      return plan(is_rising ? 1 + i : layers_ - 1 - i);
    };  // from fast to slow
    if (consider(nth(0))) return;
    const auto may_win = [&](int64_t i) {
      return !best_ || recompute_time_s(nth(i), times_) <= best_cost_.first;
    };
    const int64_t end = first_without(1, layers_ - 1, may_win);
    if (end == 1 || !consider(nth(end - 1))) return;
    first_without(1, end - 1, [&](int64_t i) { return !consider(nth(i)); });
  }
  // Returns the first number in [begin, end) that does not have a property, which all before it have and all
  // after it lack.
  static int64_t first_without(int64_t begin, int64_t end, const std::function<bool(int64_t)>& has) {
    while (begin < end) {
      const int64_t middle = begin + (end - begin) / 2;
      if (has(middle))
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }

  int64_t layers_;
  const BlockTimes& times_;
  size_t budget_bytes_;
  const std::function<size_t(const RecomputePlan&)>& bytes_;
  std::optional<RecomputePlan> best_;
  Cost best_cost_;
  size_t smallest_ = std::numeric_limits<size_t>::max();
};

}  // namespace

RecomputePlan fastest_plan(int64_t layers, const BlockTimes& times, size_t budget_bytes,
                           const std::function<size_t(const RecomputePlan&)>& bytes) {
  return PlanSearch(layers, times, budget_bytes, bytes).run();
}

}  // namespace ingot
