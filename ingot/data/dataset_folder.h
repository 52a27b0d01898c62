// A prepared folder: token shards for training and validation, the tokenizer that made them, and
// dataset.json, which says what they are. `ingot data prepare` writes it, `ingot train --data FOLDER` takes
// it as it is.
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
  std::vector<std::string> files;  // plain names, in order; none: the part is empty
  int64_t tokens = 0, documents = 0, text_bytes = 0;
  uint64_t hash = 0;  // TokenSource::content_hash
};

struct Dataset {
  DatasetPart train, val;
  DType dtype = DType::u16;
  int64_t vocab_size = 0;
  uint64_t tokenizer_hash = 0;                   // XXH3-64 of tokenizer.json
  uint64_t text_hash = 0;                        // Documents::content_hash of all text
  std::map<std::string, std::string> arguments;  // the options of the command that made it, for readers
};

// The text of dataset.json.
std::string dataset_json(const Dataset& dataset);

// The folder if the specs name one that was prepared. kUsage error if they name another beside it.
std::optional<std::filesystem::path> prepared_folder(std::span<const std::string> specs);

// The folder's dataset.json. kData error unless it has this format, and for files whose names lead elsewhere.
Dataset read_dataset(const std::filesystem::path& folder);
// The same from its text; `file` stands for the path in errors.
Dataset parse_dataset(std::string_view text, const std::string& file);

// The folder's tokenizer. kData error unless it is the one that dataset.json says.
std::unique_ptr<Tokenizer> open_dataset_tokenizer(const std::filesystem::path& folder,
                                                  const Dataset& dataset);

// One part's tokens, with text_bytes() and documents(). kData error unless the shards hold the tokens that
// dataset.json says (count, ids and hash; one message names the folder and what to do).
TokenSource open_dataset_part(const std::filesystem::path& folder, const DatasetPart& part,
                              const Tokenizer& tokenizer);

}  // namespace ingot
