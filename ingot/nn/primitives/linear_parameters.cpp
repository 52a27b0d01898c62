// Declares the parameters of linear layers.
#include <cmath>
#include <utility>

#include "ingot/nn/primitives/linear.h"

namespace ingot {
namespace {

// Returns this rank's slice of the outputs. Matrices with rows that neighbouring ranks share come last.
TensorSlice slice_of_outputs(const LinearSpec& spec, const TensorParallel& tp) {
  TensorSlice slice{.full = {spec.out, spec.in}};
  int64_t begin = 0;
  for (const int64_t part : spec.fused_rows.empty() ? std::vector<int64_t>{spec.out} : spec.fused_rows) {
    const int64_t count = tp.slice(part, spec.least_rows);
    slice.rows.push_back({.first = begin + tp.first(part, spec.least_rows), .count = count});
    begin += part;
    const int holders = tp.holders(part, spec.least_rows);
    INGOT_CHECK(holders > 1 || slice.common_rows == 0,
                "declare_linear: the rows of {} that ranks share are not its last", spec.prefix);
    if (holders == 1) continue;
    slice.common_rows += count;
    slice.has_copies = tp.rank % holders != 0;
  }
  INGOT_CHECK(begin == spec.out, "declare_linear: {} has {} rows, its parts {}", spec.prefix, spec.out,
              begin);
  return slice;
}

int64_t outputs_of(const TensorSlice& slice) {
  int64_t total = 0;
  for (const TensorSlice::Rows& rows : slice.rows) total += rows.count;
  return total;
}

}  // namespace

LinearLayer declare_linear(ParamList& params, const LinearSpec& spec, const TensorParallel& tp) {
  const bool splits_outputs = spec.split == Split::kOutputs;
  LinearLayer layer{.out = splits_outputs ? outputs_of(slice_of_outputs(spec, tp)) : spec.out,
                    .in = splits_outputs ? spec.in : tp.slice(spec.in),
                    .split = spec.split,
                    .is_bias_activated = spec.is_bias_activated};
  ParamSpec weight{.name = spec.prefix + ".weight",
                   .shape = {layer.out, layer.in},
                   .role = ParamRole::kMatrix,
                   .init = spec.init,
                   .init_std = spec.std,
                   .is_overwritten = true,
                   .fused_rows = spec.fused_rows,
                   .unit = spec.unit};
  ParamSpec bias{.name = spec.prefix + ".bias",
                 .shape = {layer.out},
                 .role = ParamRole::kBias,
                 .init = Init::kZero,
                 .unit = spec.unit};
  if (tp.count > 1 && splits_outputs) {
    weight.slice = bias.slice = slice_of_outputs(spec, tp);
    bias.slice.full = {spec.out};
  } else if (tp.count > 1) {
    weight.slice = {.full = {spec.out, spec.in},
                    .rows = {{.first = 0, .count = spec.out}},
                    .first_column = tp.first(spec.in)};
  }
  layer.weight = params.add(std::move(weight));
  if (spec.has_bias) layer.bias = params.add(std::move(bias));
  return layer;
}

void use_fp8(LinearLayer& layer, const ParamList& params, const Fp8LinearConfig& config,
             const TensorParallel& tp, std::vector<std::string>& tensors) {
  const std::string& weight = params[layer.weight].name;
  const std::string name = weight.substr(0, weight.rfind('.'));
  const Shape& full = params[layer.weight].full_shape();
  if (!config.converts(name, full[0], full[1])) return;
  layer.fp8 = {.recipe = config.recipe,
               .first_tensor = static_cast<int>(tensors.size()),
               .splits_x = tp.count > 1 && layer.split == Split::kInputs,
               .splits_dy = tp.count > 1 && layer.split == Split::kOutputs};
  for (const char* tensor : {".x", ".w", ".dy"}) tensors.push_back(name + tensor);
}

void declare_adapter(LinearLayer& layer, ParamList& params, const LinearSpec& spec, const LoraConfig& lora,
                     const TensorParallel& tp) {
  const ParamSpec weight = params[layer.weight];
  const bool is_split = tp.count > 1, splits_outputs = spec.split == Split::kOutputs;
  ParamSpec a{.name = spec.prefix + ".lora_a",
              .shape = {lora.rank, layer.in},
              .role = ParamRole::kMatrix,
              .init = Init::kNormal,
              .init_std = 1 / std::sqrt(3 * static_cast<double>(spec.in)),
              .is_overwritten = !is_split || !splits_outputs,
              .unit = spec.unit};
  ParamSpec b{.name = spec.prefix + ".lora_b",
              .shape = {layer.out, lora.rank},
              .role = ParamRole::kMatrix,
              .init = Init::kZero,
              .is_overwritten = !is_split || splits_outputs,
              .unit = spec.unit};
  if (is_split) {
    TensorSlice& slice = splits_outputs ? b.slice : a.slice;
    slice = weight.slice;
    slice.full = splits_outputs ? Shape{spec.out, lora.rank} : Shape{lora.rank, spec.in};
    if (!splits_outputs) slice.rows = {{.first = 0, .count = lora.rank}};
  }
  const float scale = static_cast<float>(lora.alpha / static_cast<double>(lora.rank));
  layer.adapter = {{.weight = params.add(std::move(a)),
                    .out = lora.rank,
                    .in = layer.in,
                    .split = Split::kInputs,
                    .scale = scale,
                    .is_whole = is_split && splits_outputs},
                   {.weight = params.add(std::move(b)),
                    .out = layer.out,
                    .in = lora.rank,
                    .split = Split::kOutputs,
                    .is_whole = is_split && !splits_outputs}};
}

}  // namespace ingot
