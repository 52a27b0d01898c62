#include "ingot/checkpoint/hf_export.h"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "ingot/checkpoint/hf_texts.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/checkpoint/modeling_file.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/safetensors_set.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Removes an unfinished folder unless it has been renamed.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const fs::path& final_path)
      : path_(fmt::format("{}.tmp.{}", final_path.string(), ::getpid())) {
    std::error_code error;
    if (!fs::create_directory(path_, error))
      fail(ErrorKind::kDisk, "{}: cannot be created: {}", path_.string(),
           error ? error.message() : "it exists already");
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    if (!is_done_) fs::remove_all(path_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  void rename_to(const fs::path& final_path) {
    std::error_code error;
    fs::rename(path_, final_path, error);
    if (error) fail(ErrorKind::kDisk, "{}: cannot be created: {}", final_path.string(), error.message());
    is_done_ = true;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool is_done_ = false;
};

// Returns the absolute path of the folder to write, which does not exist or is empty.
fs::path free_folder(fs::path folder) {
  std::error_code error;
  folder = fs::absolute(folder, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "a/b/" ends in an empty name
  if (!path_exists(folder)) {
    if (folder.has_parent_path()) make_folders(folder.parent_path());
    return folder;
  }
  if (!fs::is_directory(folder, error) || !fs::is_empty(folder, error) || error ||
      fs::is_symlink(folder, error))
    fail(ErrorKind::kUsage, "--hf {}: exists and is not an empty folder; name a new folder", folder.string());
  return folder;
}

// Converts the f32 numbers of a source to another dtype as they are written.
SafetensorsSource converted(SafetensorsSource source, DType dtype) {
  if (dtype == DType::f32) return source;
  source.stream = [name = source.name, dtype, stream = std::move(source.stream)](const ByteSink& sink) {
    std::vector<std::byte> room;
    stream([&](std::span<const std::byte> bytes) {
      const size_t count = bytes.size() / sizeof(float);
      room.resize(count * size_bytes(dtype));
      with_dtype(dtype, __func__, [&]<typename E>() {
        for (size_t i = 0; i < count; ++i) {
          float x;
          std::memcpy(&x, bytes.data() + i * sizeof x, sizeof x);
          const E rounded(x);
          if (!std::isfinite(static_cast<float>(rounded)))
            fail(ErrorKind::kNumerics, "tensor {}: {} does not fit into {}; export it as bf16 or f32", name,
                 x, ingot::name(dtype));
          std::memcpy(room.data() + i * sizeof rounded, &rounded, sizeof rounded);
        }
      });
      sink(room);
    });
  };
  source.dtype = dtype;
  return source;
}

uint64_t bytes_of(const SafetensorsSource& source) {
  uint64_t elements = 1;
  for (const int64_t dim : source.shape) elements *= static_cast<uint64_t>(dim);
  return elements * size_bytes(source.dtype);
}

// Divides the sources among files, in order.
std::vector<std::vector<SafetensorsSource>> files_of(std::vector<SafetensorsSource> sources,
                                                     uint64_t file_bytes) {
  std::vector<std::vector<SafetensorsSource>> files(1);
  uint64_t filled = 0;
  for (SafetensorsSource& source : sources) {
    const uint64_t bytes = bytes_of(source);
    if (filled > 0 && filled + bytes > file_bytes) {
      files.emplace_back();
      filled = 0;
    }
    filled += bytes;
    files.back().push_back(std::move(source));
  }
  return files;
}

const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

const char* norm_name(NormKind kind) {
  return kind == NormKind::kLayerNorm ? "layernorm"
         : kind == NormKind::kRmsNorm ? "rmsnorm"
                                      : "rmsnorm_weightless";
}

const char* mlp_name(Activation kind) {
  return kind == Activation::kSwiglu      ? "swiglu"
         : kind == Activation::kRelu2     ? "relu2"
         : kind == Activation::kGeluExact ? "gelu_exact"
                                          : "gelu_tanh";
}

const char* rope_scaling_name(RopeScaling::Kind kind) {
  return kind == RopeScaling::Kind::kLlama3   ? "llama3"
         : kind == RopeScaling::Kind::kLinear ? "linear"
         : kind == RopeScaling::Kind::kYarn   ? "yarn"
                                              : "none";
}

// Returns the settings of the model that modeling_ingot.py needs, under the names of the configuration's
// keys.
std::string own_json(const ModelConfig& c) {
  const char* cap = c.cap.kind == LogitCap::kTanh      ? "tanh"
                    : c.cap.kind == LogitCap::kSigmoid ? "sigmoid"
                                                       : "none";
  const nlohmann::ordered_json own = {
      {"norm", norm_name(c.norm)},
      {"norm_place", c.norm_place == NormPlace::kAfter ? "after" : "before"},
      {"positions", c.positions == PositionKind::kRope ? "rope" : "learned"},
      {"mlp", mlp_name(c.mlp)},
      {"bias", c.has_bias},
      {"qkv_bias", c.has_qkv_bias},
      {"qk_norm", c.has_qk_norm},
      {"qk_norm_over", c.qk_norm_over == QkNormOver::kWidth ? "width" : "head"},
      {"qk_norm_gain", c.has_qk_norm_gain},
      {"full_layers", c.full_layers},
      {"nope_every", c.nope_every},
      {"parallel_residual", c.has_parallel_residual},
      {"mlp_only_layers", c.mlp_only_layers},
      {"embedding_norm", c.has_embedding_norm},
      {"input_mix", c.has_input_mix},
      {"skips", c.has_skips},
      {"value_embeddings", c.value_embeddings},
      {"rope_dims", c.rotated_dims()},
      {"rope_theta", c.rope_theta},
      {"rope_scaling", rope_scaling_name(c.rope_scaling.kind)},
      {"rope_factor", c.rope_scaling.factor},
      {"rope_low_freq_factor", c.rope_scaling.low_freq_factor},
      {"rope_high_freq_factor", c.rope_scaling.high_freq_factor},
      {"rope_original_context", c.rope_scaling.original_context},
      {"rope_beta_fast", c.rope_scaling.beta_fast},
      {"rope_beta_slow", c.rope_scaling.beta_slow},
      {"rope_attention_factor", c.rope_scaling.q_and_k_factor()},
      {"cap", cap},
      {"cap_a", c.cap.a},
      {"cap_b", c.cap.b},
      {"cap_c", c.cap.c}};
  return own.dump();
}

void write_texts(const fs::path& folder, const HfModelConfig& hf, const Tokenizer& tokenizer) {
  for (const auto& [name, text] : hf_text_files(hf, tokenizer)) write_file(folder / name, text);
  if (hf.model_type == "ingot") write_file(folder / "modeling_ingot.py", modeling_ingot_py());
}

HfExport write_weights(const fs::path& folder, std::vector<SafetensorsSource> sources, uint64_t file_bytes) {
  HfExport result{.model_type = {}, .tensors = sources.size()};
  const std::vector<std::vector<SafetensorsSource>> files = files_of(std::move(sources), file_bytes);
  result.files = files.size();
  std::map<std::string, std::string> index;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = files.size() == 1
                                 ? kSafetensorsName
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    for (const SafetensorsSource& source : files[i]) {
      index[source.name] = name;
      result.bytes += bytes_of(source);
    }
    write_safetensors(folder / name, files[i]);
  }
  if (files.size() > 1)
    write_file(folder / kSafetensorsIndexName, safetensors_index_text(index, result.bytes));
  return result;
}

}  // namespace

HfExport export_hf(const fs::path& from, const fs::path& given, const HfExportOptions& options,
                   const DamageReport& report) {
  const fs::path folder = free_folder(given);
  const LoadedModel loaded = options.mean_of > 1
                                 ? load_mean_model(from, options.mean_of, options.weights, report)
                                 : load_model(from, DType::f32, options.weights, report);
  HfModelConfig hf = to_hf_config(loaded.model->config(), *loaded.tokenizer);
  hf.dtype = torch_name(options.dtype);
  const bool is_own = hf.model_type == "ingot";
  if (is_own) hf.own_json = own_json(loaded.model->config());
  std::vector<SafetensorsSource> sources =
      hf_sources(hf_tensors(*loaded.model, is_own ? HfNames::kLlama : HfNames::kByModel),
                 [&](int id) { return loaded.params->master(id); });
  for (SafetensorsSource& source : sources) source = converted(std::move(source), options.dtype);
  UnfinishedFolder unfinished(folder);
  write_texts(unfinished.path(), hf, *loaded.tokenizer);
  HfExport result = write_weights(unfinished.path(), std::move(sources), options.file_bytes);
  result.model_type = hf.model_type;
  unfinished.rename_to(folder);
  return result;
}

}  // namespace ingot
