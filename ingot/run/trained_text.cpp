#include "ingot/run/trained_text.h"

#include <nlohmann/json.hpp>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/corpus.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/token_source_shards.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

// Returns the files that a name stands for, or the name itself, if it is of a built-in text; of a prepared
// folder the files of one part.
std::vector<std::string> files_of(const std::string& spec, const DatasetPart Dataset::*part) {
  const std::span<const std::string> specs(&spec, 1);
  std::vector<std::string> files;
  if (spec.starts_with("builtin:")) return {spec};
  if (const auto folder = prepared_folder(specs)) {
    const Dataset dataset = read_dataset(*folder);
    for (const std::string& name : (dataset.*part).files) files.push_back((*folder / name).string());
  } else if (names_shards(specs)) {
    files = shard_files(specs);
  } else {
    for (const fs::path& file : expand_paths(specs)) files.push_back(file.string());
  }
  return files;
}

bool are_same(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || fs::equivalent(a, b, ignored);
}

bool has_file(const std::vector<std::string>& trained, const std::string& file) {
  for (const std::string& name : trained) try {
      for (const std::string& other : files_of(name, &Dataset::train))
        if (are_same(file, other)) return true;
    } catch (const Error&) {  // the training text is not here any more
    }
  return false;
}

// Returns the hash of the tokens that a checkpoint's run was trained on; 0 if it does not say.
uint64_t trained_hash(const fs::path& checkpoint) {
  const nlohmann::json json = nlohmann::json::parse(read_file(checkpoint / "trainer.json"), nullptr, false);
  const auto found = json.is_object() ? json.find("data_hash") : json.end();
  return found != json.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace

std::string trained_text_warning(const fs::path& checkpoint, const std::vector<std::string>& specs,
                                 const TokenSource& text) {
  if (!path_exists(checkpoint / "trainer.json") || !path_exists(checkpoint / "config.toml")) return "";
  DataConfig data;
  uint64_t hash = 0;
  try {
    ConfigBuilder builder;
    builder.add_toml(read_file(checkpoint / "config.toml"), "config.toml");
    data = builder.config().data;
    hash = trained_hash(checkpoint);
  } catch (const Error&) {  // only the model is needed
    return "";
  }
  const std::string remark = "; the loss says how well it remembers the text; give text that it has not seen";
  if (text.content_hash() == hash) return "the model was trained on this text" + remark;
  for (const std::string& spec : specs)
    for (const std::string& file : files_of(spec, &Dataset::val))
      if (has_file(data.train, file))
        return fmt::format("{}: the model was trained on {}{}", file,
                           data.val.empty() && data.val_fraction > 0 && !names_shards(data.train)
                               ? fmt::format("all of it but the last {:.3g} %", 100 * data.val_fraction)
                               : "it",
                           remark);
  return "";
}

}  // namespace ingot
