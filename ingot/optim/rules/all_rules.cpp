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

template <typename Rule>
std::unique_ptr<UpdateRule> make(const GivenOptions& given) {
  const auto options = read_options<typename Rule::Options>(given);
  if constexpr (kIsElementwise<Rule>)
    return std::make_unique<ElementwiseRule<Rule>>(options);
  else
    return std::make_unique<Rule>(options);
}

// A rule that is no matrix rule.
template <typename Rule>
class OnDevice final : public DeviceRule {
 public:
  using Options = typename Rule::Options;
  explicit OnDevice(const Options& options) : options_(options) {}

  void measure([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
               [[maybe_unused]] const SharedNumbers& numbers, [[maybe_unused]] int turn,
               [[maybe_unused]] Arena& scratch, [[maybe_unused]] Stream& stream) const override {
    if constexpr (kHasCuda && !kIsElementwise<Rule>)
      Rule::measure_on_device(p, options_, step, numbers, turn, scratch, stream);
  }
  void update([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
              [[maybe_unused]] const Prepared& prepared, [[maybe_unused]] const Tensor& totals,
              [[maybe_unused]] Arena& scratch, [[maybe_unused]] Stream& stream) const override {
    if constexpr (kHasCuda && kIsElementwise<Rule>)
      cuda::update_elementwise(p, Rule(options_, step), step, totals, stream);
    else if constexpr (kHasCuda)
      Rule::update_on_device(p, options_, step, prepared.numbers, totals, scratch, stream);
  }
  void update_all(std::span<const DeviceUpdate> updates, Arena& scratch, Stream& stream) const override {
    if constexpr (kHasCuda && kIsElementwise<Rule>) {
      std::vector<cuda::ElementwiseUpdate<Rule>> all;
      for (const DeviceUpdate& u : updates) all.push_back({&u.p, Rule(options_, u.step), &u.step, u.totals});
      cuda::update_elementwise(std::span<const cuda::ElementwiseUpdate<Rule>>(all), stream);
    } else {
      DeviceRule::update_all(updates, scratch, stream);
    }
  }
  size_t scratch_bytes([[maybe_unused]] const OptimParam& param) const override {
    if constexpr (kHasCuda && !kIsElementwise<Rule>) return Rule::device_scratch_bytes(param, options_);
    return 0;
  }

 private:
  Options options_;
};

template <typename Rule>
class MatrixRuleOnDevice final : public DeviceMatrixRule {
 public:
  using Options = typename Rule::Options;
  explicit MatrixRuleOnDevice(const Options& options) : options_(options) {}

  void move_momentum([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
                     [[maybe_unused]] const Tensor& u, [[maybe_unused]] Stream& stream) const override {
    if constexpr (kHasCuda) Rule::move_momentum_on_device(p, options_, step, u, stream);
  }
  void orthogonalise([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
                     [[maybe_unused]] const Tensor& u, [[maybe_unused]] Arena& scratch,
                     [[maybe_unused]] Stream& stream) const override {
    if constexpr (kHasCuda) Rule::orthogonalise_on_device(p, options_, step, u, scratch, stream);
  }
  void update([[maybe_unused]] const ParamState& p, [[maybe_unused]] const RuleStep& step,
              [[maybe_unused]] const Prepared& prepared, [[maybe_unused]] const Tensor& totals,
              Arena& /*scratch*/, [[maybe_unused]] Stream& stream) const override {
    if constexpr (kHasCuda) Rule::update_on_device(p, options_, step, prepared.direction, totals, stream);
  }
  size_t scratch_bytes([[maybe_unused]] const OptimParam& param) const override {
    if constexpr (kHasCuda) return Rule::device_scratch_bytes(param, options_);
    return 0;
  }

 private:
  Options options_;
};

template <typename Rule>
std::unique_ptr<DeviceRule> make_on_device(const GivenOptions& given) {
  using Made =
      std::conditional_t<std::is_base_of_v<MatrixRule, Rule>, MatrixRuleOnDevice<Rule>, OnDevice<Rule>>;
  return std::make_unique<Made>(read_options<typename Rule::Options>(given));
}

template <typename Rule>
RuleEntry entry_of() {
  return {.name = Rule::kName,
          .options = list_options<typename Rule::Options>(),
          .is_matrix_rule = std::is_base_of_v<MatrixRule, Rule>,
          .make = make<Rule>,
          .make_on_device = make_on_device<Rule>};
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
