#include "ingot/ops/loss/cross_entropy_tile.h"
#include "ingot/ops/loss/linear_cross_entropy_shapes.h"

namespace ingot {

bool keeps_exponentials(const LinearCrossEntropyConfig& config) {
  return config.kind == HeadKind::kChunked && is_half(config.precision) && config.device == Device::kCpu &&
         config.loss_dtype == LossDtype::kF32 &&
         (config.loss.label_smoothing == 0 || config.loss.cap == LogitCap::kNone);
}

bool has_bf16_logits(const LinearCrossEntropyConfig& config) {
  return config.device == Device::kCuda && config.loss_dtype == LossDtype::kBf16Logits;
}

namespace {

// Returns the scratch for merging the rows of all ranks, with the memory of the scratch's own rows.
ColumnShardScratch shard_of_known(Arena& arena, const LinearCrossEntropyScratch& s, int count) {
  return {
      .rows = s.rows, .parts = arena.alloc(DType::u8, {count, s.rows.dim(0), s.rows.dim(1)}), .lse = s.lse};
}

struct HeadDims {
  int64_t N, C, Vp;
};

LinearCrossEntropyScratch make_device_fp8_scratch(Arena& arena, const HeadDims& dims,
                                                  const LinearCrossEntropyConfig& config, bool has_grads) {
  const auto [N, C, Vp] = dims;
  const bool is_recompute = config.kind == HeadKind::kRecompute;
  const int64_t chunk = chunk_tokens(config, N), tile = std::min(Vp, config.tile_columns);
  const int64_t columns = is_recompute ? tile : Vp, known = is_recompute ? N : chunk;
  LinearCrossEntropyScratch s;
  s.logits = arena.alloc(DType::f32, {chunk, columns});
  s.x8 = arena.alloc(DType::f8e4m3, {N, C});
  s.w8 = arena.alloc(DType::f8e4m3, {Vp, C});
  s.rows = alloc_tile_rows(arena, known);
  s.lse = arena.alloc(DType::f32, {known});
  if (!config.columns.is_whole()) s.shard = shard_of_known(arena, s, config.columns.count);
  if (!has_grads) return s;
  s.x8_transposed = arena.alloc(DType::f8e4m3, {C, N});
  s.w8_transposed = arena.alloc(DType::f8e4m3, {C, Vp});
  s.d_logits = arena.alloc(DType::f8e5m2, {chunk, columns});
  s.d_transposed = arena.alloc(DType::f8e5m2, {columns, chunk});
  if (is_recompute) s.dx_sum = arena.alloc(DType::f32, {N, C});
  if (config.accumulation == HeadAccumulation::kKahan) {
    s.dw_part = arena.alloc(DType::f32, {tile, C});
    s.dw_compensation = arena.alloc(DType::f32, {Vp, C});
  }
  return s;
}

}  // namespace

LinearCrossEntropyScratch make_linear_cross_entropy_scratch(Arena& arena, int64_t N, int64_t C, int64_t Vp,
                                                            const LinearCrossEntropyConfig& config,
                                                            bool has_grads) {
  const bool is_fp8 = config.precision == HeadPrecision::kFp8,
             is_recompute = config.kind == HeadKind::kRecompute;
  const bool is_kept = keeps_exponentials(config);
  const bool is_split =
      config.kind == HeadKind::kChunked && is_half(config.precision) && !is_kept && !has_bf16_logits(config);
  const int64_t chunk = chunk_tokens(config, N), tile = std::min(Vp, config.tile_columns);
  const int64_t columns = is_recompute || is_kept ? tile : Vp;
  if (is_fp8 && config.device == Device::kCuda)
    return make_device_fp8_scratch(arena, {N, C, Vp}, config, has_grads);
  LinearCrossEntropyScratch s;
  s.logits = arena.alloc(has_bf16_logits(config) ? DType::bf16 : DType::f32,
                         {is_split ? std::min(chunk, config.logit_tokens) : chunk, columns});
  if (is_fp8) {
    s.x8 = arena.alloc(DType::f8e4m3, {N, C});
    s.w8 = arena.alloc(DType::f8e4m3, {Vp, C});
    s.x_part = arena.alloc(DType::bf16, {chunk, C});
    s.w_part = arena.alloc(DType::bf16, {tile, C});
  }
  if (is_recompute || is_kept) {
    const int64_t tokens = is_recompute ? N : chunk;
    s.rows = alloc_tile_rows(arena, tokens);
    s.lse = arena.alloc(DType::f32, {tokens});
  }
  if (!config.columns.is_whole()) {
    if (s.rows)
      s.shard = shard_of_known(arena, s, config.columns.count);
    else
      s.shard = make_column_shard_scratch(arena, s.logits.dim(0), config.columns.count);
  }
  if (!has_grads) return s;
  if (config.precision != HeadPrecision::kF32 && !has_bf16_logits(config))
    s.d_logits = arena.alloc(product_dtype(config.precision), {chunk, is_recompute ? tile : Vp});
  if (is_kept) s.references = arena.alloc(DType::f32, {(Vp + tile - 1) / tile, chunk});
  if (is_recompute || is_fp8) s.dx_sum = arena.alloc(DType::f32, {is_recompute ? N : chunk, C});
  if (config.accumulation == HeadAccumulation::kKahan) {
    s.dw_part = arena.alloc(DType::f32, {tile, C});
    s.dw_compensation = arena.alloc(DType::f32, {Vp, C});
  }
  return s;
}

}  // namespace ingot
