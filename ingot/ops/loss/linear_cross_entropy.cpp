#include "ingot/ops/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/float8.h"
#include "ingot/core/parallel.h"
#include "ingot/core/work.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/loss/cross_entropy_tile.h"
#include "ingot/ops/loss/kahan.h"
#include "ingot/ops/loss/linear_cross_entropy_fp8.h"
#include "ingot/ops/loss/linear_cross_entropy_shapes.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/preference_loss.h"

namespace ingot {
namespace {

// The scale of gradients of at most 1: it leaves 2.8 octaves to e5m2's largest value.
constexpr float kHeadRoom = 0x1p13f;

// Returns a contiguous tensor that begins where t does.
Tensor in_memory_of(const Tensor& t, DType dtype, const Shape& shape) {
  return Tensor(t.data, dtype, shape, t.device);
}

// One call of linear_cross_entropy: its operands in the precision of the products, and the loops over
// chunks and tiles.
class HeadPass {
 public:
  HeadPass(const LinearCrossEntropyOut& out, const LinearCrossEntropyIn& in,
           const LinearCrossEntropyConfig& config, const LinearCrossEntropyScratch& scratch, Stream& stream)
      : out_(out),
        in_(in),
        config_(config),
        scratch_(scratch),
        stream_(stream),
        N_(in.x.dim(0)),
        Vp_(in.w.dim(0)),
        loss_(config.loss) {
    if (is_fp8()) {
      quantise();
      loss_.grad_scale = 1;  // the e5m2 scale replaces grad_scale, which the products apply
    }
    if (scratch.dw_compensation) fill_zero(scratch.dw_compensation, stream);
    if (has_grads() && zeroes_dw(out, config, scratch)) fill_zero(out.dw, stream);
  }

  LinearCrossEntropyReport run() {
    if (config_.kind == HeadKind::kRecompute) {
      fold_tiles();
      if (has_grads()) tile_gradients();
    } else {
      const int64_t chunk = chunk_tokens(config_, N_);
      for (int64_t n = 0; n < N_; n += chunk) run_chunk(n, std::min(n + chunk, N_));
    }
    return report_;
  }

 private:
  bool is_fp8() const { return config_.precision == HeadPrecision::kFp8; }
  bool has_grads() const { return static_cast<bool>(out_.dx); }

  void quantise() {
    const bool is_current = config_.fp8_scaling == Fp8HeadScaling::kCurrent;
    const auto scale = [&](const Tensor& t, float fixed) {
      return is_current ? fp8_scale(DType::f8e4m3, shared_max(t), Fp8ScaleFloor::kExact) : fixed;
    };
    x_scale_ = scale(in_.x, config_.fp8_x_scale);
    w_scale_ = scale(in_.w, config_.fp8_w_scale);
    cast_to_fp8(scratch_.x8, in_.x, x_scale_, report_.fp8.x, stream_);
    cast_to_fp8(scratch_.w8, in_.w, w_scale_, report_.fp8.w, stream_);
  }

  // Returns the largest |element| over all ranks, since w or the logits may be sharded.
  float shared_max(const Tensor& t) const {
    float largest = absolute_max(t, stream_);
    if (!config_.columns.is_whole()) config_.columns.max(Tensor(&largest, DType::f32, {1}));
    return largest;
  }

  // Columns processed at once: in kFp8 those for which decoded rows of w fit into w_part.
  int64_t w_tile() const { return is_fp8() ? scratch_.w_part.dim(0) : Vp_; }
  Tensor x_rows(int64_t begin, int64_t end) const {
    return decoded(in_.x, scratch_.x8, scratch_.x_part, begin, end);
  }
  Tensor w_rows(int64_t begin, int64_t end) const {
    return decoded(in_.w, scratch_.w8, scratch_.w_part, begin, end);
  }
  Tensor decoded(const Tensor& plain, const Tensor& codes, const Tensor& part, int64_t begin,
                 int64_t end) const {
    if (!is_fp8()) return plain.rows(begin, end);
    const Tensor values = part.rows(0, end - begin);
    cast_from_fp8(values, codes.rows(begin, end), stream_);
    return values;
  }

  // Factors that remove the FP8 scales from the products.
  float logits_factor() const { return 1 / (x_scale_ * w_scale_); }
  float d_factor(float operand_scale) const {
    return is_fp8() ? config_.loss.grad_scale / (d_scale_ * operand_scale) : 1.0f;
  }

