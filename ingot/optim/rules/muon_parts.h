// The matrices of a parameter that Muon orthogonalises one by one, and the update of an element
// along the result.
#pragma once

#include <algorithm>
#include <cmath>

#include "ingot/optim/rules/muon.h"

namespace ingot {

// One matrix of a parameter: rows [begin, begin + rows) of it. `second` is the index of its first number
// in the state of that name. Its lanes are its rows, or its columns if it is wide; NorMuon scales each lane
// by a factor of its own.
struct MuonPart {
  int64_t begin, rows, columns, second;

  bool is_wide() const { return rows < columns; }
  int64_t lanes() const { return is_wide() ? columns : rows; }
  int64_t first() const { return begin * columns; }  // first element
  int64_t end() const { return (begin + rows) * columns; }
  float shape_factor() const {
    return static_cast<float>(
        std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns))));
  }
};

// Calls f(part) for each matrix of the parameter, in order of rows.
template <typename F>
void for_each_part(const OptimParam& param, bool splits_fused, F&& f) {
  MuonPart part{0, param.whole()[0], param.whole()[1], 0};
  if (!splits_fused || param.fused_rows.empty()) return f(part);
  for (int64_t rows : param.fused_rows) {
    part.rows = rows;
    f(part);
    part.begin += rows;
    part.second += part.lanes();
  }
}

// Moves w along o, which includes the shape factor.
struct MuonMove {
  float lr, decay;
  bool is_cautious;

  MuonMove(const Muon::Options& options, const RuleStep& step)
      : lr(static_cast<float>(step.lr)),
        decay(static_cast<float>(step.lr * step.weight_decay)),
        is_cautious(options.cautious_decay) {}

  constexpr void operator()(float& w, float o) const {
    const bool decays = !is_cautious || o * w >= 0;
    w = w - (decays ? decay : 0.0f) * w - lr * o;
  }
};

}  // namespace ingot
