#include "ingot/checkpoint/hf_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "ingot/checkpoint/hf_model.h"
#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/finite.h"
#include "ingot/core/float16.h"
#include "ingot/core/parallel.h"
#include "ingot/formats/xxh3.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/int8_matrix.h"

namespace ingot {
namespace {

// Collects tensors by Ingot's parameter names. If the model lacks a parameter, add_if skips the tensor,
// add_or_zeros makes it zeros and add_or_ones ones.
class TensorLayout {
 public:
  explicit TensorLayout(const Transformer& model) : model_(model) {
    const auto& specs = model.params().specs();
    for (size_t p = 0; p < specs.size(); ++p) ids_[specs[p].name] = static_cast<int>(p);
  }

  bool has(const std::string& ours) const { return ids_.contains(ours); }
  const ParamSpec& spec(const std::string& ours) const { return model_.params()[ids_.at(ours)]; }

  // Adds the rows [begin, end) of a parameter; end < 0 stands for all rows.
  void add(const std::string& hf, const std::string& ours, int64_t begin = 0, int64_t end = -1,
           bool is_transposed = false) {
    const int id = ids_.at(ours);
    const Shape& shape = model_.params()[id].full_shape();
    if (end < 0) end = shape[0];
    std::vector<int64_t> stored{end - begin};
    if (shape.rank() == 2) stored.push_back(shape[1]);
    if (is_transposed) std::swap(stored[0], stored[1]);
    tensors_.push_back({.name = hf,
                        .shape = stored,
                        .param = id,
                        .row_begin = begin,
                        .row_end = end,
                        .is_transposed = is_transposed});
  }
  void add_if(const std::string& hf, const std::string& ours) {
    if (has(ours)) add(hf, ours);
  }
  // Adds each of the matrices that are fused in a linear, or the parts of its bias, if it has one.
  void add_fused(const std::string& hf, std::initializer_list<const char*> names, const std::string& ours,
                 const char* kind) {
    if (!has(ours + kind)) return;
    int64_t begin = 0;
    auto name = names.begin();
    for (const int64_t rows : spec(ours + ".weight").fused_rows) {
      add(hf + *name++ + kind, ours + kind, begin, begin + rows);
      begin += rows;
    }
  }
  void add_or_zeros(const std::string& hf, const std::string& ours, int64_t size) {
    if (has(ours))
      add(hf, ours);
    else
      tensors_.push_back({.name = hf, .shape = {size}, .row_end = size});
  }
  void add_or_ones(const std::string& hf, const std::string& ours, int64_t size) {
    if (has(ours))
      add(hf, ours);
    else
      tensors_.push_back({.name = hf, .shape = {size}, .fill = 1, .row_end = size});
  }

  std::vector<HfTensor> take() { return std::move(tensors_); }

