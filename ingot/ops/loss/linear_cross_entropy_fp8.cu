#include "ingot/ops/loss/linear_cross_entropy_fp8.h"

#include <algorithm>

#include "ingot/core/copy.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/loss/cross_entropy_fp8.h"
#include "ingot/ops/loss/cross_entropy_tile.h"
#include "ingot/ops/loss/kahan.h"
#include "ingot/ops/loss/linear_cross_entropy_shapes.h"

namespace ingot::cuda {
namespace {

constexpr int64_t kGranule = 16;  // dims of 8-bit products are multiples of this

// Returns a contiguous tensor that begins where t does.
Tensor in_memory_of(const Tensor& t, const Shape& shape) { return Tensor(t.data, t.dtype, shape, t.device); }

class Fp8HeadPass {
 public:
  Fp8HeadPass(const LinearCrossEntropyOut& out, const LinearCrossEntropyIn& in,
              const LinearCrossEntropyConfig& config, const LinearCrossEntropyScratch& scratch,
              Stream& stream)
      : out_(out),
        in_(in),
        config_(config),
        scratch_(scratch),
        stream_(stream),
        N_(in.x.dim(0)),
        Vp_(in.w.dim(0)),
        loss_(config.loss) {
    loss_.grad_scale = 1;  // the e5m2 scale replaces grad_scale, which the products apply
    check_dims();
    encode(in.x, scratch.x8, scratch.x8_transposed, scratch.fp8[0], config.fp8_x_scale, true);
    encode(in.w, scratch.w8, scratch.w8_transposed, scratch.fp8[1], config.fp8_w_scale,
           config.columns.is_whole());
    report_.fp8.x.elements = in.x.elements();
    report_.fp8.w.elements = in.w.elements();
    if (!is_current()) put_scale(scratch.fp8[2], fp8_head_gradient_scale(loss_));
    if (scratch.dw_compensation) fill_zero(scratch.dw_compensation, stream);
    if (has_grads() && zeroes_dw(out, config, scratch)) fill_zero(out.dw, stream);
  }

  LinearCrossEntropyReport run() {
    if (config_.kind == HeadKind::kRecompute) {
      fold_tiles();
      if (has_grads()) tile_gradients();
      return report_;
    }
    const int64_t chunk = scratch_.logits.dim(0);
    for (int64_t n = 0; n < N_; n += chunk) run_chunk(n, std::min(n + chunk, N_));
    return report_;
  }

 private:
  bool has_grads() const { return static_cast<bool>(out_.dx); }
  bool is_current() const { return config_.fp8_scaling == Fp8HeadScaling::kCurrent; }

  void check_dims() const {
    const char* op = "linear_cross_entropy in FP8 on a CUDA device";
    for (int64_t dim : {N_, Vp_, in_.x.dim(1), scratch_.logits.dim(0), scratch_.logits.dim(1)})
      INGOT_CHECK(dim % kGranule == 0, "{}: dims must be multiples of {}, got {}", op, kGranule, dim);
    INGOT_CHECK(config_.filter == 0, "{}: no filter", op);
  }

  void put_scale(const Fp8Place& place, float value) const {
    put_fp8_scale(place.scale, place.inverse, value, stream_);
  }
  void make_scale(const Fp8Place& place, DType format) const {
    set_fp8_scale(place.scale, place.inverse, place.fresh, format, Fp8ScaleFloor::kExact, stream_);
  }
  // Casts a whole tensor, also transposed if gradients are wanted. is_whole: no other rank has a part of it.
  void encode(const Tensor& t, const Tensor& codes, const Tensor& transposed, const Fp8Place& place,
              float fixed_scale, bool is_whole) const {
    if (is_current()) {
      cuda::raise_amax(t.with_amax(place.fresh), stream_);
      if (!is_whole) config_.columns.max(place.fresh);
      make_scale(place, DType::f8e4m3);
    } else {
      put_scale(place, fixed_scale);
    }
    const Fp8Meter meter{place.amax, place.counts};
    if (has_grads())
      cast_to_fp8_both_ways(codes, transposed, t, place.scale, meter, stream_);
    else
      cast_to_fp8(codes, t, place.scale, meter, stream_);
  }

  Fp8Operand x_operand(const Tensor& codes) const { return {codes, scratch_.fp8[0].inverse}; }
  Fp8Operand w_operand(const Tensor& codes) const { return {codes, scratch_.fp8[1].inverse}; }
  Fp8Operand d_operand(const Tensor& codes) const { return {codes, scratch_.fp8[2].inverse}; }

  // Returns the logits of tokens [n, n_end) and columns [v, v_end).
  Tensor logits(int64_t n, int64_t n_end, int64_t v, int64_t v_end) const {
    const Tensor place = in_memory_of(scratch_.logits, {n_end - n, v_end - v});
    matmul_fp8(place, x_operand(scratch_.x8.rows(n, n_end)), w_operand(scratch_.w8.rows(v, v_end)),
               {.is_fast = true}, stream_);
    return place;
  }

  struct Gradient {
    Tensor d, transposed;  // (n, W), (W, n) e5m2
  };
  Gradient encode_gradient(const LogitTile& tile) {
    const int64_t n = tile.logits.dim(0), W = tile.logits.dim(1);
    const Gradient gradient{in_memory_of(scratch_.d_logits, {n, W}),
                            in_memory_of(scratch_.d_transposed, {W, n})};
    const Fp8Place& place = scratch_.fp8[2];
    if (is_current()) {
      raise_gradient_amax(place.fresh, tile, loss_, stream_);
      if (!config_.columns.is_whole() && config_.kind != HeadKind::kRecompute)
        config_.columns.max(place.fresh);
      make_scale(place, DType::f8e5m2);
    }
    cross_entropy_fp8_gradient(gradient.d, gradient.transposed, tile, loss_, place, stream_);
    report_.fp8.d_logits.elements += n * W;
    return gradient;
  }

