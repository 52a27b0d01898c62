#include "ingot/optim/rules/all_rules.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/rules/rule_list.h"

namespace ingot {
namespace {

// An elementwise rule on a CUDA device, which updates dozens of parameters by one kernel.
template <typename R>
class CudaElementwiseRule final : public ElementwiseRule<R> {
 public:
  using ElementwiseRule<R>::ElementwiseRule;

  void update(std::span<const ParamUpdate> updates, Arena& /*scratch*/, Stream& stream) const override {
    std::vector<cuda::ElementwiseUpdate<R>> all;
    for (const ParamUpdate& u : updates)
      all.push_back({&u.p, R(this->options_, u.step), &u.step, u.device_totals});
    cuda::update_elementwise(std::span<const cuda::ElementwiseUpdate<R>>(all), stream);
  }
};

// A rule in a plan for a device by a build without CUDA, which does not know the scratch of its kernels.
template <typename Rule>
class PlannedRule final : public Rule {
 public:
  using Rule::Rule;
  size_t scratch_bytes(const OptimParam& /*param*/) const override { return 0; }
};

template <typename Rule>
std::unique_ptr<UpdateRule> make(const GivenOptions& given, Device device) {
  using OnCpu = std::conditional_t<kIsElementwise<Rule>, ElementwiseRule<Rule>, Rule>;
  const auto options = read_options<typename Rule::Options>(given);
  if (device == Device::kCpu) return std::make_unique<OnCpu>(options);
  if constexpr (kHasCuda) {
    if constexpr (kIsElementwise<Rule>)
      return std::make_unique<CudaElementwiseRule<Rule>>(options);
    else
      return Rule::make_on_device(options);
  } else {
    return std::make_unique<PlannedRule<OnCpu>>(options);
  }
}

template <typename Rule>
RuleEntry entry_of() {
  return {.name = Rule::kName,
          .options = list_options<typename Rule::Options>(),
          .is_matrix_rule = std::is_base_of_v<MatrixRule, Rule>,
          .make = make<Rule>};
}

const RuleOption* find_option(const std::vector<RuleOption>& options, std::string_view key) {
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const RuleOption& o) { return o.info.key == key; });
  return found == options.end() ? nullptr : &*found;
}

// Adds the option with this key, if some rule has one and it is not there yet.
void add_option(std::vector<RuleOption>& all, std::string_view key) {
  if (find_option(all, key)) return;
  std::optional<RuleOption> first;
  for (const RuleEntry& entry : rules()) {
    const RuleOption* option = entry.find(key);
    if (!option) continue;
    if (!first) first = *option;
    INGOT_CHECK(option->default_value.index() == first->default_value.index() &&
                    option->values == first->values && option->info.limit == first->info.limit,
                "rules: {} of {} is not the option that another rule calls so", key, entry.name);
  }
  if (first) all.push_back(std::move(*first));
}

}  // namespace

const RuleOption* RuleEntry::find(std::string_view key) const { return find_option(options, key); }

double RuleEntry::number(const GivenOptions& given, std::string_view key) const {
  const RuleOption* option = find(key);
  if (!option) return 0;
  const OptionValue *found = given.find(key), &value = found ? *found : option->default_value;
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

MomentumMeaning RuleEntry::momentum_meaning() const {
  if (find(kMomentum.key)) return MomentumMeaning::kMomentum;
  return find(kBeta1.key) ? MomentumMeaning::kBeta1 : MomentumMeaning::kNone;
}

MomentumRamp RuleEntry::momentum(const GivenOptions& given) const {
  if (momentum_meaning() == MomentumMeaning::kBeta1) {
    const double beta1 = number(given, kBeta1.key);
    return {beta1, beta1, 0};
  }
  return {number(given, kMomentumStart.key), number(given, kMomentum.key),
          static_cast<int64_t>(number(given, kMomentumWarmup.key))};
}

double MomentumRamp::at(int64_t t) const {
  const double warm = steps == 0 ? 1 : std::min(1.0, static_cast<double>(t - 1) / static_cast<double>(steps));
  return warm * to + (1 - warm) * from;
}

const std::vector<RuleEntry>& rules() {
  static const std::vector<RuleEntry> table = [] {
    std::vector<RuleEntry> all;
    for_each_type(AllRules(), [&]<typename Rule>() { all.push_back(entry_of<Rule>()); });
    return all;
  }();
  return table;
}

const RuleEntry& rule_entry(std::string_view name) {
  const auto& table = rules();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const RuleEntry& e) { return e.name == name; });
  if (found != table.end()) return *found;
  std::string known;
  for (const RuleEntry& entry : table) known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  fail(ErrorKind::kUsage, "optimizer.kind must be one of {}, got \"{}\"", known, name);
}

const std::vector<RuleOption>& all_options() {
  static const std::vector<RuleOption> options = [] {
    std::vector<RuleOption> all;
    for (const OptionInfo& shared : kSharedOptions) add_option(all, shared.key);
    for (const RuleEntry& entry : rules())
      for (const RuleOption& option : entry.options) add_option(all, option.info.key);
    return all;
  }();
  return options;
}

}  // namespace ingot