 private:
  const Transformer& model_;
  std::map<std::string, int> ids_;
  std::vector<HfTensor> tensors_;
};

std::vector<HfTensor> gpt2_tensors(const Transformer& model) {
  const ModelConfig& c = model.config();
  TensorLayout layout(model);
  layout.add("transformer.wte.weight", "embedding.weight", 0, c.vocab);
  layout.add("transformer.wpe.weight", "positions.weight");
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string hf = fmt::format("transformer.h.{}.", l), ours = fmt::format("blocks.{}.", l);
    const auto norm = [&](const char* hf_name, const char* our_name) {
      layout.add_if(hf + hf_name + ".weight", ours + our_name + ".weight");
      layout.add_or_zeros(hf + hf_name + ".bias", ours + our_name + ".bias", c.width);
    };
    const auto linear = [&](const char* hf_name, const char* our_name) {
      layout.add(hf + hf_name + ".weight", ours + our_name + ".weight", 0, -1, true);
      layout.add_or_zeros(hf + hf_name + ".bias", ours + our_name + ".bias",
                          layout.spec(ours + our_name + ".weight").full_shape()[0]);
    };
    norm("ln_1", "attention.norm");
    linear("attn.c_attn", "attention.qkv");
    linear("attn.c_proj", "attention.proj");
    norm("ln_2", "mlp.norm");
    linear("mlp.c_fc", "mlp.up");
    linear("mlp.c_proj", "mlp.down");
  }
  layout.add_if("transformer.ln_f.weight", "head.norm.weight");
  layout.add_or_zeros("transformer.ln_f.bias", "head.norm.bias", c.width);
  if (!c.is_tied) layout.add("lm_head.weight", "head.weight", 0, c.vocab);
  return layout.take();
}

std::vector<HfTensor> llama_tensors(const Transformer& model) {
  const ModelConfig& c = model.config();
  const std::string_view family = hf_family(c);
  const bool has_gains = c.has_qk_norm && (c.has_qk_norm_gain || family == "qwen3" || family == "olmo2");
  const bool is_after = c.norm_place == NormPlace::kAfter;
  const std::string attention_norm = is_after ? "post_attention_layernorm" : "input_layernorm";
  const std::string mlp_norm = is_after ? "post_feedforward_layernorm" : "post_attention_layernorm";
  TensorLayout layout(model);
  layout.add("model.embed_tokens.weight", "embedding.weight", 0, c.vocab);
  layout.add_if("model.embed_positions.weight", "positions.weight");
  for (int64_t i = 0; i < c.value_embeddings; ++i)
    layout.add(fmt::format("model.value_embeddings.{}.weight", i),
               fmt::format("value_embeddings.{}.weight", i), 0, c.vocab);
  for (const char* kind : {".weight", ".bias"})
    layout.add_if(std::string("model.embed_norm") + kind, std::string("embedding.norm") + kind);
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string hf = fmt::format("model.layers.{}.", l), ours = fmt::format("blocks.{}.", l);
    for (const char* scalar : {"mix.stream", "mix.input", "mix.skip"})
      layout.add_if(hf + scalar, ours + scalar);
    for (const char* scalar : {"own", "table"})
      layout.add_if(hf + "self_attn.value_mix." + scalar, ours + "attention.value_mix." + scalar);
    if (has_gains && c.has_attention(l)) {
      layout.add_or_ones(hf + "self_attn.q_norm.weight", ours + "attention.q_norm.weight",
                         c.qk_gain_width(c.heads));
      layout.add_or_ones(hf + "self_attn.k_norm.weight", ours + "attention.k_norm.weight",
                         c.qk_gain_width(c.kv_heads));
    }
    for (const char* kind : {".weight", ".bias"}) {
      layout.add_if(hf + attention_norm + kind, ours + "attention.norm" + kind);
      layout.add_fused(hf + "self_attn.", {"q_proj", "k_proj", "v_proj"}, ours + "attention.qkv", kind);
      layout.add_if(hf + "self_attn.o_proj" + kind, ours + "attention.proj" + kind);
      layout.add_if(hf + mlp_norm + kind, ours + "mlp.norm" + kind);
      if (c.mlp == Activation::kSwiglu)
        layout.add_fused(hf + "mlp.", {"gate_proj", "up_proj"}, ours + "mlp.up", kind);
      else
        layout.add_if(hf + "mlp.up_proj" + kind, ours + "mlp.up" + kind);
      layout.add_if(hf + "mlp.down_proj" + kind, ours + "mlp.down" + kind);
    }
  }
  layout.add_if("model.norm.weight", "head.norm.weight");
  layout.add_if("model.norm.bias", "head.norm.bias");
  if (!c.is_tied) layout.add("lm_head.weight", "head.weight", 0, c.vocab);
  return layout.take();
}

// Copies one stored row, which is a row of the parameter or, if t.is_transposed, a column of it.
void copy_row(float* out, const Tensor& value, const HfTensor& t, int64_t row) {
  const int64_t width = value.rank() == 2 ? value.dim(1) : 1;
  const float* base = value.as<float>() + t.row_begin * width;
  if (!t.is_transposed) {
    std::memcpy(out, base + row * width, static_cast<size_t>(width) * sizeof(float));
    return;
  }
  for (int64_t o = 0; o < t.row_end - t.row_begin; ++o) out[o] = base[o * width + row];
}

