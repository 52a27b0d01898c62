#include "ingot/nn/fp8_linear.h"

#include <algorithm>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/fp8/cuda_fp8.h"
#include "ingot/ops/matmul.h"

namespace ingot {
namespace {

constexpr DType kE4m3 = DType::f8e4m3, kE5m2 = DType::f8e5m2;

// Index of a tensor of the linear, relative to its first.
enum : int { kX, kW, kDy };

// Rounds the operands of a product into scratch, on the CPU.
class Rounding {
 public:
  Rounding(const Fp8Linear& linear, Fp8State& state, Arena& scratch, Region& region, Stream& stream)
      : linear_(linear), state_(state), scratch_(scratch), region_(region), stream_(stream) {}

  struct Operand {
    Tensor values;     // bf16
    float factor = 1;  // the product is multiplied by it to undo the scale
  };

  // Rounds with one scale for the whole tensor.
  Operand whole(const Tensor& t, int which, DType format, Fp8ScaleFloor floor) {
    const Tensor values = scratch_.alloc(DType::bf16, t.shape);
    const float delayed =
        linear_.recipe == Fp8Recipe::kDelayed ? state_.delayed_scale(tensor(which), format) : 0;
    const float scale = delayed > 0 ? delayed : fp8_scale(format, amax(t, which), floor);
    round_to_fp8(values, t, format, scale, state_[tensor(which)], stream_);
    return {values, 1 / scale};
  }
  Operand whole(const Tensor& t, int which, DType format) {
    return whole(t, which, format, Fp8ScaleFloor::kExact);
  }
  // Round with one scale per row, or per column; the product sums along these lines.
  Tensor rows(const Tensor& t, int which) {
    const Tensor values = scratch_.alloc(DType::bf16, t.shape);
    round_rows_to_fp8(values, t, kE4m3, state_[tensor(which)], stream_);
    return values;
  }
  Tensor columns(const Tensor& t, int which) {
    const Tensor values = scratch_.alloc(DType::bf16, t.shape);
    round_columns_to_fp8(values, t, kE4m3, scratch_.alloc(DType::f32, {t.dim(1)}), state_[tensor(which)],
                         stream_);
    return values;
  }

 private:
  int tensor(int which) const { return linear_.first_tensor + which; }
  // The amax of the whole tensor, over all ranks that hold a shard of it.
  float amax(const Tensor& t, int which) {
    float largest = absolute_max(t, stream_);
    if (is_split(which)) region_.max("fp8 amax", Tensor(&largest, DType::f32, {1}), stream_);
    return largest;
  }
  bool is_split(int which) const {
    return which == kX ? linear_.splits_x : which == kDy ? linear_.splits_dy : linear_.splits_w();
  }

  const Fp8Linear& linear_;
  Fp8State& state_;
  Arena& scratch_;
  Region& region_;
  Stream& stream_;
};

// Casts the operands of a product on a CUDA device, where the product needs the summed dim contiguous.
class DeviceCast {
 public:
  DeviceCast(const Fp8Linear& linear, Fp8State& state, Arena& scratch, Stream& stream)
      : linear_(linear), state_(state), scratch_(scratch), stream_(stream) {}

  Fp8Device::Operand operator()(const Tensor& t, int which, DType format) {
    const int index = count(t, which);
    const bool is_delayed = linear_.recipe == Fp8Recipe::kDelayed;
    return state_.device()->cast(index, t, format, is_delayed ? state_.delayed_scale(index, format) : 0,
                                 scratch_, stream_);
  }
  Fp8Device::Operand rows(const Tensor& t, int which) {
    return state_.device()->rows(count(t, which), t, scratch_, stream_);
  }
  Fp8Device::Operand columns(const Tensor& t, int which, bool is_one_scale = false) {
    return state_.device()->columns(count(t, which), t, is_one_scale, scratch_, stream_);
  }

 private:
  // Returns the tensor's index and counts its elements as cast.
  int count(const Tensor& t, int which) {
    const int index = linear_.first_tensor + which;
    state_.add(index, {.elements = t.elements()});
    return index;
  }

