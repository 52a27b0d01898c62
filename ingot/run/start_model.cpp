#include "ingot/run/start_model.h"

#include <algorithm>
#include <array>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/config/config_keys.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Keys of [model] that say how a model is trained or initialised, and not what it computes.
constexpr std::array<std::string_view, 6> kFreeModelKeys = {"model.dropout",         "model.vocab_multiple",
                                                            "model.projection_init", "model.init_std",
                                                            "model.matrix_init_std", "model.head_init_std"};

// A model to start from, and where it comes from.
struct Start {
  ModelConfig model;   // resolved
  std::string source;  // the file that describes the model
  std::string tokenizer;
  std::string folder;
};

bool is_free(std::string_view key) { return std::ranges::find(kFreeModelKeys, key) != kFreeModelKeys.end(); }

// The value that stands for "as the other keys say".
bool is_left_open(const ConfigKey& key, const RunConfig& config) {
  const bool has_default = key.name == "model.kv_heads" || key.name == "model.head_dim" ||
                           key.name == "model.ffn" || key.name == "model.vocab";
  return has_default && key.toml(config) == "0";
}

void take_model(ConfigBuilder& builder, const Start& start) {
  RunConfig& config = builder.config();
  RunConfig wanted = config;
  wanted.model = start.model;
  for (const ConfigKey& key : config_keys()) {
    if (key.section() != "model") continue;
    if (is_free(key.name)) continue;
    const std::string where = builder.set_by_user(key.name);
    const bool is_shorter = key.name == "model.context" && start.model.positions == PositionKind::kRope &&
                            config.model.context < start.model.context;
    if (where.empty() || is_left_open(key, config) || key.toml(config) == key.toml(wanted)) continue;
    if (!is_shorter)
      fail(ErrorKind::kUsage,
           "{}: {} = {} contradicts {}, which has {} (train.init_from); leave the key out{}", where, key.name,
           key.toml(config), start.source, key.toml(wanted),
           key.name == "model.context" ? ", or choose a smaller number if the positions are rotary" : "");
    wanted.model.context = config.model.context;
  }
  const ModelConfig before = config.model;
  config.model = wanted.model;
  config.model.dropout = before.dropout;
  config.model.vocab_multiple = before.vocab_multiple;
  config.model.projection_init = before.projection_init;
  config.model.init_std = before.init_std;
  config.model.matrix_init_std = before.matrix_init_std;
  config.model.head_init_std = before.head_init_std;
  config.model.lora = before.lora;
  // Every checkpoint of adapters refers to the folder.
  config.train.init_from =
      before.lora.rank > 0 ? fs::absolute(start.folder).lexically_normal().string() : start.folder;
  if (builder.set_by_user("data.tokenizer").empty()) config.data.tokenizer = start.tokenizer;
}

// Reads the folder; an error names the key, because the folder's name alone may mean nothing to the reader.
ModelFolder read_start_folder(const std::string& path) {
  const auto report = [](const fs::path& checkpoint, const std::string& what) {
    fmt::print(stderr, "{}\n",
               visible_text(fmt::format("warning: {}: {}; passed over", checkpoint.string(), what)));
  };
  try {
    return read_model_folder(path, report);
  } catch (const Error& error) {
    throw Error(fmt::format("train.init_from: {}", error.what()), error.kind());
  }
}

Start start_of(const ConfigBuilder& builder, const RunConfig& config) {
  const ModelFolder folder = read_start_folder(config.train.init_from);
  const fs::path tokenizer = folder.path / "tokenizer.json";
  if (builder.set_by_user("data.tokenizer").empty() && !path_exists(tokenizer))
    fail(ErrorKind::kData,
         "{}: there is no tokenizer.json in it; set data.tokenizer to the model's tokenizer",
         folder.path.string());
  return {.model = folder.config.resolved(),
          .source = folder.config_path.string(),
          .tokenizer = tokenizer.string(),
          .folder = folder.path.string()};
}

Start resumed_start(const fs::path& config_path) {
  ConfigBuilder saved;
  saved.add_toml(read_file(config_path), config_path.string());
  const RunConfig& config = saved.config();
  return {.model = config.model,
          .source = config_path.string(),
          .tokenizer = config.data.tokenizer,
          .folder = config.train.init_from};
}

}  // namespace

void complete_from_start(ConfigBuilder& builder, const std::optional<fs::path>& resumed_config) {
  RunConfig& config = builder.config();
  if (config.train.init_from.empty()) return;
  take_model(builder, resumed_config ? resumed_start(*resumed_config) : start_of(builder, config));
}

}  // namespace ingot
