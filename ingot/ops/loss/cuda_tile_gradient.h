// The gradient of a tile of logits, computed in registers. For .cu files only.
#pragma once

#include "ingot/ops/cuda/cuda_softmax.h"
#include "ingot/ops/loss/cross_entropy_tile.h"
#include "ingot/ops/loss/logit_cap_rules.h"

namespace ingot::cuda::loss {

struct Tile {
  const float* x;
  const int32_t* targets;
  int W, classes;  // number of columns, and of those that are classes
  int64_t first;
};

inline Tile make_tile(const LogitTile& tile, const CrossEntropyConfig& config) {
  const int64_t W = tile.logits.dim(1), classes = std::clamp<int64_t>(config.vocab - tile.first, 0, W);
  return {tile.logits.as<float>(), tile.targets.as<int32_t>(), static_cast<int>(W), static_cast<int>(classes),
          tile.first};
}

struct GradientTerms {
  float grad_scale, label_smoothing, off, z_loss;
  int64_t vocab;
};

inline GradientTerms make_terms(const CrossEntropyConfig& config) {
  return {config.grad_scale, config.label_smoothing,
          config.label_smoothing / static_cast<float>(config.vocab), config.z_loss, config.vocab};
}

// d loss / d logit, computed from the log-sum-exp of each row.
template <typename Cap>
struct TileGradient {
  using Math = softmax::Math;

  Tile tile;
  const float* lse;
  Cap cap;
  GradientTerms terms;

  struct Row {
    const float* x;
    int target;
    bool has_target;
    float lse, on_p;
  };
  __device__ __forceinline__ Row row(int64_t n) const {
    const int target = tile.targets[n];
    const float row_lse = lse[n];
    return {tile.x + n * tile.W, target, target >= 0 && target < terms.vocab, row_lse,
            1 + 2 * terms.z_loss * row_lse};
  }
  // Returns the gradient of W logits of the row, from `column` of the tile on.
  template <int W>
  __device__ __forceinline__ Floats<W> at(const Row& row, int column) const {
    Floats<W> values = load<W>(row.x + column);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const CapValue<Math> c = cap(values.at[i]);
      const float on_target = tile.first + column + i == row.target ? 1 - terms.label_smoothing : 0.0f;
      const float g = Math::exp(c.z - row.lse) * row.on_p - terms.off - on_target;
      values.at[i] = row.has_target && column + i < tile.classes ? terms.grad_scale * g * c.slope : 0.0f;
    }
    return values;
  }
};

// Calls f with the TileGradient of the tile.
template <typename F>
void with_gradient(const LogitTile& tile, const CrossEntropyConfig& config, F&& f) {
  with_cap_rule<softmax::Math>(config, [&](auto cap) {
    f(TileGradient<decltype(cap)>{make_tile(tile, config), tile.lse.as<float>(), cap, make_terms(config)});
  });
}

}  // namespace ingot::cuda::loss
