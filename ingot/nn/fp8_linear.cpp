#include "ingot/nn/fp8_linear.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/core/work.h"
#include "ingot/nn/layer.h"
#include "ingot/ops/cast_fp8.h"
#include "ingot/ops/fp8/cuda_fp8.h"
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

// How a product casts one of its operands.
struct Fp8Cast {
  int which;  // kX, kW or kDy
  DType format;
  Fp8Scaling scaling;
};

// Returns the casts of the two operands, in the order of the product.
std::array<Fp8Cast, 2> casts_of(Fp8Recipe recipe, Fp8Product product) {
  using enum Fp8Scaling;
  const Fp8Scaling by_row = is_rowwise(recipe) ? kRows : kTensor;
  const Fp8Scaling by_column = is_rowwise(recipe) ? kColumns : kTensor;
  const DType gradient = is_rowwise(recipe) ? kE4m3 : kE5m2;
  switch (product) {
    case Fp8Product::kForward:
      return {{{kX, kE4m3, by_row}, {kW, kE4m3, by_row}}};
    case Fp8Product::kInputGradient:
      return {{{kDy, gradient, by_row},
               {kW, kE4m3, recipe == Fp8Recipe::kRowwiseGwHp ? kTensorPower : by_column}}};
    case Fp8Product::kWeightGradient:
      break;
  }
  return {{{kDy, gradient, by_column}, {kX, kE4m3, by_column}}};
}

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

// Measures the scratch of a product of operands of the shapes a and b.
void plan_product(Arena& arena, const std::array<Fp8Cast, 2>& casts, const Shape& a, const Shape& b) {
  const ScratchScope scope(arena);
  for (const auto& [cast, shape] : {std::pair(casts[0], a), std::pair(casts[1], b)}) {
    if (arena.device() == Device::kCuda)
      Fp8Device::operand(arena, shape, cast.format, cast.scaling);
    else
      rounded_operand(arena, shape, cast.scaling);
  }
}

// Computes the products of one linear.
class Fp8Products {
 public:
  Fp8Products(const Fp8Linear& linear, Fp8State& state, Arena& scratch, Region& region, Stream& stream)
      : linear_(linear), state_(state), scratch_(scratch), region_(region), stream_(stream) {}

  // c = op(a) · op(b), or += for the gradient of the weight.
  void run(Fp8Product product, const Tensor& c, const Tensor& a, const Tensor& b) {
    const auto casts = casts_of(linear_.recipe, product);
    if (c.device == Device::kCuda && stream_.backing == Backing::kAddresses)
      return plan_on_device(product, c, a, b);
    if constexpr (kHasCuda) {
      if (c.device == Device::kCuda) return run_on_device(product, casts, c, a, b);
    }
    const RoundedOperand rounded_a = rounded_operand(scratch_, a.shape, casts[0].scaling);
    const RoundedOperand rounded_b = rounded_operand(scratch_, b.shape, casts[1].scaling);
    const float factor_a = round(rounded_a, a, casts[0]);
    const float factor_b = round(rounded_b, b, casts[1]);
    scaled_matmul(c, rounded_a.values, rounded_b.values, form_of(product), factor_a * factor_b,
                  product == Fp8Product::kWeightGradient, stream_);
  }

 private:
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

  // A device casts both operands and multiplies the codes.
  void plan_on_device(Fp8Product product, const Tensor& c, const Tensor& a, const Tensor& b) {
    const auto number = [](const Tensor& t) { return static_cast<double>(t.elements()); };
    for (const Tensor& t : {a, b}) {
      Work cast = traffic({t, t});  // once for the amax, once for the codes
      cast.bytes += 2 * number(t);  // the codes and the turned codes
      const WorkSpan span(stream_, "fp8 cast", cast);
    }
    const double M = static_cast<double>(c.dim(0)), N = static_cast<double>(c.dim(1));
    const double K = product == Fp8Product::kWeightGradient ? static_cast<double>(a.dim(0)) : number(a) / M;
    const double c_bytes = static_cast<double>(c.bytes()) * (product == Fp8Product::kWeightGradient ? 2 : 1);
    const WorkSpan span(stream_, "matmul",
                        {.flops = 2 * M * N * K, .bytes = number(a) + number(b) + c_bytes, .dtype = kE4m3});
  }
  // On a CUDA device the product needs the summed dim contiguous.
  void run_on_device(Fp8Product product, const std::array<Fp8Cast, 2>& casts, const Tensor& c,
                     const Tensor& a, const Tensor& b) {
    const Fp8Device::Operand cast_a = cast_on_device(a, casts[0]), cast_b = cast_on_device(b, casts[1]);
    if constexpr (kHasCuda)
      cuda::matmul_fp8(
          c, {product == Fp8Product::kWeightGradient ? cast_a.turned : cast_a.codes, cast_a.inverse},
          {product == Fp8Product::kForward ? cast_b.codes : cast_b.turned, cast_b.inverse},
          {.accumulate = product == Fp8Product::kWeightGradient, .is_fast = product == Fp8Product::kForward},
          stream_);
  }
  Fp8Device::Operand cast_on_device(const Tensor& t, const Fp8Cast& cast) {
    const int index = tensor(cast);
    state_.add(index, {.elements = t.elements()});
    const Fp8Device::Operand operand = Fp8Device::operand(scratch_, t.shape, cast.format, cast.scaling);
    return state_.device()->cast(operand, index, t, cast.scaling, delayed_scale(cast), stream_);
  }

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
  Fp8Products(*this, state, scratch, region, stream).run(Fp8Product::kForward, y, x, w);
}

void Fp8Linear::backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w, Fp8State& state,
                               Arena& scratch, Region& region, Stream& stream) const {
  Fp8Products(*this, state, scratch, region, stream).run(Fp8Product::kInputGradient, dx, dy, w);
}

void Fp8Linear::backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, Fp8State& state,
                                Arena& scratch, Region& region, Stream& stream) const {
  if (recipe == Fp8Recipe::kRowwiseGwHp) return matmul(dw, dy, x, MatmulForm::kTN, true, stream);
  Fp8Products(*this, state, scratch, region, stream).run(Fp8Product::kWeightGradient, dw, dy, x);
}

void Fp8Linear::plan_forward(Arena& arena, int64_t N, int64_t out, int64_t in) const {
  if (recipe == Fp8Recipe::kNone) return;
  plan_product(arena, casts_of(recipe, Fp8Product::kForward), {N, in}, {out, in});
}

void Fp8Linear::plan_backward(Arena& arena, int64_t N, int64_t out, int64_t in) const {
  if (recipe == Fp8Recipe::kNone) return;
  plan_product(arena, casts_of(recipe, Fp8Product::kInputGradient), {N, out}, {out, in});
  if (recipe == Fp8Recipe::kRowwiseGwHp) return;
  plan_product(arena, casts_of(recipe, Fp8Product::kWeightGradient), {N, out}, {N, in});
}

}  // namespace ingot