void stream_tensor(const ByteSink& sink, const Tensor& value, const HfTensor& t) {
  const int64_t rows = t.shape[0], width = t.shape.size() == 2 ? t.shape[1] : 1;
  const int64_t step = std::max<int64_t>(1, (1 << 16) / width);
  std::vector<float> buffer(static_cast<size_t>(step * width), t.fill);
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    for (int64_t i = 0; i < count && t.param >= 0; ++i)
      copy_row(buffer.data() + i * width, value, t, row + i);
    sink(std::as_bytes(std::span(buffer.data(), static_cast<size_t>(count * width))));
  }
}

// Reads `count` elements of a tensor from element `first` on. kNumerics error that names the element if one
// is not finite.
void read_elements(float* out, const std::string& file, const SafetensorsEntry& entry, int64_t first,
                   int64_t count) {
  const DType dtype = *entry.dtype;
  const auto bytes = entry.bytes.subspan(static_cast<size_t>(first) * size_bytes(dtype),
                                         static_cast<size_t>(count) * size_bytes(dtype));
  if (dtype == DType::f32) {
    std::memcpy(out, bytes.data(), bytes.size());
  } else {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + static_cast<size_t>(i) * sizeof bits, sizeof bits);
      out[i] = dtype == DType::bf16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)
                                    : static_cast<float>(std::bit_cast<f16>(bits));
    }
  }
  if (const std::optional<int64_t> bad = first_not_finite(dtype, bytes))
    fail(ErrorKind::kNumerics,
         "{}: tensor {}, element {} is {}; the model cannot be used, take an earlier checkpoint", file,
         entry.name, first + *bad, out[*bad]);
}

// Reads the rows of `rect` that belong to t, whose stored tensor is `entry` (read_hf_rect).
void read_entry(float* values, const std::string& file, const SafetensorsEntry& entry, const HfTensor& t,
                const Rect& rect) {
  const int64_t width = t.shape.size() == 2 ? t.shape[1] : 1;  // columns of the stored tensor
  const int64_t begin = std::max(rect.row, t.row_begin), end = std::min(rect.row + rect.rows, t.row_end);
  if (!t.is_transposed) {
    for (int64_t row = begin; row < end; ++row)
      read_elements(values + (row - rect.row) * rect.columns, file, entry,
                    (row - t.row_begin) * width + rect.column, rect.columns);
    return;
  }
  constexpr int64_t kRowsAtOnce = 32;  // two cache lines of the file, one cache line of each of these rows
  float line[kRowsAtOnce];
  for (int64_t row = begin; row < end; row += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, end - row);
    float* first = values + (row - rect.row) * rect.columns;
    for (int64_t c = 0; c < rect.columns; ++c) {
      read_elements(line, file, entry, (rect.column + c) * width + row - t.row_begin, rows);
      for (int64_t r = 0; r < rows; ++r) first[r * rect.columns + c] = line[r];
    }
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return (shape.size() == 2 ? Shape{shape[0], shape[1]} : Shape{shape[0]}).to_string();
}

const SafetensorsEntry* find_tensor(const SafetensorsSet& files, const HfTensor& t) {
  if (const SafetensorsEntry* found = files.find(t.name)) return found;
  constexpr std::string_view kGpt2 = "transformer.";  // files saved from the bare GPT2Model lack this prefix
  return t.name.starts_with(kGpt2) ? files.find(t.name.substr(kGpt2.size())) : nullptr;
}

// Returns the tensor t of the files. kData error unless it has the right shape and a readable dtype.
const SafetensorsEntry& readable_tensor(const SafetensorsSet& files, const HfTensor& t) {
  const SafetensorsEntry* entry = find_tensor(files, t);
  if (!entry) entry = &files.get(t.name);  // throws an error with file and tensor
  if (entry->shape != t.shape)
    fail(ErrorKind::kData, "{}: tensor {} is {}, the model's config asks for {}", files.label_of(*entry),
         entry->name, entry->shape_text(), shape_text(t.shape));
  if (!entry->dtype ||
      (*entry->dtype != DType::f32 && *entry->dtype != DType::bf16 && *entry->dtype != DType::f16))
    fail(ErrorKind::kData, "{}: tensor {} is {}; F32, BF16 and F16 can be read", files.label_of(*entry),
         entry->name, entry->dtype_name);
  return *entry;
}

}  // namespace

