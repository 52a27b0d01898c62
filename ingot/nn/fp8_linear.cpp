#include "ingot/nn/fp8_linear.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/core/work.h"
#include "ingot/nn/layer.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/cuda_fp8.h"
#include "ingot/ops/matmul.h"

namespace ingot {
namespace {

constexpr DType kE4m3 = DType::f8e4m3, kE5m2 = DType::f8e5m2;

// Index of a tensor of the linear, relative to its first.
enum : int { kX, kW, kDy };

bool is_rowwise(Fp8Recipe recipe) {
  return recipe == Fp8Recipe::kRowwise || recipe == Fp8Recipe::kRowwiseGwHp;
}

enum class Fp8Product { kForward, kInputGradient, kWeightGradient };

// Fp8Cast is the cast of one operand of a product.
struct Fp8Cast {
  int which;  // kX, kW or kDy
  DType format;
  Fp8Scaling scaling;
  Fp8Layouts layouts;             // those that products on a device need
  bool is_after_forward = false;  // forward has cast the same tensor
};

// Returns the casts of the two operands, in the order of the product.
std::array<Fp8Cast, 2> casts_of(Fp8Recipe recipe, Fp8Product product) {
  using enum Fp8Scaling;
  using enum Fp8Layouts;
  const Fp8Scaling by_row = is_rowwise(recipe) ? kRows : kTensor;
  const Fp8Scaling by_column = is_rowwise(recipe) ? kColumns : kTensor;
  const DType gradient = is_rowwise(recipe) ? kE4m3 : kE5m2;
  switch (product) {
    case Fp8Product::kForward:
      return {{{kX, kE4m3, by_row, kStraight}, {kW, kE4m3, by_row, kStraight}}};
    case Fp8Product::kInputGradient:
      return {{{kDy, gradient, by_row, kStraight},
               {kW, kE4m3, recipe == Fp8Recipe::kRowwiseGwHp ? kTensorPower : by_column, kTransposed, true}}};
    case Fp8Product::kWeightGradient:
      break;
  }
  return {{{kDy, gradient, by_column, kTransposed}, {kX, kE4m3, by_column, kTransposed, true}}};
}

// Returns the same cast into both layouts. REQUIRES: one scale for all of the tensor.
Fp8Cast both_ways(Fp8Cast cast) {
  cast.layouts = Fp8Layouts::kBoth;
  return cast;
}

// Returns the cast of dy for both products of backward. REQUIRES: as both_ways.
Fp8Cast cast_of_dy(Fp8Recipe recipe) { return both_ways(casts_of(recipe, Fp8Product::kInputGradient)[0]); }

MatmulForm form_of(Fp8Product product) {
  if (product == Fp8Product::kForward) return MatmulForm::kNT;
  return product == Fp8Product::kInputGradient ? MatmulForm::kNN : MatmulForm::kTN;
}

// The scratch of an operand on the CPU; Fp8Device::operand makes that of a device.
struct RoundedOperand {
  Tensor values;  // bf16, the operand's shape
  Tensor amaxes;  // (columns) f32, for one scale per column
};

RoundedOperand rounded_operand(Arena& arena, const Shape& shape, Fp8Scaling scaling) {
  RoundedOperand operand;
  operand.values = arena.alloc(DType::bf16, shape);
  if (scaling == Fp8Scaling::kColumns) operand.amaxes = arena.alloc(DType::f32, {shape[1]});
  return operand;
}

// Measures the scratch of a cast.
void plan_cast(Arena& arena, const Fp8Cast& cast, const Shape& shape) {
  if (arena.device() == Device::kCuda)
    Fp8Device::operand(arena, shape, cast.format, cast.scaling, cast.layouts);
  else
    rounded_operand(arena, shape, cast.scaling);
}

// Returns scratch for rows of a weight's gradient: with it a device can add a product to the gradient
// whatever kernels cuBLASLt has. Few enough rows that most models have larger scratch elsewhere, and enough
// to occupy a device.
Tensor gradient_sums(Arena& arena, int64_t out, int64_t in) {
  constexpr int64_t kNumbers = 4 << 20;
  if (arena.device() != Device::kCuda) return {};
  return arena.alloc(DType::f32, {std::min(out, std::max<int64_t>(1, kNumbers / in)), in});
}

// A tensor that was cast, and what a product needs of it.
struct CastTensor {
  RoundedOperand rounded = {};    // on the CPU
  float factor = 1;               // on the CPU: undoes the scale
  Fp8Device::Operand codes = {};  // on a device
  double elements = 0;
};

// Computes the casts and products of one linear.
class Fp8Products {
 public:
  Fp8Products(const Fp8Linear& linear, const Fp8Context& ctx)
      : linear_(linear), state_(ctx.state), scratch_(ctx.scratch), region_(ctx.region), stream_(ctx.stream) {}