  // Returns the gradient in `logits` in the dtype of the products and sets d_scale_.
  Tensor product_gradient(const Tensor& logits) {
    const Tensor d = in_memory_of(scratch_.d_logits, DType::bf16, logits.shape);
    const bool is_current = config_.fp8_scaling == Fp8HeadScaling::kCurrent;
    const bool is_tile = config_.kind == HeadKind::kRecompute;
    const auto amax = [&] { return is_tile ? absolute_max(logits, stream_) : shared_max(logits); };
    d_scale_ = is_current ? fp8_scale(DType::f8e5m2, amax(), Fp8ScaleFloor::kExact)
                          : kHeadRoom / std::max(1.0f, max_slope(config_.loss));
    round_to_fp8(d, logits, DType::f8e5m2, d_scale_, report_.fp8.d_logits, stream_);
    return d;
  }

  // Returns where the cross-entropy of `logits` writes its gradient; absent without gradients.
  Tensor gradient_place(const Tensor& logits) const {
    if (!has_grads()) return {};
    if (!scratch_.d_logits || is_fp8()) return logits;
    return in_memory_of(scratch_.d_logits, product_dtype(config_.precision), logits.shape);
  }

  // Computes the losses of tokens [begin, end), and the gradient of their logits into d.
  void run_logits(const Tensor& logits, const Tensor& d, const Tensor& x, int64_t begin, int64_t end) {
    for (int64_t v = 0; v < Vp_; v += w_tile()) {
      const int64_t v_end = std::min(v + w_tile(), Vp_);
      scaled_matmul(logits.columns(v, v_end), x, w_rows(v, v_end), MatmulForm::kNT, logits_factor(), false,
                    stream_);
    }
    const Tensor losses = out_.losses.rows(begin, end), targets = in_.targets.rows(begin, end);
    const Tensor is_correct = out_.is_correct ? out_.is_correct.rows(begin, end) : Tensor{};
    if (!config_.columns.is_whole())
      return shared_cross_entropy({.losses = losses, .is_correct = is_correct, .d_logits = d}, logits,
                                  targets, loss_, config_.columns, scratch_.shard.rows_of(0, end - begin),
                                  stream_);
    if (config_.loss_dtype == LossDtype::kBf16Logits && logits.dtype == DType::f32)
      round_to_bf16(logits, stream_);
    const auto loss = config_.loss_dtype == LossDtype::kBf16 ? cross_entropy_in_bf16 : cross_entropy;
    loss(losses, is_correct, d, logits, targets, loss_, stream_);
  }

  void run_chunk(int64_t begin, int64_t end) {
    const Tensor x = x_rows(begin, end);
    Tensor d = keeps_exponentials(config_) ? kept_losses(x, begin, end) : part_losses(x, begin, end);
    if (!has_grads()) return;
    if (in_.row_weights) scale_rows(d, in_.row_weights.rows(begin, end), stream_);
    if (is_fp8()) d = product_gradient(d);
    add_dx(out_.dx.rows(begin, end), d);
    const int64_t tile = scratch_.dw_part ? scratch_.dw_part.dim(0) : Vp_;
    for (int64_t v = 0; v < Vp_; v += tile) {
      const int64_t v_end = std::min(v + tile, Vp_);
      add_dw(d.columns(v, v_end), x, v, v_end, adds_dw(begin));
    }
  }

  // Computes the losses of a chunk and the gradient of its logits, scratch_.logits.dim(0) tokens at a time.
  Tensor part_losses(const Tensor& x, int64_t begin, int64_t end) {
    const int64_t part = scratch_.logits.dim(0);
    const Tensor d = gradient_place(in_memory_of(scratch_.logits, scratch_.logits.dtype, {end - begin, Vp_}));
    for (int64_t n = 0; n < end - begin; n += part) {
      const int64_t n_end = std::min(n + part, end - begin);
      run_logits(scratch_.logits.rows(0, n_end - n), d ? d.rows(n, n_end) : d, x.rows(n, n_end), begin + n,
                 begin + n_end);
    }
    return d;
  }

