// Parameters that own their memory, for the tests of optimizers.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ingot/optim/optimizer.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/reference/numeric.h"

namespace ingot::test {

inline std::vector<std::string> all_kinds() {
  std::vector<std::string> names;
  for (const RuleEntry& entry : rules()) names.emplace_back(entry.name);
  return names;
}

class Params {
 public:
  // Adds a parameter with weights N(0, 1) and zero gradients, and with a bf16 copy if has_copy.
  void add(const std::string& name, ParamRole role, const Shape& shape, bool has_copy = false) {
    const auto stream = static_cast<uint32_t>(list.size() + 1);
    const int64_t n = shape.elements();
    memory_.push_back(random_tensor(DType::f32, {n}, stream));
    const Tensor w = memory_.back();
    memory_.push_back(zeros(DType::f32, {n}));
    const Tensor g = memory_.back();
    Tensor compute;
    if (has_copy) {
      memory_.push_back(zeros(DType::bf16, {n}));
      compute = memory_.back();
    }
    list.push_back({.name = name, .role = role, .shape = shape, .w = w, .compute = compute, .g = g});
  }

  // Draws the gradients of step t from N(0, scale^2).
  void draw_gradients(int t, double scale = 0.1) {
    for (size_t i = 0; i < list.size(); ++i) {
      const Buffer g = random_tensor(DType::f32, list[i].g.shape,
                                     static_cast<uint32_t>(1000 * t + static_cast<int>(i)), scale);
      assign(list[i].g, to_doubles(g));
    }
  }

  std::vector<Doubles> weights() const {
    std::vector<Doubles> all;
    for (const OptimParam& p : list) all.push_back(to_doubles(p.w));
    return all;
  }

  std::vector<OptimParam> list;

 private:
  std::deque<Buffer> memory_;
};

// Returns the bytes of each tensor of an optimizer's state.
inline std::vector<std::string> state_contents(const Optimizer& optimizer) {
  std::vector<std::string> all;
  for (const Optimizer::State& state : optimizer.states())
    all.emplace_back(static_cast<const char*>(state.tensor.data), state.tensor.bytes());
  return all;
}

}  // namespace ingot::test