  // The operand stays in the scratch arena, except for what `into` has of it (on a device).
  CastTensor cast(const Tensor& t, const Fp8Cast& how, const Fp8Device::Operand& into = {}) {
    CastTensor result{.elements = static_cast<double>(t.elements())};
    if (t.device == Device::kCuda && stream_.backing == Backing::kAddresses) {
      plan_cast_on_device(t, how);
    } else if (t.device == Device::kCuda) {
      if constexpr (kHasCuda) result.codes = cast_on_device(t, how, into);
    } else {
      result.rounded = rounded_operand(scratch_, t.shape, how.scaling);
      result.factor = round(result.rounded, t, how);
    }
    return result;
  }

  // c = op(a) · op(b) + terms (on a device), or += if it is added. sums: Fp8ProductMode.
  void multiply(Fp8Product product, const Tensor& c, const CastTensor& a, const CastTensor& b,
                const LinearTerms& terms = {}, bool is_added = false, const Tensor& sums = {}) {
    if (c.device == Device::kCuda && stream_.backing == Backing::kAddresses)
      return plan_product_on_device(c, a, b, is_added);
    if constexpr (kHasCuda) {
      if (c.device == Device::kCuda)
        return cuda::matmul_fp8(
            c, {product == Fp8Product::kWeightGradient ? a.codes.transposed : a.codes.codes, a.codes.inverse},
            {product == Fp8Product::kForward ? b.codes.codes : b.codes.transposed, b.codes.inverse},
            {.accumulate = is_added,
             .is_fast = product == Fp8Product::kForward,
             .terms = terms,
             .sums = sums},
            stream_);
    }
    INGOT_CHECK(!terms.base && !terms.bias, "Fp8Linear: a product on the CPU adds nothing");
    scaled_matmul(c, a.rounded.values, b.rounded.values, form_of(product), a.factor * b.factor, is_added,
                  stream_);
  }

  // Returns x for forward. With codes its transposed codes go there, for backward.
  CastTensor cast_x(const Tensor& x, const Tensor& codes) {
    const Fp8Cast how = casts_of(linear_.recipe, Fp8Product::kForward)[0];
    return codes ? cast(x, both_ways(how), left_in(codes)) : cast(x, how);
  }
  // Returns the x of backward; its codes, if forward left them.
  CastTensor cast_x_again(const Tensor& x, const Tensor& codes) {
    if (!codes) return cast(x, casts_of(linear_.recipe, Fp8Product::kWeightGradient)[1]);
    CastTensor result{.elements = static_cast<double>(x.elements())};
    if (stream_.backing == Backing::kMemory) {
      result.codes = left_in(codes);
      if (!result.codes.inverse)
        result.codes.inverse = state_.device()->place(linear_.first_tensor + kX).inverse;
    }
    return result;
  }
  // Returns w for a product, which the state may hold already.
  CastTensor cast_w(const Tensor& w, Fp8Product product) {
    if (!holds_w()) return cast(w, casts_of(linear_.recipe, product)[1]);
    return {.codes = *state_.held(linear_.first_tensor + kW), .elements = static_cast<double>(w.elements())};
  }
  void hold_w(const Tensor& w) {
    if (holds_w())
      cast(w, both_ways(casts_of(linear_.recipe, Fp8Product::kForward)[1]),
           *state_.held(linear_.first_tensor + kW));
  }