  // As part_losses, but one tile of columns at a time.
  Tensor kept_losses(const Tensor& x, int64_t begin, int64_t end) {
    const int64_t n = end - begin, tile = scratch_.logits.dim(1);
    const Tensor targets = in_.targets.rows(begin, end), lse = scratch_.lse.rows(0, n),
                 rows = scratch_.rows.rows(0, n);
    const Tensor d = has_grads() ? scratch_.d_logits.rows(0, n) : Tensor{};
    const KeptExponentials kept{
        .values = in_memory_of(d, DType::f16, d.shape),
        .references = in_memory_of(scratch_.references, DType::f32, {(Vp_ + tile - 1) / tile, n}),
        .tile_columns = tile};
    cross_entropy_begin(rows, stream_);
    for (int64_t v = 0; v < Vp_; v += tile) {
      const int64_t v_end = std::min(v + tile, Vp_);
      const LogitTile part{.logits = in_memory_of(scratch_.logits, DType::f32, {n, v_end - v}),
                           .first = config_.columns.first + v,
                           .targets = targets};
      matmul(part.logits, x, in_.w.rows(v, v_end), MatmulForm::kNT, false, stream_);
      if (d)
        cross_entropy_fold_and_keep(kept, v / tile, rows, part, loss_, stream_);
      else
        cross_entropy_fold(rows, part, loss_, stream_);
    }
    if (!config_.columns.is_whole())
      merge_columns(scratch_.shard.rows_of(0, n), targets, Vp_, config_.columns, stream_);
    cross_entropy_finish(out_.losses.rows(begin, end),
                         out_.is_correct ? out_.is_correct.rows(begin, end) : Tensor{}, lse, rows, targets,
                         loss_, stream_);
    const LogitTile all{.first = config_.columns.first, .lse = lse, .targets = targets};
    if (d) cross_entropy_kept_gradient(d, kept, rows, all, loss_, stream_);
    return d;
  }

  // dx = d · w
  void add_dx(const Tensor& dx, const Tensor& d) const {
    if (!is_fp8()) return matmul(dx, d, in_.w, MatmulForm::kNN, false, stream_);
    const Tensor sum = scratch_.dx_sum.rows(0, dx.dim(0));
    for (int64_t v = 0; v < Vp_; v += w_tile()) {
      const int64_t v_end = std::min(v + w_tile(), Vp_);
      scaled_matmul(sum, d.columns(v, v_end), w_rows(v, v_end), MatmulForm::kNN, d_factor(w_scale_), v > 0,
                    stream_);
    }
    cast(dx, sum, stream_);
  }

  // True if the product of the tokens from `begin` on is added to dw.
  bool adds_dw(int64_t begin) const {
    return begin > 0 || out_.adds_dw || zeroes_dw(out_, config_, scratch_);
  }

  // Rows [v, v_end) of dw = dᵀ · x, or +=; nothing without dw.
  void add_dw(const Tensor& d, const Tensor& x, int64_t v, int64_t v_end, bool adds) const {
    if (!out_.dw) return;
    const Tensor dw = out_.dw.rows(v, v_end);
    if (!scratch_.dw_part) return scaled_matmul(dw, d, x, MatmulForm::kTN, d_factor(x_scale_), adds, stream_);
    const Tensor part = scratch_.dw_part.rows(0, v_end - v);
    scaled_matmul(part, d, x, MatmulForm::kTN, d_factor(x_scale_), false, stream_);
    kahan_add(dw, scratch_.dw_compensation.rows(v, v_end), part, stream_);
  }

  // Calls f(the tile, its x, its w, v, {n, n_end}) for all tiles. The outer loop runs over columns, so that a
  // tile's rows of w and dw stay in the caches while the inner loop runs over the tokens.
  template <typename F>
  void for_each_tile(F&& f) const {
    const int64_t chunk = scratch_.logits.dim(0), tile = scratch_.logits.dim(1);
    for (int64_t v = 0; v < Vp_; v += tile) {
      const int64_t v_end = std::min(v + tile, Vp_);
      const Tensor w = w_rows(v, v_end);
      for (int64_t n = 0; n < N_; n += chunk) {
        const int64_t n_end = std::min(n + chunk, N_);
        const LogitTile part{.logits = in_memory_of(scratch_.logits, DType::f32, {n_end - n, v_end - v}),
                             .first = config_.columns.first + v,
                             .lse = scratch_.lse.rows(n, n_end),
                             .targets = in_.targets.rows(n, n_end)};
        const Tensor x = x_rows(n, n_end);
        scaled_matmul(part.logits, x, w, MatmulForm::kNT, logits_factor(), false, stream_);
        f(part, x, w, v, Range{n, n_end});
      }
    }
  }

