#include "ingot/config/scaling.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/config/config_toml.h"
#include "ingot/config/nearest.h"
#include "ingot/config/presets.h"
#include "ingot/core/error.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

using enum ParamRole;

// The sizes that the rules compare. batch: tokens of a step. tokens: of the whole run; 0 if time limits it.
struct Sizes {
  double width = 0, layers = 0, head_dim = 0, batch = 0, tokens = 0;
};

Sizes sizes_of(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const ModelConfig model = config.model.resolved();
  const auto batch = static_cast<double>(train.batch_size * train.grad_accum * model.context);
  const double of_steps = train.max_time_s > 0 ? 0 : static_cast<double>(train.steps) * batch;
  return {.width = static_cast<double>(model.width),
          .layers = static_cast<double>(model.layers),
          .head_dim = static_cast<double>(model.head_dim),
          .batch = batch,
          .tokens = train.max_tokens > 0 ? static_cast<double>(train.max_tokens) : of_steps};
}

// Reads "width=64 layers=2 batch=16 tokens=1e6"; sizes that are not given are the run's.
Sizes read_sizes(const std::string& text, const RunConfig& config) {
  static const std::vector<std::string> kNames{"width", "layers", "head_dim", "batch", "tokens"};
  Sizes sizes = sizes_of(config);
  const std::array<double*, 5> targets{&sizes.width, &sizes.layers, &sizes.head_dim, &sizes.batch,
                                       &sizes.tokens};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end())
      fail(ErrorKind::kUsage, "scaling.base: there is no size \"{}\"{}; the sizes are {}", name,
           did_you_mean(nearest_names(name, kNames)), list_names(kNames));
    const std::string digits = equals == std::string::npos ? "" : word.substr(equals + 1);
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0' || !(value >= 1 && value < 1e18))
      fail(ErrorKind::kUsage, "scaling.base: {} must be a number, at least 1, such as {}=64, got \"{}\"",
           name, name, word);
    const double sequence = name == "batch" ? static_cast<double>(config.model.context) : 1;
    *targets[static_cast<size_t>(found - kNames.begin())] = value * sequence;
  }
  return sizes;
}

Sizes base_sizes(const RunConfig& config) {
  const std::string& base = config.scaling.base;
  if (base.find('=') != std::string::npos) return read_sizes(base, config);
  if (!find_preset(base)) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.emplace_back(preset.name);
    fail(ErrorKind::kUsage,
         "scaling.base: no preset is called \"{}\"{}; give a preset ({}) or sizes such as \"width=64 "
         "layers=2\"",
         base, did_you_mean(nearest_names(base, names)), list_names(names));
  }
  ConfigBuilder builder;
  builder.add_source(base);
  return sizes_of(builder.build());
}

// The run's sizes divided by the base's.
struct Ratios {
  double width = 1, depth = 1, batch = 1, steps = 1;
};

bool is_sgd(std::string_view kind) { return kind == "sgd" || kind == "momentum"; }

// Adam adds the decay to the gradient, as SGD does, so that its product with the rate means nothing there.
bool has_decoupled_decay(std::string_view kind) { return !is_sgd(kind) && kind != "adam"; }

void check_rule(const RunConfig& config, std::string_view kind) {
  const ScalingConfig& s = config.scaling;
  if (kind == "adafactor")
    fail(ErrorKind::kUsage,
         "scaling.base: no rule is known for optimizer.kind = adafactor, which scales its own updates; use "
         "adamw");
  if (is_sgd(kind) && s.batch_rule == BatchRule::kSqrt)
    fail(ErrorKind::kUsage,
         "scaling.batch_rule = sqrt is for Adam and its like; with {} set scaling.batch_rule = linear", kind);
  if (!is_sgd(kind) && s.batch_rule == BatchRule::kLinear)
    fail(ErrorKind::kUsage, "scaling.batch_rule = linear is for SGD; with {} set scaling.batch_rule = sqrt",
         kind);
  if (is_sgd(kind) && s.depth_rule != DepthRule::kNone)
    fail(ErrorKind::kUsage, "scaling.depth_rule = sqrt has no rule for {}; set scaling.depth_rule = none",
         kind);
  if (!has_decoupled_decay(kind) && s.tokens_rule != TokensRule::kNone)
    fail(ErrorKind::kUsage,
         "scaling.tokens_rule = timescale needs decoupled weight decay, which {} has not; use adamw, or set "
         "scaling.tokens_rule = none",
         kind);
}

