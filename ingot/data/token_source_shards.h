// Token sources out of shard files, and sets of shards out of tokens.
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

// Whether `specs` name token shards: each ends in .bin or begins with "nanogpt:" (a headerless uint16 file).
// kUsage error if only some do.
bool names_shards(std::span<const std::string> specs);

// The shards of all specs (files, or patterns such as "data/train_*.bin"), in order, as one stream. With
// end_of_text present, documents begin at it. kData error for a bad or absent file, or for no tokens at all.
TokenSource open_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text);

// The same stream in two: validation is the last val_fraction of its tokens (at least one on either side).
// kUsage error unless 0 < val_fraction < 1.
struct TokenSplit {
  TokenSource train, val;
};
TokenSplit split_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text,
                        double val_fraction);

// What a look at every token of a stream finds.
struct TokenSummary {
  uint32_t lowest_id = UINT32_MAX, highest_id = 0;
  int64_t end_of_texts = 0;  // occurrences of documents().end_of_text, where it has one
};
TokenSummary summarize(const TokenSource& source);

// A new folder that appears under its name whole or not at all: filled under a temporary name beside it and
// renamed by commit(); removed with its contents if commit() is not called.
class StagedFolder {
 public:
  // kDisk error if the folder cannot be made; kUsage error if `target` exists and is not an empty folder.
  explicit StagedFolder(const std::filesystem::path& target);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::filesystem::path& path() const { return staged_; }
  // kDisk error if it cannot be renamed.
  void commit();

 private:
  std::filesystem::path target_, staged_;
  bool is_committed_ = false;
};

// Streams tokens into FOLDER/PREFIX_%06d.bin, a new file every shard_tokens tokens.
class ShardSetWriter {
 public:
  // REQUIRES: 1 <= shard_tokens <= kMaxShardTokens.
  ShardSetWriter(std::filesystem::path folder, std::string prefix, DType dtype, int64_t shard_tokens,
                 int first_number);

  // Errors as ShardWriter::append.
  void append(std::span<const uint32_t> tokens);
  // Completes the last file (an empty one if there were no tokens).
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