 private:
  // Returns the memory of `codes` as a cast fills it: the transposed codes and, in the last row, the inverse
  // of their scale, which differs between the micro-batches that a pipeline has in flight. Scales that follow
  // a history hold for a whole step.
  Fp8Device::Operand left_in(const Tensor& codes) const {
    const int64_t in = codes.dim(0) - 1;
    Fp8Device::Operand operand{.transposed = codes.rows(0, in)};
    if (!state_.follows_history())
      operand.inverse = Tensor(codes.rows(in, in + 1).data, DType::f32, {1}, codes.device);
    return operand;
  }
  // Rounds an operand; returns the factor by which the product is multiplied to undo the scale.
  float round(const RoundedOperand& to, const Tensor& t, const Fp8Cast& cast) {
    Fp8Stats& stats = state_[tensor(cast)];
    if (cast.scaling == Fp8Scaling::kRows || cast.scaling == Fp8Scaling::kColumns) {
      if (cast.scaling == Fp8Scaling::kRows)
        round_rows_to_fp8(to.values, t, cast.format, stats, stream_);
      else
        round_columns_to_fp8(to.values, t, cast.format, to.amaxes, stats, stream_);
      return 1;
    }
    const auto floor =
        cast.scaling == Fp8Scaling::kTensorPower ? Fp8ScaleFloor::kPowerOfTwo : Fp8ScaleFloor::kExact;
    const float delayed = delayed_scale(cast);
    const float scale = delayed > 0 ? delayed : fp8_scale(cast.format, amax(t, cast.which), floor);
    round_to_fp8(to.values, t, cast.format, scale, stats, stream_);
    return 1 / scale;
  }
  // The amax of the whole tensor, over all ranks that hold a shard of it.
  float amax(const Tensor& t, int which) {
    float largest = absolute_max(t, stream_);
    if (is_split(which)) region_.max("fp8 amax", Tensor(&largest, DType::f32, {1}), stream_);
    return largest;
  }
  bool is_split(int which) const {
    return which == kX ? linear_.splits_x : which == kDy ? linear_.splits_dy : linear_.splits_w();
  }

  // The scale of a cast on a device.
  Fp8Scale scale_of(const Fp8Cast& cast) {
    using enum Fp8Scale::Source;
    if (cast.scaling != Fp8Scaling::kTensor) return {};
    if (cast.is_after_forward) return {.source = kLast};
    if (state_.follows_history()) return {.source = kLast};
    const float delayed = delayed_scale(cast);
    if (delayed > 0) return {.source = kValue, .value = delayed};
    return {.source = kAmax};
  }
  // Plans a step that finds a history of amaxes, if the recipe keeps one.
  void plan_cast_on_device(const Tensor& t, const Fp8Cast& cast) {
    const bool has_own_amax = cast.scaling != Fp8Scaling::kRows && linear_.recipe != Fp8Recipe::kDelayed &&
                              scale_of(cast).source == Fp8Scale::Source::kAmax && !t.amax;
    Work work = has_own_amax ? traffic({t, t}) : traffic({t});
    work.bytes += static_cast<double>(t.elements()) * (cast.layouts == Fp8Layouts::kBoth ? 2 : 1);
    const WorkSpan span(stream_, "fp8 cast", work);
    if (has_own_amax && cast.scaling == Fp8Scaling::kTensor && is_split(cast.which))
      region_.max("fp8 amax", Tensor(t.data, DType::f32, {1}, t.device), stream_);
  }
  void plan_product_on_device(const Tensor& c, const CastTensor& a, const CastTensor& b, bool is_added) {
    const double N = static_cast<double>(c.dim(1));  // a has M x K elements
    const double c_bytes = static_cast<double>(c.bytes()) * (is_added ? 2 : 1);
    const WorkSpan span(
        stream_, "matmul",
        {.flops = 2 * N * a.elements, .bytes = a.elements + b.elements + c_bytes, .dtype = kE4m3});
  }
  Fp8Device::Operand cast_on_device(const Tensor& t, const Fp8Cast& cast, const Fp8Device::Operand& into) {
    const int index = tensor(cast);
    state_.add(index, {.elements = t.elements()});
    Fp8Device::Operand operand = into;
    if (!into.codes)
      operand = Fp8Device::operand(scratch_, t.shape, cast.format, cast.scaling,
                                   into.transposed ? Fp8Layouts::kStraight : cast.layouts);
    if (into.transposed) operand.transposed = into.transposed;
    if (into.inverse) operand.inverse = into.inverse;
    Fp8Scale scale = scale_of(cast);
    if (is_split(cast.which))
      scale.merge = [&](const Tensor& amax) { region_.max("fp8 amax", amax, stream_); };
    return state_.device()->cast(operand, index, t, cast.scaling, scale, stream_);
  }