  const Fp8Linear& linear_;
  Fp8State& state_;
  Arena& scratch_;
  Stream& stream_;
};

bool is_rowwise(Fp8Recipe recipe) {
  return recipe == Fp8Recipe::kRowwise || recipe == Fp8Recipe::kRowwiseGwHp;
}

}  // namespace

void Fp8LinearConfig::validate() const {
  if (amax_history < 1 || amax_history > 4096)
    fail(ErrorKind::kUsage, "precision.fp8_amax_history must lie in 1 .. 4096, got {}", amax_history);
  if (margin < 0 || margin > 8)
    fail(ErrorKind::kUsage, "precision.fp8_margin must lie in 0 .. 8, got {}", margin);
}

void Fp8LinearConfig::validate_tp(int ranks) const {
  if (ranks > 1 && is_rowwise(recipe))
    fail(ErrorKind::kUsage,
         "precision.fp8 must be \"tensorwise\" or \"delayed\" where parallel.tp = {} ranks share a row: a "
         "rowwise scale is known on one rank only",
         ranks);
}

bool Fp8LinearConfig::converts(const std::string& name, int64_t out, int64_t in) const {
  if (recipe == Fp8Recipe::kNone || out % 16 != 0 || in % 16 != 0) return false;
  return layers.empty() || std::any_of(layers.begin(), layers.end(), [&](const std::string& pattern) {
           return matches_pattern(name, pattern);
         });
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  for (size_t skipped = star; skipped <= text.size(); ++skipped)
    if (matches_pattern(text.substr(skipped), pattern.substr(star + 1))) return true;
  return false;
}

void Fp8Linear::forward(const Tensor& y, const Tensor& x, const Tensor& w, Fp8State& state, Arena& scratch,
                        Region& region, Stream& stream) const {
  if constexpr (kHasCuda) {
    if (y.device == Device::kCuda) {
      DeviceCast cast(*this, state, scratch, stream);
      const bool by_row = is_rowwise(recipe);
      const auto a = by_row ? cast.rows(x, kX) : cast(x, kX, kE4m3);
      const auto b = by_row ? cast.rows(w, kW) : cast(w, kW, kE4m3);
      return cuda::matmul_fp8(y, {a.codes, a.inverse}, {b.codes, b.inverse}, {.is_fast = true}, stream);
    }
  }
  Rounding round(*this, state, scratch, region, stream);
  if (is_rowwise(recipe))
    return matmul(y, round.rows(x, kX), round.rows(w, kW), MatmulForm::kNT, false, stream);
  const auto a = round.whole(x, kX, kE4m3), b = round.whole(w, kW, kE4m3);
  scaled_matmul(y, a.values, b.values, MatmulForm::kNT, a.factor * b.factor, false, stream);
}

void Fp8Linear::backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w, Fp8State& state,
                               Arena& scratch, Region& region, Stream& stream) const {
  if constexpr (kHasCuda) {
    if (dx.device == Device::kCuda) {
      DeviceCast cast(*this, state, scratch, stream);
      const bool by_row = is_rowwise(recipe);
      const auto a = by_row ? cast.rows(dy, kDy) : cast(dy, kDy, kE5m2);
      const auto b = by_row ? cast.columns(w, kW, recipe == Fp8Recipe::kRowwiseGwHp) : cast(w, kW, kE4m3);
      return cuda::matmul_fp8(dx, {a.codes, a.inverse}, {b.turned, b.inverse}, {}, stream);
    }
  }
  Rounding round(*this, state, scratch, region, stream);
  if (recipe == Fp8Recipe::kRowwise)
    return matmul(dx, round.rows(dy, kDy), round.columns(w, kW), MatmulForm::kNN, false, stream);
  if (recipe == Fp8Recipe::kRowwiseGwHp) {
    const Tensor a = round.rows(dy, kDy);
    const auto b = round.whole(w, kW, kE4m3, Fp8ScaleFloor::kPowerOfTwo);
    return scaled_matmul(dx, a, b.values, MatmulForm::kNN, b.factor, false, stream);
  }
  const auto a = round.whole(dy, kDy, kE5m2), b = round.whole(w, kW, kE4m3);
  scaled_matmul(dx, a.values, b.values, MatmulForm::kNN, a.factor * b.factor, false, stream);
}

void Fp8Linear::backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, Fp8State& state,
                                Arena& scratch, Region& region, Stream& stream) const {
  if (recipe == Fp8Recipe::kRowwiseGwHp) return matmul(dw, dy, x, MatmulForm::kTN, true, stream);
  if constexpr (kHasCuda) {
    if (dw.device == Device::kCuda) {
      DeviceCast cast(*this, state, scratch, stream);
      const bool by_row = recipe == Fp8Recipe::kRowwise;
      const auto a = by_row ? cast.columns(dy, kDy) : cast(dy, kDy, kE5m2);
      const auto b = by_row ? cast.columns(x, kX) : cast(x, kX, kE4m3);
      return cuda::matmul_fp8(dw, {a.turned, a.inverse}, {b.turned, b.inverse}, {.accumulate = true}, stream);
    }
  }
  Rounding round(*this, state, scratch, region, stream);
  if (recipe == Fp8Recipe::kRowwise)
    return matmul(dw, round.columns(dy, kDy), round.columns(x, kX), MatmulForm::kTN, true, stream);
  const auto a = round.whole(dy, kDy, kE5m2), b = round.whole(x, kX, kE4m3);
  scaled_matmul(dw, a.values, b.values, MatmulForm::kTN, a.factor * b.factor, true, stream);
}

void Fp8Linear::plan(Arena& arena, int64_t N, int64_t out, int64_t in) {
  const int64_t x = N * in, w = out * in, dy = N * out;
  if (arena.device() == Device::kCuda)
    return Fp8Device::plan(arena, x + w + dy - std::min({x, w, dy}), N + out + in);
  const Arena::Mark mark = arena.mark();
  arena.alloc(DType::bf16, {x + w + dy - std::min({x, w, dy})});
  arena.alloc(DType::f32, {out + in + 64});  // amaxes of columns, and alignment between tensors
  arena.alloc(DType::f32, {64});
  arena.release_to(mark);
}

}  // namespace ingot