  // The logits are not read after their gradient is encoded, so their memory is free for sums.
  Fp8ProductMode backward(bool accumulate) const {
    return {.accumulate = accumulate,
            .is_fast = false,
            .alpha = config_.loss.grad_scale,
            .sums = in_memory_of(scratch_.logits, {scratch_.logits.elements()})};
  }
  // Rows [v, v + W) of dw = dᵀ x, or +=, over tokens [n, n_end); transposed (W, n_end - n).
  void add_dw(const Tensor& transposed, int64_t v, int64_t n, int64_t n_end) const {
    if (!out_.dw) return;
    const Fp8Operand x = x_operand(scratch_.x8_transposed.columns(n, n_end));
    const int64_t W = transposed.dim(0), step = scratch_.dw_part ? scratch_.dw_part.dim(0) : W;
    for (int64_t k = 0; k < W; k += step) {
      const int64_t k_end = std::min(k + step, W);
      const Tensor dw = out_.dw.rows(v + k, v + k_end);
      const Fp8Operand d = d_operand(transposed.rows(k, k_end));
      if (!scratch_.dw_part) {
        matmul_fp8(dw, d, x, backward(n > 0 || out_.adds_dw), stream_);
        continue;
      }
      const Tensor part = scratch_.dw_part.rows(0, k_end - k);
      matmul_fp8(part, d, x, backward(false), stream_);
      ingot::kahan_add(dw, scratch_.dw_compensation.rows(v + k, v + k_end), part, stream_);
    }
  }

  void finish(int64_t n, int64_t n_end, const Tensor& lse, const Tensor& rows) const {
    ingot::cross_entropy_finish(out_.losses.rows(n, n_end),
                                out_.is_correct ? out_.is_correct.rows(n, n_end) : Tensor{}, lse, rows,
                                in_.targets.rows(n, n_end), loss_, stream_);
  }

  void run_chunk(int64_t n, int64_t n_end) {
    const Tensor rows = scratch_.rows.rows(0, n_end - n), lse = scratch_.lse.rows(0, n_end - n);
    const LogitTile tile{logits(n, n_end, 0, Vp_), config_.columns.first, lse, in_.targets.rows(n, n_end)};
    ingot::cross_entropy_begin(rows, stream_);
    ingot::cross_entropy_fold(rows, tile, loss_, stream_);
    if (!config_.columns.is_whole())
      merge_columns(scratch_.shard.rows_of(0, n_end - n), tile.targets, Vp_, config_.columns, stream_);
    finish(n, n_end, lse, rows);
    if (!has_grads()) return;
    const Gradient gradient = encode_gradient(tile);
    matmul_fp8(out_.dx.rows(n, n_end), d_operand(gradient.d), w_operand(scratch_.w8_transposed),
               backward(false), stream_);
    add_dw(gradient.transposed, 0, n, n_end);
  }

  // Calls f(tile, v, n, n_end) for all tiles, where v is the tile's first column on this rank; the outer loop
  // runs over columns.
  template <typename F>
  void for_each_tile(F&& f) const {
    const int64_t chunk = scratch_.logits.dim(0), width = scratch_.logits.dim(1);
    for (int64_t v = 0; v < Vp_; v += width)
      for (int64_t n = 0; n < N_; n += chunk) {
        const int64_t n_end = std::min(n + chunk, N_);
        f(LogitTile{logits(n, n_end, v, std::min(v + width, Vp_)), config_.columns.first + v,
                    scratch_.lse.rows(n, n_end), in_.targets.rows(n, n_end)},
          v, n, n_end);
      }
  }

  void fold_tiles() const {
    ingot::cross_entropy_begin(scratch_.rows, stream_);
    for_each_tile([&](const LogitTile& tile, int64_t, int64_t n, int64_t n_end) {
      ingot::cross_entropy_fold(scratch_.rows.rows(n, n_end), tile, loss_, stream_);
    });
    if (!config_.columns.is_whole())
      merge_columns(scratch_.shard, in_.targets, Vp_, config_.columns, stream_);
    finish(0, N_, scratch_.lse, scratch_.rows);
  }

  void tile_gradients() {
    const bool is_direct = out_.dx.dtype == DType::f32;
    const Tensor sum = is_direct ? out_.dx : scratch_.dx_sum;
    for_each_tile([&](const LogitTile& tile, int64_t v, int64_t n, int64_t n_end) {
      const Gradient gradient = encode_gradient(tile);
      const Tensor w = scratch_.w8_transposed.columns(v, v + tile.logits.dim(1));
      matmul_fp8(sum.rows(n, n_end), d_operand(gradient.d), w_operand(w), backward(v > 0), stream_);
      add_dw(gradient.transposed, v, n, n_end);
    });
    if (!is_direct) ingot::cast(out_.dx, sum, stream_);
  }

  const LinearCrossEntropyOut& out_;
  const LinearCrossEntropyIn& in_;
  const LinearCrossEntropyConfig& config_;
  const LinearCrossEntropyScratch& scratch_;
  Stream& stream_;
  int64_t N_, Vp_;
  CrossEntropyConfig loss_;
  LinearCrossEntropyReport report_;
};

}  // namespace

LinearCrossEntropyReport linear_cross_entropy_fp8(const LinearCrossEntropyOut& out,
                                                  const LinearCrossEntropyIn& in,
                                                  const LinearCrossEntropyConfig& config,
                                                  const LinearCrossEntropyScratch& scratch, Stream& stream) {
  return Fp8HeadPass(out, in, config, scratch, stream).run();
}

}  // namespace ingot::cuda