std::vector<HfTensor> hf_tensors(const Transformer& model, HfNames names) {
  const ModelConfig& c = model.config();
  const bool is_gpt2 = names == HfNames::kByModel && c.positions == PositionKind::kLearned &&
                       c.norm == NormKind::kLayerNorm && c.mlp != Activation::kSwiglu &&
                       c.kv_heads == c.heads && !c.has_qk_norm_gain && !c.has_own_parts();
  return is_gpt2 ? gpt2_tensors(model) : llama_tensors(model);
}

const char* weights_name(const Transformer& model) {
  return model.config().lora.rank > 0 ? kAdapterName : kSafetensorsName;
}

uint64_t weights_fingerprint(const SafetensorsSet& files, const Transformer& model) {
  Xxh3 hash;
  for (const HfTensor& t : hf_tensors(model)) {
    if (t.param < 0) continue;
    const std::span<const std::byte> bytes = readable_tensor(files, t).bytes;
    const size_t some = std::min<size_t>(bytes.size(), 256);
    hash.add(std::as_bytes(std::span(t.name)));
    for (const size_t begin : {size_t{0}, (bytes.size() - some) / 2, bytes.size() - some})
      hash.add(bytes.subspan(begin, some));
  }
  return hash.value();
}

std::vector<HfTensor> saved_tensors(const Transformer& model) {
  std::vector<HfTensor> tensors = hf_tensors(model);
  if (model.config().lora.rank == 0) return tensors;
  const std::vector<ParamSpec>& specs = model.params().specs();
  const auto find = [&](const std::string& name) {
    return static_cast<int>(std::ranges::find(specs, name, &ParamSpec::name) - specs.begin());
  };
  constexpr std::string_view kWeight = ".weight";
  std::vector<HfTensor> adapters;
  for (const HfTensor& base : tensors) {
    if (base.param < 0 || !base.name.ends_with(kWeight)) continue;
    const std::string& weight = specs[static_cast<size_t>(base.param)].name;
    const std::string ours = weight.substr(0, weight.size() - kWeight.size()),
                      theirs = "base_model.model." + base.name.substr(0, base.name.size() - kWeight.size());
    const int a = find(ours + ".lora_a"), b = find(ours + ".lora_b");
    if (a == std::ssize(specs)) continue;
    const int64_t rank = model.config().lora.rank;
    adapters.push_back({.name = theirs + ".lora_A.weight",
                        .shape = {rank, specs[static_cast<size_t>(a)].full_shape()[1]},
                        .param = a,
                        .row_end = rank});
    adapters.push_back({.name = theirs + ".lora_B.weight",
                        .shape = {base.row_end - base.row_begin, rank},
                        .param = b,
                        .row_begin = base.row_begin,
                        .row_end = base.row_end});
  }
  return adapters;
}

std::vector<SafetensorsSource> hf_sources(const std::vector<HfTensor>& tensors,
                                          const std::function<Tensor(int)>& value) {
  std::vector<SafetensorsSource> sources;
  for (const HfTensor& t : tensors) {
    SafetensorsSource source{
        .name = t.name, .dtype = DType::f32, .shape = t.shape, .bytes = {}, .stream = {}};
    source.stream = [t, value](const ByteSink& sink) {
      stream_tensor(sink, t.param >= 0 ? value(t.param) : Tensor{}, t);
    };
    sources.push_back(std::move(source));
  }
  return sources;
}

void check_hf_tensors(const SafetensorsSet& files, const Transformer& model) {
  for (const HfTensor& t : hf_tensors(model))
    if (t.param >= 0) readable_tensor(files, t);
}

void read_hf_tensors(const SafetensorsSet& files, const std::vector<HfTensor>& tensors,
                     const std::vector<Tensor>& values) {
  for (const Tensor& value : values)
    if (value) std::memset(value.data, 0, value.bytes());
  for (const HfTensor& t : tensors) {
    if (t.param < 0 || !values[static_cast<size_t>(t.param)]) continue;
    const Tensor& value = values[static_cast<size_t>(t.param)];
    read_hf_rect(value.as<float>(), files, t, {0, value.dim(0), 0, value.rank() == 2 ? value.dim(1) : 1});
  }
}

