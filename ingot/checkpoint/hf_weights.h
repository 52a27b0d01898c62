// The weights of a model under Hugging Face's names and layouts: which of our numbers each of its tensors is.
//
// GPT-2 (learned positions): transformer.h.N..., matrices stored (in, out); biases that the model lacks are
// written as zeros, as GPT2LMHeadModel has them. Otherwise LLaMA's names: model.layers.N..., with fused q, k,
// v and gate, up taken apart. Padding rows of the vocabulary are cut, a tied head is left out.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ingot/core/box.h"
#include "ingot/formats/safetensors.h"
#include "ingot/formats/safetensors_ranges.h"
#include "ingot/nn/transformer.h"

namespace ingot {

struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;          // as stored
  int param = -1;                      // id; -1: a tensor of zeros that only Hugging Face has
  int64_t row_begin = 0, row_end = 0;  // of the parameter's dim 0
  bool is_transposed = false;          // stored (in, out)
};

// In order of the parameters.
std::vector<HfTensor> hf_tensors(const Transformer& model);

// Tensors to write. value(id): the f32 values of a parameter in its shape, asked for when they are written
// and used until the next are; it may be empty where they are not written.
std::vector<SafetensorsSource> hf_sources(const Transformer& model, const std::function<Tensor(int)>& value,
                                          const std::string& prefix = "");

// kData error naming file and tensor for the first that read_hf_tensors could not read: missing, of another
// shape or dtype. No number is looked at.
void check_hf_tensors(const SafetensorsFile& file, const Transformer& model, const std::string& prefix = "");

// Reads every tensor into the values (f32, one per parameter id; absent ones are passed over); padding rows
// become zero. f32, bf16 and f16
// files are accepted. kData error naming file and tensor for a missing one or a wrong shape.
void read_hf_tensors(const SafetensorsFile& file, const Transformer& model, const std::vector<Tensor>& values,
                     const std::string& prefix = "");

// What of a box of tensor t's parameter lies in it, to and from a file; values: the box, row by row. tensor:
// t's place in hf_tensors.
void write_hf_box(SafetensorsRanges& file, size_t tensor, const HfTensor& t, const Box& box,
                  const float* values);
void read_hf_box(float* values, const SafetensorsFile& file, const HfTensor& t, const Box& box,
                 const std::string& prefix = "");

}  // namespace ingot
