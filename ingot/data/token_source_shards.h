// Opens token shards as a TokenSource and writes tokens as sets of shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/data/token_source.h"

namespace ingot {

// Returns true if `specs` name token shards: each ends in .bin or .idx, begins with "nanogpt:" (a headerless
// uint16 file, or nanoGPT's folder of them), or is NAME of a Megatron data set NAME.bin, NAME.idx. kUsage
// error if only some do.
bool names_shards(std::span<const std::string> specs);

// Returns the .bin files that such specs name, in order and each once; "nanogpt:" stays before those without
// a header.
std::vector<std::string> shard_files(std::span<const std::string> specs);

// Opens the shards of all specs (files, or patterns such as "data/train_*.bin"), in order, as one stream.
// If end_of_text is set, documents begin at it; those of Megatron's begin where their index says. kData error
// if a file is bad or missing, or if there are no tokens.
TokenSource open_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text);

// Opens the same stream and splits it: validation is the last val_fraction of its tokens. Each side has
// at least one token. kUsage error unless 0 < val_fraction < 1.
struct TokenSplit {
  TokenSource train, val;
};
TokenSplit split_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text,
                        double val_fraction);

// Statistics over all tokens of a stream.
struct TokenSummary {
  uint32_t lowest_id = UINT32_MAX, highest_id = 0;
  int64_t end_of_texts = 0;  // occurrences of documents().end_of_text, if set
};
TokenSummary summarize(const TokenSource& source);

// A new folder that appears under its name complete or not at all. It is filled under a temporary name in
// the same parent folder and renamed by commit(). If commit() is not called, the folder and its contents
// are removed.
class StagedFolder {
 public:
  // kDisk error if the folder cannot be made; kUsage error if `target` exists and is not an empty folder.
  explicit StagedFolder(const std::filesystem::path& target);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::filesystem::path& path() const { return staged_; }
  // Renames the folder to its target. kDisk error if that fails.
  void commit();

 private:
  std::filesystem::path target_, staged_;
  bool is_committed_ = false;
};

// Writes a stream of tokens to FOLDER/PREFIX_%06d.bin and begins a new file every shard_tokens tokens.
class ShardSetWriter {
 public:
  // REQUIRES: 1 <= shard_tokens <= kMaxShardTokens.
  ShardSetWriter(std::filesystem::path folder, std::string prefix, DType dtype, int64_t shard_tokens,
                 int first_number);

  // Throws the errors of ShardWriter::append.
  void append(std::span<const uint32_t> tokens);
  // Completes the last file; creates an empty file if there were no tokens.
  void commit();
  const std::vector<std::filesystem::path>& files() const { return files_; }
  int64_t tokens() const { return tokens_; }

 private:
  void open_next();

  std::filesystem::path folder_;
  std::string prefix_;
  DType dtype_;
  int64_t shard_tokens_;
  int next_number_;
  std::unique_ptr<ShardWriter> writer_;
  std::vector<std::filesystem::path> files_;
  int64_t tokens_ = 0;
};

}  // namespace ingot