  void fold_tiles() {
    cross_entropy_begin(scratch_.rows, stream_);
    for_each_tile([&](const LogitTile& part, const Tensor&, const Tensor&, int64_t, Range n) {
      cross_entropy_fold(scratch_.rows.rows(n.begin, n.end), part, loss_, stream_);
    });
    if (!config_.columns.is_whole())
      merge_columns(scratch_.shard, in_.targets, Vp_, config_.columns, stream_);
    cross_entropy_finish(out_.losses, out_.is_correct, scratch_.lse, scratch_.rows, in_.targets, loss_,
                         stream_);
  }

  void tile_gradients() {
    const bool is_direct = out_.dx.dtype == DType::f32;
    const Tensor sum = is_direct ? out_.dx : scratch_.dx_sum;
    fill_zero(sum, stream_);
    const float limit = config_.filter * std::abs(loss_.grad_scale);
    for_each_tile([&](const LogitTile& part, const Tensor& x, const Tensor& w, int64_t v, Range n) {
      Tensor d = gradient_place(part.logits);
      cross_entropy_tile_gradient(d, part, loss_, stream_);
      if (in_.row_weights) scale_rows(d, in_.row_weights.rows(n.begin, n.end), stream_);
      ++report_.tiles;
      if (limit > 0 && absolute_max(d, stream_) < limit) {
        ++report_.filtered_tiles;
        return;
      }
      if (is_fp8()) d = product_gradient(part.logits);
      scaled_matmul(sum.rows(n.begin, n.end), d, w, MatmulForm::kNN, d_factor(w_scale_), true, stream_);
      add_dw(d, x, v, v + part.logits.dim(1), adds_dw(n.begin));
    });
    if (!is_direct) cast(out_.dx, sum, stream_);
  }

