// A prepared folder holds token shards for training and validation, the tokenizer that made them, and
// dataset.json, which describes them. `ingot data prepare` writes the folder; `ingot train --data FOLDER`
// reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/core/dtype.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

inline constexpr std::string_view kDatasetName = "dataset.json";
inline constexpr std::string_view kDatasetTokenizerName = "tokenizer.json";

struct DatasetPart {
  std::vector<std::string> files;  // file names without folder, in order; empty if the split is empty
  int64_t tokens = 0, documents = 0, text_bytes = 0;
  uint64_t hash = 0;  // TokenSource::content_hash
  // In the validation part: documents that the training part has too, estimated if there are very many; -1 in
  // folders of an older Ingot.
  int64_t also_in_train = -1;
};

struct Dataset {
  DatasetPart train, val;
  DType dtype = DType::u16;
  int64_t vocab_size = 0;
  uint64_t tokenizer_hash = 0;                   // XXH3-64 of tokenizer.json
  uint64_t text_hash = 0;                        // Documents::content_hash of all text
  std::map<std::string, std::string> arguments;  // options of the command that made it, for information
};

// Returns the text of dataset.json.
std::string dataset_json(const Dataset& dataset);

// Returns the prepared folder that `specs` names, or nullopt. kUsage error if `specs` names anything in
// addition to it.
std::optional<std::filesystem::path> prepared_folder(std::span<const std::string> specs);

// Reads the folder's dataset.json. kData error if its format is wrong or it names a file outside the folder.
Dataset read_dataset(const std::filesystem::path& folder);
// Parses the text of a dataset.json; `file` stands for the path in errors.
Dataset parse_dataset(std::string_view text, const std::string& file);

// Loads the folder's tokenizer. kData error if its hash or vocabulary size is not the one in
// dataset.json.
std::unique_ptr<Tokenizer> open_dataset_tokenizer(const std::filesystem::path& folder,
                                                  const Dataset& dataset);

// Opens the tokens of one split, with text_bytes() and documents() set. kData error if the number of
// tokens or their hash is not the one in dataset.json; the message names the folder and the fix.
TokenSource open_dataset_part(const std::filesystem::path& folder, const DatasetPart& part,
                              const Tokenizer& tokenizer);

}  // namespace ingot
