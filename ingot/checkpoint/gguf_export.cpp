#include "ingot/checkpoint/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <optional>

#include "ingot/checkpoint/gguf_tokenizer.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

enum class GgufArch { kGpt2, kLlama, kQwen2, kQwen3, kOlmo2, kSmolLm3 };

constexpr const char* arch_name(GgufArch arch) {
  switch (arch) {
    case GgufArch::kGpt2:
      return "gpt2";
    case GgufArch::kQwen2:
      return "qwen2";
    case GgufArch::kQwen3:
      return "qwen3";
    case GgufArch::kOlmo2:
      return "olmo2";
    case GgufArch::kSmolLm3:
      return "smollm3";
    case GgufArch::kLlama:
      break;
  }
  return "llama";
}

// True if llama.cpp's RoPE for the architecture turns elements 2i and 2i + 1 of a head together; others turn
// i and i + D/2.
bool turns_neighbours(GgufArch arch) { return arch == GgufArch::kLlama || arch == GgufArch::kSmolLm3; }

[[noreturn]] void refuse_model(std::string_view what) {
  fail(ErrorKind::kData,
       "llama.cpp has no architecture for this model: {}; it computes GPT-2 (tanh GELU) and LLaMA, the "
       "latter also with QK-norm, with norms without weights, as OLMo 2, and as SmolLM3 with every fourth "
       "block "
       "without rotary positions",
       what);
}

GgufArch olmo2_arch_of(const ModelConfig& c) {
  if (c.norm_place != NormPlace::kAfter || !c.has_qk_norm || c.qk_norm_over != QkNormOver::kWidth)
    refuse_model("norms after the layers, or QK-norm over all heads together, one without the other");
  if (c.nope_every > 0) refuse_model("norms after the layers with blocks without rotary positions");
  if (c.has_bias || c.heads * c.head_dim != c.width)
    refuse_model(
        "norms after the layers with biases, or with heads that are not as wide as the model together");
  return GgufArch::kOlmo2;
}

// A model with biases of q, k and v alone. llama.cpp's `llama` reads them too, but other readers of GGUF
// files drop them there. Only `llama` has the RoPE of Llama 3.
bool is_qwen2(const ModelConfig& c) {
  return c.has_qkv_bias && !c.has_bias && c.heads * c.head_dim == c.width &&
         c.rope_scaling.kind != RopeScaling::Kind::kLlama3;
}

// The architecture of a model with RMSNorm, RoPE and SwiGLU.
GgufArch llama_arch_of(const ModelConfig& c) {
  if (c.norm_place == NormPlace::kAfter || c.qk_norm_over == QkNormOver::kWidth) return olmo2_arch_of(c);
  if (c.nope_every == 0 && c.has_qk_norm) return GgufArch::kQwen3;
  if (c.nope_every == 0) return is_qwen2(c) ? GgufArch::kQwen2 : GgufArch::kLlama;
  if (c.nope_every != 4 || c.has_qk_norm || c.has_bias_of_qkv())
    refuse_model(
        "blocks without rotary positions (model.nope_every), unless every fourth, without QK-norm and "
        "biases");
  return GgufArch::kSmolLm3;
}

GgufArch arch_of(const ModelConfig& c) {
  if (c.cap.kind != LogitCap::kNone) refuse_model("its logits are capped (model.logit_cap)");
  if (c.has_own_parts())
    refuse_model(
        "it has parts of the speed run (model.skips, input_mix, value_embeddings, embedding_norm, "
        "mlp_only_layers), or model.parallel_residual or rope_dims");
  if (c.mlp == Activation::kRelu2) refuse_model("its activation is ReLU^2");
  if (c.norm == NormKind::kLayerNorm) {
    if (c.norm_place == NormPlace::kAfter) refuse_model("LayerNorm after the layers (model.norm_place)");
    if (c.positions != PositionKind::kLearned) refuse_model("LayerNorm with rotary positions");
    if (c.has_qk_norm) refuse_model("LayerNorm with QK-norm");
    if (c.mlp != Activation::kGeluTanh) refuse_model("LayerNorm with an activation other than the tanh GELU");
    if (c.kv_heads != c.heads || c.heads * c.head_dim != c.width)
      refuse_model("GPT-2's attention with grouped heads or heads of another size");
    return GgufArch::kGpt2;
  }
  if (c.positions != PositionKind::kRope) refuse_model("RMSNorm with learned positions");
  if (c.mlp != Activation::kSwiglu) refuse_model("RMSNorm with an MLP other than SwiGLU");
  if (c.has_qk_norm && c.has_bias_of_qkv()) refuse_model("QK-norm with biases");
  if (c.window > 0 && c.window < c.context)
    refuse_model(fmt::format("a window of attention (model.window = {})", c.window));
  const GgufArch arch = llama_arch_of(c);
  if (c.rope_scaling.kind == RopeScaling::Kind::kLlama3 && arch != GgufArch::kLlama)
    refuse_model(fmt::format("the RoPE of Llama 3 in the architecture {}", arch_name(arch)));
  const RopeScaling& scaling = c.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kYarn && (scaling.beta_fast != 32 || scaling.beta_slow != 1))
    refuse_model(
        "YaRN with other limits than model.rope_beta_fast = 32 and model.rope_beta_slow = 1, the only ones "
        "that it computes");
  return arch;
}