  const LinearCrossEntropyOut& out_;
  const LinearCrossEntropyIn& in_;
  const LinearCrossEntropyConfig& config_;
  const LinearCrossEntropyScratch& scratch_;
  Stream& stream_;
  int64_t N_, Vp_;
  CrossEntropyConfig loss_;
  float x_scale_ = 1, w_scale_ = 1, d_scale_ = 1;
  LinearCrossEntropyReport report_;
};

// Plans the exchanges of the FP8 head on a device between the ranks that share the columns.
void plan_fp8_exchange(const LinearCrossEntropyIn& in, const LinearCrossEntropyConfig& config,
                       const LinearCrossEntropyScratch& scratch, bool has_grads, Stream& stream) {
  if (config.columns.is_whole()) return;
  const bool is_current = config.fp8_scaling == Fp8HeadScaling::kCurrent;
  const Tensor amax(scratch.lse.data, DType::f32, {1}, scratch.lse.device);
  if (is_current) config.columns.max(amax);
  if (config.kind == HeadKind::kRecompute)
    return merge_columns(scratch.shard, in.targets, in.w.dim(0), config.columns, stream);
  const int64_t N = in.x.dim(0), chunk = scratch.logits.dim(0);
  for (int64_t n = 0; n < N; n += chunk) {
    const int64_t n_end = std::min(n + chunk, N);
    merge_columns(scratch.shard.rows_of(0, n_end - n), in.targets.rows(n, n_end), in.w.dim(0), config.columns,
                  stream);
    if (is_current && has_grads) config.columns.max(amax);
  }
}

// The work of the FP8 head on a device (linear_cross_entropy_fp8.h): casts, three products, and the loss. The
// recomputing head computes the logits twice.
void plan_fp8_on_device(const LinearCrossEntropyOut& out, const LinearCrossEntropyIn& in,
                        const LinearCrossEntropyConfig& config, const LinearCrossEntropyScratch& scratch,
                        Stream& stream) {
  const auto N = static_cast<double>(in.x.dim(0)), C = static_cast<double>(in.x.dim(1)),
             Vp = static_cast<double>(in.w.dim(0));
  for (const Tensor& t : {in.x, in.w}) {
    Work cast = traffic({t, t});
    cast.bytes += 2 * static_cast<double>(t.elements());
    const WorkSpan span(stream, "fp8 cast", cast);
  }
  const bool is_twice = config.kind == HeadKind::kRecompute && out.dx;
  const auto product = [&](double bytes) {
    const WorkSpan span(stream, "matmul", {.flops = 2 * N * C * Vp, .bytes = bytes, .dtype = DType::f8e4m3});
  };
  for (int i = 0; i < (is_twice ? 2 : 1); ++i) {
    product(N * C + Vp * C + 4 * N * Vp);
    const WorkSpan span(stream, "loss", {.bytes = (out.dx ? 6 : 4) * N * Vp});
  }
  plan_fp8_exchange(in, config, scratch, static_cast<bool>(out.dx), stream);
  if (!out.dx) return;
  product(N * Vp + Vp * C + static_cast<double>(out.dx.bytes()));
  if (out.dw) product(N * Vp + N * C + (out.adds_dw ? 2 : 1) * static_cast<double>(out.dw.bytes()));
}

void check_operands(const LinearCrossEntropyOut& out, const LinearCrossEntropyIn& in,
                    const LinearCrossEntropyConfig& config, const LinearCrossEntropyScratch& scratch) {
  INGOT_CHECK(in.x.rank() == 2 && in.w.rank() == 2 && in.x.dim(1) == in.w.dim(1),
              "linear_cross_entropy: x (N, C) and w (Vp, C) must agree, got {} and {}",
              in.x.shape.to_string(), in.w.shape.to_string());
  const int64_t N = in.x.dim(0), Vp = in.w.dim(0);
  if (config.precision != HeadPrecision::kFp8) {
    const DType wanted = product_dtype(config.precision);
    check_tensor(in.x, wanted, in.x.shape, "linear_cross_entropy: x");
    check_tensor(in.w, wanted, in.w.shape, "linear_cross_entropy: w");
  }
  check_tensor(in.targets, DType::i32, {N}, "linear_cross_entropy: targets");
  check_tensor(out.losses, DType::f32, {N}, "linear_cross_entropy: losses");
  INGOT_CHECK(!in.row_weights || config.precision != HeadPrecision::kFp8,
              "linear_cross_entropy: kFp8 takes no row_weights");
  INGOT_CHECK(scratch.logits && scratch.logits.dim(0) >= 1 && scratch.logits.dim(1) <= Vp,
              "linear_cross_entropy: scratch for logits must be (chunk, at most {}), got {}", Vp,
              scratch.logits.shape.to_string());
  INGOT_CHECK(config.loss_dtype == LossDtype::kF32 ||
                  (config.precision == HeadPrecision::kBf16 && config.kind != HeadKind::kRecompute &&
                   config.columns.is_whole()),
              "linear_cross_entropy: a loss in bf16 needs kBf16, all columns, and no kRecompute");
  INGOT_CHECK(config.filter == 0 || config.kind == HeadKind::kRecompute,
              "linear_cross_entropy: only kRecompute filters tiles, got filter {}", config.filter);
  if (!out.dx) return;
  check_tensor(out.dx, out.dx.dtype, in.x.shape, "linear_cross_entropy: dx");
  if (out.dw) check_tensor(out.dw, DType::f32, in.w.shape, "linear_cross_entropy: dw");
}

}  // namespace

float fp8_head_gradient_scale(const CrossEntropyConfig& loss) {
  return kHeadRoom / (loss.grad_scale * std::max(1.0f, max_slope(loss)));
}

LinearCrossEntropyReport linear_cross_entropy(const LinearCrossEntropyOut& out,
                                              const LinearCrossEntropyIn& in,
                                              const LinearCrossEntropyConfig& config,
                                              const LinearCrossEntropyScratch& scratch, Stream& stream) {
  check_operands(out, in, config, scratch);
  if (stream.backing == Backing::kAddresses && config.precision == HeadPrecision::kFp8 &&
      in.x.device == Device::kCuda) {
    plan_fp8_on_device(out, in, config, scratch, stream);
    return {};
  }
  if constexpr (kHasCuda) {
    if (config.precision == HeadPrecision::kFp8 && in.x.device == Device::kCuda)
      return cuda::linear_cross_entropy_fp8(out, in, config, scratch, stream);
  }
  return HeadPass(out, in, config, scratch, stream).run();
}

}  // namespace ingot
