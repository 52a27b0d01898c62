#include "ingot/config/optimizer_keys.h"

#include <algorithm>
#include <utility>

#include "ingot/config/config_key_kinds.h"
#include "ingot/optim/parameter_groups.h"
#include "ingot/optim/rules/all_rules.h"

namespace ingot {
namespace {

using key_kinds::choice;
using key_kinds::choices;
using key_kinds::flag;
using key_kinds::kMany;
using key_kinds::number;
using key_kinds::or_auto;
using key_kinds::texts;
using key_kinds::whole;

std::vector<std::pair<std::string, OptimizerKind>> kinds() {
  std::vector<std::pair<std::string, OptimizerKind>> names;
  for (const RuleEntry& entry : rules()) names.emplace_back(entry.name, entry.kind);
  return names;
}

// Adds the keys of the RuleConfig at the path `root`, except kind.
template <typename... Root>
void add_rule_keys(std::vector<ConfigKey>& keys, const std::string& prefix, Root... root) {
  using C = RuleConfig;
  const auto add_number = [&](const char* leaf, const char* doc, auto field) {
    keys.push_back(or_auto(number(prefix + leaf, doc, root..., field), root..., field));
  };
  const auto add_flag = [&](const char* leaf, const char* doc, auto field) {
    keys.push_back(or_auto(flag(prefix + leaf, doc, root..., field), root..., field));
  };
  add_number("beta1", "decay of the first moment; auto: 0.9", &C::beta1);
  add_number("beta2", "decay of the second moment; auto: 0.95, lion 0.99, normuon 0.9", &C::beta2);
  add_number("eps", "epsilon added to the root of the second moment; auto: 1e-8, adafactor 2^-23", &C::eps);
  add_number("weight_decay", "weight decay of parameters with two dims; auto: 0.1", &C::weight_decay);
  add_number("momentum", "momentum of momentum and muon; auto: 0.9, muon 0.95", &C::momentum);
  add_number("momentum_start", "initial momentum of the momentum warm-up; auto: 0, muon 0.85",
             &C::momentum_start);
  keys.push_back(
      or_auto(whole(prefix + "momentum_warmup", 0, kMany,
                    "steps of linear momentum warm-up; auto: 0, muon 300", root..., &C::momentum_warmup),
              root..., &C::momentum_warmup));
  add_flag("nesterov", "Nesterov momentum; auto: false, muon true", &C::nesterov);
  add_flag("relative_step", "adafactor scales its steps by the size of the weights; auto: true",
           &C::relative_step);
  add_number("update_clip", "adafactor clips the root mean square of an update to this; auto: 1",
             &C::update_clip);
  keys.push_back(or_auto(
      choice<NewtonSchulzKind>(
          prefix + "newton_schulz",
          {{"quintic", NewtonSchulzKind::kQuintic}, {"polar_express", NewtonSchulzKind::kPolarExpress}},
          "Newton-Schulz coefficients of muon; auto: quintic", root..., &C::newton_schulz),
      root..., &C::newton_schulz));
  keys.push_back(or_auto(
      choice<DType>(prefix + "newton_schulz_dtype", {{"bf16", DType::bf16}, {"f32", DType::f32}},
                    "dtype of muon's Newton-Schulz iterates; auto: bf16", root..., &C::newton_schulz_dtype),
      root..., &C::newton_schulz_dtype));
  add_flag("normuon", "muon with NorMuon's variance reduction; auto: false", &C::normuon);
  add_flag("cautious_decay", "muon decays only weights that its update shrinks; auto: false",
           &C::cautious_decay);
  add_flag("split_fused", "muon orthogonalises q, k, v (and gate, up) separately; auto: true",
           &C::split_fused);
}

std::vector<std::pair<std::string, ParamRole>> role_names() {
  std::vector<std::pair<std::string, ParamRole>> names;
  for (ParamRole role : {ParamRole::kEmbedding, ParamRole::kPosition, ParamRole::kMatrix, ParamRole::kHead,
                         ParamRole::kNorm, ParamRole::kBias})
    names.emplace_back(role_name(role), role);
  return names;
}

}  // namespace

void add_optimizer_keys(std::vector<ConfigKey>& keys) {
  using O = OptimizerConfig;
  const auto optimizer = &RunConfig::optimizer;
  keys.push_back(choice<OptimizerKind>("optimizer.kind", kinds(), "the update rule", optimizer, &O::rule,
                                       &RuleConfig::kind));
  keys.push_back(number("optimizer.lr", "peak learning rate", optimizer, &O::lr));
  add_rule_keys(keys, "optimizer.", optimizer, &O::rule);
  keys.push_back(
      number("optimizer.grad_clip", "largest global gradient norm; 0: off", optimizer, &O::grad_clip));
  keys.push_back(number("optimizer.ema",
                        "decay of a moving average of the weights, which evaluations use; 0: none", optimizer,
                        &O::ema));
}

const std::vector<ConfigKey>& optimizer_group_keys() {
  static const std::vector<ConfigKey> keys = [] {
    using G = GroupConfig;
    const auto group = [](auto& config) -> auto& { return config.optimizer.groups.back(); };
    std::vector<ConfigKey> all;
    all.push_back(choices<ParamRole>("optimizer.group.roles", role_names(),
                                     "roles of the parameters in the group; not given: all", group,
                                     &G::roles));
    all.push_back(texts("optimizer.group.match", "patterns of parameter names, with * and ?; not given: all",
                        group, &G::match));
    all.push_back(or_auto(choice<OptimizerKind>("optimizer.group.kind", kinds(),
                                                "the update rule; auto: the one of [optimizer]", group,
                                                &G::rule, &RuleConfig::kind),
                          group, &G::rule, &RuleConfig::kind));
    all.push_back(
        or_auto(number("optimizer.group.lr", "peak learning rate; auto: that of [optimizer]", group, &G::lr),
                group, &G::lr));
    all.push_back(or_auto(number("optimizer.group.lr_scale",
                                 "learning rate as a multiple of that of [optimizer]", group, &G::lr_scale),
                          group, &G::lr_scale));
    add_rule_keys(all, "optimizer.group.", group, &G::rule);
    return all;
  }();
  return keys;
}

const ConfigKey* find_optimizer_group_key(std::string_view name) {
  const auto& keys = optimizer_group_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> optimizer_group_key_names() {
  std::vector<std::string> names;
  for (const ConfigKey& key : optimizer_group_keys()) names.push_back(key.name);
  return names;
}

std::string optimizer_groups_toml(const OptimizerConfig& optimizer) {
  if (optimizer.groups.empty()) return "group = []\n";  // overrides the preset's groups
  std::string text;
  for (const GroupConfig& group : optimizer.groups) {
    RunConfig one;
    one.optimizer.groups = {group};
    text += fmt::format("\n[[{}]]\n", kOptimizerGroup);
    for (const ConfigKey& key : optimizer_group_keys()) {
      const std::string value = key.toml(one);
      if (value != toml_string("auto") && value != "[]")
        text += fmt::format("{} = {}\n", key.name.substr(kOptimizerGroup.size() + 1), value);
    }
  }
  return text;
}

}  // namespace ingot