void check_model(const RunConfig& config, const Sizes& base, const Sizes& now) {
  const ScalingConfig& s = config.scaling;
  if (s.width_rule == WidthRule::kMup && base.width != now.width) {
    if (config.model.is_tied)
      fail(ErrorKind::kUsage,
           "scaling.width_rule = mup scales the head and not the embedding; set model.tied = false, or "
           "scaling.width_rule = none");
    if (base.head_dim != now.head_dim)
      fail(ErrorKind::kUsage,
           "scaling.width_rule = mup widens a model by more heads of the same size: the base has head_dim = "
           "{}, "
           "the run {}; set model.heads = {}, or name the base's head_dim in scaling.base",
           base.head_dim, now.head_dim, std::max(1.0, std::round(now.width / base.head_dim)));
  }
  if (s.depth_rule == DepthRule::kSqrt && base.layers != now.layers &&
      config.model.projection_init == ProjectionInit::kNormal)
    fail(ErrorKind::kUsage,
         "scaling.depth_rule = sqrt needs projections whose initial weights fall with depth; set "
         "model.projection_init = scaled or zero");
  if (s.tokens_rule != TokensRule::kNone && (now.tokens == 0 || base.tokens == 0))
    fail(ErrorKind::kUsage,
         "scaling.tokens_rule = timescale needs the tokens of the run and of the base; set train.steps or "
         "train.max_tokens in place of train.max_time, and scaling.base = \"tokens=...\"");
}

// Parameters whose rate has the same factor.
struct RateFactor {
  std::vector<ParamRole> roles;
  std::vector<std::string> match;
  double factor = 1;
};

// Returns the factors of a rule, in the order in which groups take parameters. With the depth rule a branch
// is multiplied by m = sqrt(base layers / layers), and the rates of its parameters too. The multiplier is
// folded into the projections: their initial weights already fall with 1/sqrt(layers), and a rule whose
// update does not depend on the gradient's size has to take one more m as their rate.
std::vector<RateFactor> rate_factors(std::string_view kind, const Ratios& r, bool has_mup) {
  const double n = has_mup ? r.width : 1;
  if (is_sgd(kind)) return {{{kEmbedding, kPosition, kNorm, kBias}, {}, n}, {{kHead}, {}, 1 / n}};
  const double matrix = kind == "muon" ? 1 : 1 / n;
  const double m = 1 / std::sqrt(r.depth);
  const std::vector<std::string> projections{"blocks.*.attention.proj.*", "blocks.*.mlp.down.*"};
  std::vector<RateFactor> all;
  if (m != 1) {
    all.push_back({{kMatrix}, projections, matrix * m * m});
    all.push_back({{kBias}, projections, m * m});
    all.push_back({{kNorm, kBias}, {"blocks.*"}, m});
  }
  all.push_back({{kMatrix}, {}, matrix * m});
  all.push_back({{kHead}, {}, 1 / n});
  return all;
}

void scale_decay(GroupConfig& group, const RuleConfig& base, double factor) {
  const RuleEntry& entry = resolve_rule(group.rule, base);
  const double decay = entry.number(resolve_options(group.rule, base), "weight_decay");
  if (factor != 1 && decay != 0 && has_decoupled_decay(entry.name))
    group.rule.options.set("weight_decay", decay * factor);
}

// Scales a group as a whole: the rate by the batch, the decay so that rate * decay * steps stays the same.
// Its lr_scale multiplies the base's rate, which has its own factor.
void scale_whole(GroupConfig& group, const RuleConfig& base, double rate, double decay) {
  if (group.lr) *group.lr *= rate;
  scale_decay(group, base, decay);
}

// Returns the groups that take over from `group` the parameters whose rate has another factor.
std::vector<GroupConfig> split(const GroupConfig& group, const RuleConfig& base, const Ratios& ratios,
                               bool has_mup) {
  const std::string_view kind = resolve_rule(group.rule, base).name;
  std::vector<GroupConfig> result;
  for (const RateFactor& part : rate_factors(kind, ratios, has_mup)) {
    GroupConfig own = group;
    own.roles.clear();
    for (const ParamRole role : part.roles)
      if (group.roles.empty() || std::ranges::count(group.roles, role) > 0) own.roles.push_back(role);
    if (own.roles.empty()) continue;
    if (!part.match.empty() && !group.match.empty())
      fail(ErrorKind::kUsage,
           "scaling.depth_rule = sqrt cannot split a group of optimizer.group that has match; give the group "
           "roles, "
           "or set scaling.depth_rule = none");
    if (group.match.empty()) own.match = part.match;
    if (part.factor == 1 && part.match.empty()) continue;
    if (own.lr)
      *own.lr *= part.factor;
    else
      own.lr_scale = own.lr_scale.value_or(1) * part.factor;
    scale_decay(own, base, 1 / part.factor);
    result.push_back(std::move(own));
  }
  return result;
}