  bool holds_w() const { return linear_.has_one_scale() && state_.held(linear_.first_tensor + kW); }
  int tensor(const Fp8Cast& cast) const { return linear_.first_tensor + cast.which; }
  // 0 unless the recipe is kDelayed and a step has been recorded.
  float delayed_scale(const Fp8Cast& cast) const {
    return linear_.recipe == Fp8Recipe::kDelayed ? state_.delayed_scale(tensor(cast), cast.format) : 0;
  }

  const Fp8Linear& linear_;
  Fp8State& state_;
  Arena& scratch_;
  Region& region_;
  Stream& stream_;
};

}  // namespace

void Fp8LinearConfig::validate() const {
  if (amax_history < 1 || amax_history > 4096)
    fail(ErrorKind::kUsage, "precision.fp8_amax_history must lie in 1 .. 4096, got {}", amax_history);
  if (margin < 0 || margin > 8)
    fail(ErrorKind::kUsage, "precision.fp8_margin must lie in 0 .. 8, got {}", margin);
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

void Fp8Linear::forward(const Tensor& y, const Tensor& x, const Tensor& codes, const Tensor& w,
                        const LinearTerms& terms, const Fp8Context& ctx) const {
  const ScratchScope scope(ctx.scratch);
  Fp8Products products(*this, ctx);
  const CastTensor cast_x = products.cast_x(x, codes), cast_w = products.cast_w(w, Fp8Product::kForward);
  products.multiply(Fp8Product::kForward, y, cast_x, cast_w, terms);
}

void Fp8Linear::backward(const Tensor& dx, const WeightGradient& dw, const Tensor& dy, const Tensor& x,
                         const Tensor& codes, const Tensor& w, const Fp8Context& ctx) const {
  using enum Fp8Product;
  const ScratchScope scope(ctx.scratch);
  Fp8Products products(*this, ctx);
  CastTensor cast_dy;
  if (has_one_scale()) cast_dy = products.cast(dy, cast_of_dy(recipe));
  const auto dy_for = [&](Fp8Product product) {
    return has_one_scale() ? cast_dy : products.cast(dy, casts_of(recipe, product)[0]);
  };
  if (dw.dw && recipe == Fp8Recipe::kRowwiseGwHp) {
    matmul(dw.dw, dy, x, MatmulForm::kTN, dw.adds, ctx.stream);
  } else if (dw.dw) {
    const ScratchScope inner(ctx.scratch);
    const CastTensor a = dy_for(kWeightGradient);
    const CastTensor b = products.cast_x_again(x, codes);
    const Tensor sums = gradient_sums(ctx.scratch, dw.dw.dim(0), dw.dw.dim(1));
    products.multiply(kWeightGradient, dw.dw, a, b, {}, dw.adds, sums);
  }
  const ScratchScope inner(ctx.scratch);
  const CastTensor a = dy_for(kInputGradient);
  products.multiply(kInputGradient, dx, a, products.cast_w(w, kInputGradient));
}

void Fp8Linear::cast_weight(const Tensor& w, const Fp8Context& ctx) const {
  if (recipe != Fp8Recipe::kNone) Fp8Products(*this, ctx).hold_w(w);
}

void Fp8Linear::plan_forward(Arena& arena, int64_t N, int64_t out, int64_t in) const {
  if (recipe == Fp8Recipe::kNone) return;
  const ScratchScope scope(arena);
  const auto casts = casts_of(recipe, Fp8Product::kForward);
  plan_cast(arena, casts[0], {N, in});
  plan_cast(arena, casts[1], {out, in});
}

void Fp8Linear::plan_backward(Arena& arena, int64_t N, int64_t out, int64_t in, bool has_dw) const {
  if (recipe == Fp8Recipe::kNone) return;
  const ScratchScope scope(arena);
  const bool is_once = has_one_scale();
  if (is_once) plan_cast(arena, cast_of_dy(recipe), {N, out});
  for (const Fp8Product product : {Fp8Product::kWeightGradient, Fp8Product::kInputGradient}) {
    if (product == Fp8Product::kWeightGradient && (recipe == Fp8Recipe::kRowwiseGwHp || !has_dw)) continue;
    const ScratchScope inner(arena);
    const auto casts = casts_of(recipe, product);
    if (!is_once) plan_cast(arena, casts[0], {N, out});
    const bool is_weight = product == Fp8Product::kWeightGradient;
    plan_cast(arena, casts[1], is_weight ? Shape{N, in} : Shape{out, in});
    if (is_weight) gradient_sums(arena, out, in);
  }
}

}  // namespace ingot
