// Maps the weights of a model to Hugging Face's tensor names and layouts.
//
// GPT-2 (learned positions) has the names transformer.h.N... and stores matrices as (in, out). Biases that
// the model lacks are written as zeros, because GPT2LMHeadModel has them. All other models have LLaMA's
// names, model.layers.N..., with the fused q, k, v and gate, up as separate tensors. Padding rows of the
// vocabulary are left out, and so is a tied head. Models whose QK-norm has no gains are written as Qwen3's,
// with gains of 1.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/rect.h"
#include "ingot/formats/safetensors.h"
#include "ingot/formats/safetensors_ranges.h"
#include "ingot/formats/safetensors_set.h"
#include "ingot/nn/transformer.h"

namespace ingot {

struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;          // as in the file
  int param = -1;                      // parameter id; -1: numbers that only Hugging Face's model has
  float fill = 0;                      // their value
  int64_t row_begin = 0, row_end = 0;  // rows of the parameter (dim 0)
  bool is_transposed = false;          // stored as (in, out)
};

// The names of the tensors. kByModel: GPT-2's names for models like it, LLaMA's for all others. kLlama:
// always LLaMA's.
enum class HfNames { kByModel, kLlama };

// Returns the tensors in the order of the parameters.
std::vector<HfTensor> hf_tensors(const Transformer& model, HfNames names = HfNames::kByModel);

// Returns the tensors that a checkpoint of the model holds: hf_tensors or, for a model with adapters, the
// adapters alone under PEFT's names. PEFT has an adapter for each of Hugging Face's linears. The first matrix
// of an adapter of a fused linear is therefore listed once for each linear that was fused.
std::vector<HfTensor> saved_tensors(const Transformer& model);

// The file of a checkpoint that holds saved_tensors: kAdapterName for a model with adapters.
inline constexpr const char* kAdapterName = "adapter_model.safetensors";
const char* weights_name(const Transformer& model);

// Returns a hash of the names of hf_tensors(model) and of a few numbers of each, which distinguishes trained
// models.
uint64_t weights_fingerprint(const SafetensorsSet& files, const Transformer& model);

// Returns the tensors as sources for a safetensors file. value(id) returns a parameter's f32 values in its
// shape. The writer calls it when it writes the tensor; the values must stay valid until the next call.
// `value` may be empty if the sources are not written.
std::vector<SafetensorsSource> hf_sources(const std::vector<HfTensor>& tensors,
                                          const std::function<Tensor(int)>& value);

// Throws a kData error that names the file and the tensor for the first tensor that read_hf_tensors could not
// read because it is missing or has another shape or dtype. Reads no numbers.
void check_hf_tensors(const SafetensorsSet& files, const Transformer& model);

// Reads every tensor into `values` (f32, one per parameter id; empty ones are skipped). Padding rows become
// zero. f32, bf16 and f16 files are accepted. Throws a kData error that names the file and the tensor if one
// is missing or has another shape or dtype.
void read_hf_tensors(const SafetensorsSet& files, const std::vector<HfTensor>& tensors,
                     const std::vector<Tensor>& values);

// Reads every weight, in parallel, into a store of whole weights, in the form that layers read: vectors in
// f32, matrices rounded to the store's compute dtype (ParamStore::weight) or to 8-bit codes (int8_weight).
// Throws the errors of read_hf_rect.
void read_hf_weights(const SafetensorsSet& files, const Transformer& model, ParamStore& store);

// Writes a whole weight (f32) to a store in the form that layers read: rounded to the compute dtype, or to
// 8-bit codes.
void store_weight(ParamStore& store, int id, const Tensor& values);

// write_hf_rect and read_hf_rect copy the rows of `rect` that belong to tensor t to a file and from files.
// rect: a rectangle of t's parameter. values: the rectangle, row by row. tensor: index of t in hf_tensors.
// read_hf_rect throws the errors of read_hf_tensors, and a kNumerics error that names the element if a number
// is not finite.
void write_hf_rect(SafetensorsRanges& file, size_t tensor, const HfTensor& t, const Rect& rect,
                   const float* values);
void read_hf_rect(float* values, const SafetensorsSet& files, const HfTensor& t, const Rect& rect);

}  // namespace ingot