void scale_optimizer(OptimizerConfig& optimizer, const Ratios& ratios, double rate, double decay,
                     bool has_mup) {
  optimizer.lr *= rate;
  GroupConfig rest;  // the parameters in no group
  scale_decay(rest, optimizer.rule, decay);
  // A group of the same kind that does not give its decay inherits the base's, so each is scaled before it.
  std::vector<GroupConfig> groups;
  std::vector<ParamRole> taken;
  const auto add = [&](const GroupConfig& group) {
    for (GroupConfig& part : split(group, optimizer.rule, ratios, has_mup)) {
      std::erase_if(part.roles, [&](ParamRole role) { return std::ranges::count(taken, role) > 0; });
      if (!part.roles.empty()) groups.push_back(std::move(part));
    }
    if (group.match.empty()) taken.insert(taken.end(), group.roles.begin(), group.roles.end());
  };
  for (GroupConfig& group : optimizer.groups) {
    scale_whole(group, optimizer.rule, rate, decay);
    add(group);
    groups.push_back(group);
  }
  add(rest);
  if (const OptionValue* value = rest.rule.options.find("weight_decay"))
    optimizer.rule.options.set("weight_decay", *value);
  optimizer.groups = std::move(groups);
}

}  // namespace

std::string resolve_scaling(RunConfig& config) {
  const ScalingConfig scaling = config.scaling;
  if (scaling.base.empty()) return "";
  const Sizes base = base_sizes(config), now = sizes_of(config);
  check_rule(config, resolve_rule({}, config.optimizer.rule).name);
  for (const GroupConfig& group : config.optimizer.groups)
    check_rule(config, resolve_rule(group.rule, config.optimizer.rule).name);
  check_model(config, base, now);

  const bool has_mup = scaling.width_rule == WidthRule::kMup;
  Ratios ratios{.width = now.width / base.width, .batch = now.batch / base.batch};
  if (scaling.depth_rule == DepthRule::kSqrt) ratios.depth = now.layers / base.layers;
  double rate = 1, decay = 1;
  if (scaling.batch_rule == BatchRule::kSqrt) rate = std::sqrt(ratios.batch);
  if (scaling.batch_rule == BatchRule::kLinear) rate = ratios.batch;
  if (scaling.tokens_rule == TokensRule::kTimescale) {
    ratios.steps = now.tokens / base.tokens / ratios.batch;
    decay = 1 / (ratios.steps * rate);
  }

  std::string line = fmt::format("scaling from {}:", scaling.base);
  if (has_mup) {
    ModelConfig& model = config.model;
    if (ratios.width != 1) {
      model.matrix_init_std = model.matrix_std() / std::sqrt(ratios.width);
      model.head_init_std = model.head_std() / ratios.width;
    }
    line += fmt::format(" width x{:.4g} (matrices of Adam: rate x {:.3g}; Muon's: x 1),", ratios.width,
                        1 / ratios.width);
  }
  if (scaling.depth_rule == DepthRule::kSqrt)
    line +=
        fmt::format(" depth x{:.4g} (blocks' rates x {:.3g}),", ratios.depth, 1 / std::sqrt(ratios.depth));
  if (scaling.batch_rule != BatchRule::kNone)
    line += fmt::format(" batch x{:.4g} {} (rate x {:.3g}),", ratios.batch,
                        scaling.batch_rule == BatchRule::kSqrt ? "sqrt" : "linear", rate);
  if (scaling.tokens_rule != TokensRule::kNone)
    line += fmt::format(" steps x{:.4g} (decay x {:.3g}),", ratios.steps, decay);
  line.pop_back();
  scale_optimizer(config.optimizer, ratios, rate, decay, has_mup);
  config.scaling = {};
  return line;
}

}  // namespace ingot