// Returns the name in the file of a tensor of the Hugging Face layout.
std::string gguf_name(const std::string& hf, GgufArch arch) {
  static const std::map<std::string_view, std::string_view> kWhole = {
      {"transformer.wte", "token_embd"},
      {"transformer.wpe", "position_embd"},
      {"transformer.ln_f", "output_norm"},
      {"lm_head", "output"},
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"ln_1", "attn_norm"},
      {"attn.c_attn", "attn_qkv"},
      {"attn.c_proj", "attn_output"},
      {"ln_2", "ffn_norm"},
      {"mlp.c_fc", "ffn_up"},
      {"mlp.c_proj", "ffn_down"},
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  const size_t dot = hf.rfind('.');
  std::string block, stem = hf.substr(0, dot);
  for (const std::string_view prefix : {"transformer.h.", "model.layers."})
    if (stem.starts_with(prefix)) {
      const size_t end = stem.find('.', prefix.size());
      block = "blk." + stem.substr(prefix.size(), end - prefix.size()) + ".";
      stem = stem.substr(end + 1);
    }
  if (arch == GgufArch::kOlmo2 && stem == "post_attention_layernorm")
    return block + "post_attention_norm" + hf.substr(dot);
  const auto found = kWhole.find(stem);
  INGOT_CHECK(found != kWhole.end(), "gguf: no name for the tensor {}", hf);
  return block + std::string(found->second) + hf.substr(dot);
}

// Returns the number by which Llama 3's scaling divides the rotary frequency i (ops/rope.h).
double llama3_rope_divisor(const ModelConfig& c, int64_t i) {
  const RopeScaling& s = c.rope_scaling;
  const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim);
  const double wavelength = 2 * std::numbers::pi * std::pow(c.rope_theta, exponent);
  const double turns = static_cast<double>(s.original_context) / wavelength;
  const double smooth =
      std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
  return 1 / ((1 - smooth) / s.factor + smooth);
}

class GgufTensors {
 public:
  GgufTensors(const LoadedModel& loaded, GgufArch arch, GgufType type)
      : loaded_(loaded), c_(loaded.model->config()), arch_(arch), type_(type) {}

  std::vector<GgufTensor> make() {
    for (const HfTensor& t : hf_tensors(*loaded_.model)) add(t);
    for (int64_t l = 0; l < c_.layers; ++l) {
      const std::string block = fmt::format("blk.{}.", l);
      const bool is_after = arch_ == GgufArch::kOlmo2;
      add_ones_unless_there(block + (is_after ? "post_attention_norm.weight" : "attn_norm.weight"), c_.width);
      add_ones_unless_there(block + (is_after ? "post_ffw_norm.weight" : "ffn_norm.weight"), c_.width);
    }
    add_ones_unless_there("output_norm.weight", c_.width);
    if (c_.rope_scaling.kind == RopeScaling::Kind::kLlama3) add_rope_divisors();
    return std::move(tensors_);
  }

 private:
  GgufType type_of(const std::string& name, const std::vector<int64_t>& shape) const {
    if (shape.size() == 1 || name == "position_embd.weight") return GgufType::kF32;
    const bool is_whole = shape[1] % kQ8BlockSize == 0;
    return type_ == GgufType::kQ8_0 && !is_whole ? GgufType::kF16 : type_;
  }

