// ElementwiseRule<R> turns a struct R into an update rule. R updates one element with f32 state of its own:
//   R::kState                                        names of its state
//   R(const RuleParams&, const RuleStep&)            everything that does not depend on the element
//   void operator()(float& w, float g, float&...)    one element: weight, raw gradient, state
#pragma once

#include <utility>

#include "ingot/optim/rule.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {

template <typename R>
class ElementwiseRule final : public UpdateRule {
 public:
  explicit ElementwiseRule(const RuleParams& params) : params_(params) {}

  std::vector<StateSpec> state(const OptimParam& param) const override {
    std::vector<StateSpec> specs;
    for (const char* name : R::kState) specs.push_back({name, DType::f32, {param.elements()}});
    return specs;
  }

  RangeTotals update(const ParamState& p, Range range, const RuleStep& step,
                     const Prepared& /*prepared*/) const override {
    const R rule(params_, step);
    return for_each_run(p, range, step, [&](float* w, const float* g, [[maybe_unused]] int64_t i, int64_t n) {
      [&]<size_t... S>(std::index_sequence<S...>) { move(rule, n, w, g, (p.state[S].as<float>() + i)...); }
      (std::make_index_sequence<R::kState.size()>());
    });
  }

 private:
  template <typename... State>
  static void move(const R& rule, int64_t n, float* w, const float* g, State*... state) {
    const R constants = rule;  // a local copy stays in registers
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) constants(w[j], g[j], state[j]...);
  }

  RuleParams params_;
};

}  // namespace ingot
