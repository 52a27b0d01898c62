// ElementwiseRule<R> turns a struct R into an update rule. R updates one element with f32 state of its own:
//   R::kName                                         its name in configurations
//   R::Options                                       its options and their table (optim/rule_options.h)
//   R::kState                                        names of its state
//   R(const Options&, const RuleStep&)               everything that does not depend on the element
//   void operator()(float& w, float g, float&...)    one element: weight, raw gradient, state
#pragma once

#include <type_traits>
#include <utility>

#include "ingot/optim/rule.h"
#include "ingot/optim/type_list.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {

template <typename R>
inline constexpr bool kIsElementwise = !std::is_base_of_v<UpdateRule, R>;

// The elementwise rules of a list.
template <typename List>
struct ElementwiseOf;
template <typename... Rules>
struct ElementwiseOf<TypeList<Rules...>>
    : Joined<std::conditional_t<kIsElementwise<Rules>, TypeList<Rules>, TypeList<>>...> {};

// The rule on the CPU; optim/rules/all_rules.cpp has the one on a CUDA device.
template <typename R>
class ElementwiseRule : public UpdateRule {
 public:
  explicit ElementwiseRule(const typename R::Options& options) : options_(options) {}

  std::vector<StateSpec> state(const OptimParam& param) const override {
    std::vector<StateSpec> specs;
    for (const char* name : R::kState) specs.push_back({name, DType::f32, {param.elements()}});
    return specs;
  }

  void update(std::span<const ParamUpdate> updates, Arena& /*scratch*/, Stream& /*stream*/) const override {
    update_ranges(updates,
                  [&](const ParamUpdate& u, Range range) { return update_range(u.p, range, u.step); });
  }

  RangeTotals update_range(const ParamState& p, Range range, const RuleStep& step) const {
    const R rule(options_, step);
    return for_each_run(p, range, step, [&](float* w, const float* g, [[maybe_unused]] int64_t i, int64_t n) {
      [&]<size_t... S>(std::index_sequence<S...>) { move(rule, n, w, g, (p.state[S].as<float>() + i)...); }
      (std::make_index_sequence<R::kState.size()>());
    });
  }

 protected:
  typename R::Options options_;

 private:
  template <typename... State>
  static void move(const R& rule, int64_t n, float* w, const float* g, State*... state) {
    const R constants = rule;  // a local copy stays in registers
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) constants(w[j], g[j], state[j]...);
  }
};

}  // namespace ingot