void write_hf_rect(SafetensorsRanges& file, size_t tensor, const HfTensor& t, const Rect& rect,
                   const float* values) {
  const int64_t begin = std::max(rect.row, t.row_begin), end = std::min(rect.row + rect.rows, t.row_end);
  if (begin >= end) return;
  const float* first = values + (begin - rect.row) * rect.columns;
  const auto write = [&](int64_t element, const float* x, int64_t n) {
    file.write(tensor, element, std::as_bytes(std::span(x, static_cast<size_t>(n))));
  };
  const int64_t rows = end - begin, stored_row = begin - t.row_begin;
  if (!t.is_transposed) {
    const int64_t width = t.shape.size() == 2 ? t.shape[1] : 1;
    const int64_t step = rect.columns == width ? rows : 1;  // number of contiguous rows
    for (int64_t r = 0; r < rows; r += step)
      write((stored_row + r) * width + rect.column, first + r * rect.columns, step * rect.columns);
    return;
  }
  std::vector<float> column(static_cast<size_t>(rows));
  for (int64_t c = 0; c < rect.columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) column[static_cast<size_t>(r)] = first[r * rect.columns + c];
    write((rect.column + c) * t.shape[1] + stored_row, column.data(), rows);
  }
}

void read_hf_rect(float* values, const SafetensorsSet& files, const HfTensor& t, const Rect& rect) {
  const SafetensorsEntry& entry = readable_tensor(files, t);
  read_entry(values, files.label_of(entry), entry, t, rect);
}

namespace {

// Sets rows [begin, end) of a weight to zero: of its codes, unless they are null.
void zero_rows(const Int8Matrix* codes, const Tensor& weight, int64_t begin, int64_t end) {
  Stream stream;
  if (!codes) return fill_zero(weight.rows(begin, end), stream);
  fill_zero(codes->rows(begin, end).codes, stream);
  fill_zero(codes->rows(begin, end).scales, stream);
}

}  // namespace

void store_weight(ParamStore& store, int id, const Tensor& values) {
  Stream stream;
  if (const Int8Matrix* codes = store.int8_weight(id))
    parallel_for(values.dim(0), 64, [&](int64_t begin, int64_t end) {
      int8_quantize(codes->rows(begin, end), values.rows(begin, end));
    });
  else
    cast(store.weight(id), values, stream);
}

void read_hf_weights(const SafetensorsSet& files, const Transformer& model, ParamStore& store) {
  for (const HfTensor& t : hf_tensors(model)) {
    if (t.param < 0) continue;
    const SafetensorsEntry& entry = readable_tensor(files, t);
    const std::string& file = files.label_of(entry);
    const Int8Matrix* codes = store.int8_weight(t.param);
    const Tensor weight = codes ? Tensor{} : store.weight(t.param);
    const ParamSpec& spec = model.params()[t.param];
    const int64_t columns = spec.is_vector() ? 1 : spec.shape[1];
    const int64_t least_rows = std::max<int64_t>(1, kGrain / columns);
    parallel_for(t.row_end - t.row_begin, least_rows, [&](int64_t begin, int64_t end) {
      const int64_t step = std::min(least_rows, end - begin);
      const bool is_exact = !codes && weight.dtype == DType::f32;
      std::vector<float> values(is_exact ? 0 : static_cast<size_t>(step * columns));
      Stream stream;
      for (int64_t row = begin; row < end; row += step) {
        const int64_t first = t.row_begin + row, rows = std::min(step, end - row);
        const Rect rect{first, rows, 0, columns};
        read_entry(is_exact ? weight.rows(first, first + rows).as<float>() : values.data(), file, entry, t,
                   rect);
        const Tensor read(values.data(), DType::f32, {rows, columns});
        if (codes)
          int8_quantize(codes->rows(first, first + rows), read);
        else if (!is_exact)
          cast(weight.rows(first, first + rows), read, stream);
      }
    });
    if (spec.padding_rows > 0) zero_rows(codes, weight, spec.shape[0] - spec.padding_rows, spec.shape[0]);
  }
}

}  // namespace ingot