  void add(const HfTensor& t) {
    GgufTensor tensor{.name = gguf_name(t.name, arch_), .shape = t.shape, .type = {}, .read = {}};
    if (t.is_transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    tensor.type = type_of(tensor.name, tensor.shape);
    const int64_t width = t.shape.size() == 2 ? tensor.shape[1] : 1;
    const Tensor value = t.param >= 0 ? loaded_.params->master(t.param) : Tensor{};
    const bool is_turned = turns_neighbours(arch_) && (tensor.name.find(".attn_q.") != std::string::npos ||
                                                       tensor.name.find(".attn_k.") != std::string::npos);
    // Elements of a vector are rows here, so that biases are turned like their weights.
    tensor.read = [value, t, width, is_turned, head_dim = c_.head_dim](int64_t begin, int64_t rows,
                                                                       float* out) {
      const int64_t count = t.shape.size() == 2 ? rows : t.row_end - t.row_begin;
      for (int64_t i = 0; i < count; ++i, out += width) {
        const int64_t row = is_turned ? turned_row(begin + i, head_dim) : begin + i;
        if (value)
          std::memcpy(out, value.as<float>() + (t.row_begin + row) * width,
                      static_cast<size_t>(width) * sizeof(float));
        else
          std::fill_n(out, width, t.fill);
      }
    };
    tensors_.push_back(std::move(tensor));
  }

  // Returns our row of row `row` in the file. Our RoPE turns elements i and i + D/2 of a head together,
  // llama.cpp's for LLaMA 2i and 2i + 1.
  static int64_t turned_row(int64_t row, int64_t head_dim) {
    const int64_t inside = row % head_dim;
    return row - inside + inside % 2 * (head_dim / 2) + inside / 2;
  }

  void add_ones_unless_there(const std::string& name, int64_t size) {
    if (std::any_of(tensors_.begin(), tensors_.end(), [&](const GgufTensor& t) { return t.name == name; }))
      return;
    tensors_.push_back({name, {size}, GgufType::kF32, [size](int64_t, int64_t, float* out) {
                          std::fill_n(out, size, 1.0f);
                        }});
  }

  // llama.cpp divides the rotary frequencies by the numbers of this tensor.
  void add_rope_divisors() {
    std::vector<float> divisors;
    for (int64_t i = 0; i < c_.head_dim / 2; ++i)
      divisors.push_back(static_cast<float>(llama3_rope_divisor(c_, i)));
    tensors_.push_back(
        {"rope_freqs.weight", {c_.head_dim / 2}, GgufType::kF32, [divisors](int64_t, int64_t, float* out) {
           std::ranges::copy(divisors, out);
         }});
  }

  const LoadedModel& loaded_;
  const ModelConfig& c_;
  GgufArch arch_;
  GgufType type_;
  std::vector<GgufTensor> tensors_;
};

void add_rope_scaling(GgufMetadata& metadata, const RopeScaling& scaling, const std::string& prefix) {
  if (scaling.kind != RopeScaling::Kind::kLinear && scaling.kind != RopeScaling::Kind::kYarn) return;
  const bool is_yarn = scaling.kind == RopeScaling::Kind::kYarn;
  const auto add = [&](const char* key, double value) {
    metadata.add(prefix + key, static_cast<float>(value));
  };
  metadata.add(prefix + "type", std::string_view(is_yarn ? "yarn" : "linear"));
  add("factor", scaling.factor);
  if (!is_yarn) return;
  metadata.add(prefix + "original_context_length", static_cast<uint32_t>(scaling.original_context));
  add("yarn_beta_fast", scaling.beta_fast);
  add("yarn_beta_slow", scaling.beta_slow);
  // llama.cpp multiplies this by 0.1 ln(factor) + 1.
  add("attn_factor", scaling.q_and_k_factor() / (0.1 * std::log(scaling.factor) + 1));
}

void add_gguf_model(GgufMetadata& metadata, const ModelConfig& c, GgufArch arch, GgufType type) {
  const std::string name = arch_name(arch);
  const auto add = [&](const char* key, int64_t value) {
    metadata.add(name + "." + key, static_cast<uint32_t>(value));
  };
  metadata.add("general.architecture", std::string_view(name));
  metadata.add("general.name", std::string_view("ingot"));
  const uint32_t file_type = type == GgufType::kF32    ? 0
                             : type == GgufType::kF16  ? 1
                             : type == GgufType::kQ8_0 ? 7
                                                       : 32;
  metadata.add("general.file_type", file_type);
  metadata.add("general.quantization_version", uint32_t{2});
  add("vocab_size", c.vocab);
  add("context_length", c.context);
  add("embedding_length", c.width);
  add("block_count", c.layers);
  add("feed_forward_length", c.ffn);
  add("attention.head_count", c.heads);
  if (arch == GgufArch::kGpt2) {
    metadata.add(name + ".attention.layer_norm_epsilon", static_cast<float>(c.norm_eps));
    return;
  }
  add("attention.head_count_kv", c.kv_heads);
  add("attention.key_length", c.head_dim);
  add("attention.value_length", c.head_dim);
  add("rope.dimension_count", c.head_dim);
  metadata.add(name + ".attention.layer_norm_rms_epsilon", static_cast<float>(c.norm_eps));
  metadata.add(name + ".rope.freq_base", static_cast<float>(c.rope_theta));
  add_rope_scaling(metadata, c.rope_scaling, name + ".rope.scaling.");
}

void require_disk_space(const fs::path& path, uint64_t needed_bytes) {
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_regular_file(path, error) && fs::exists(path, error)) return;  // a device or pipe
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < needed_bytes)
    fail(ErrorKind::kDisk, "{}: the file needs {} bytes, {} are free; make room or choose another disk",
         path.string(), needed_bytes, space.available);
}

}  // namespace

std::vector<std::string> export_gguf(const LoadedModel& loaded, GgufType type, const fs::path& path) {
  const ModelConfig& config = loaded.model->config();
  const GgufArch arch = arch_of(config);
  GgufMetadata metadata;
  add_gguf_model(metadata, config, arch, type);
  std::vector<std::string> notes = add_gguf_tokenizer(metadata, *loaded.tokenizer, config.vocab);
  if (arch == GgufArch::kLlama && config.has_bias_of_qkv())
    notes.emplace_back(
        "llama.cpp reads the biases of this model, but other readers of the architecture llama "
        "(transformers) drop "
        "them: export for these with --hf");
  const std::vector<GgufTensor> tensors = GgufTensors(loaded, arch, type).make();
  require_disk_space(path, gguf_file_bytes(metadata, tensors));
  write_gguf(path, metadata, tensors);
  return notes;
}

}  // namespace ingot
