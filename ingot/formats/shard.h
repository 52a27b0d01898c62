// Token shards: .bin files of token ids, mapped for reading, streamed for writing.
//
// Layout (llm.c, modded-nanogpt): 256 little-endian int32, [0] magic, [1] version, [2] number of tokens,
// the rest 0; then the tokens and nothing after them. Magic 20240520 version 1 holds uint16 tokens (GPT-2),
// magic 20240801 version 7 uint32 (Llama 3). nanoGPT's train.bin is uint16 tokens without a header; nothing
// tells it from any other file, so it is read only when asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ingot/core/dtype.h"
#include "ingot/core/file.h"
#include "ingot/core/output.h"

namespace ingot {

inline constexpr size_t kShardHeaderBytes = 1024;
inline constexpr int64_t kMaxShardTokens = 0x7fffffff;  // the header's count is an int32

enum class ShardLayout { kHeader, kHeaderlessU16 };

// Where the tokens of a shard stand.
struct ShardInfo {
  DType dtype = DType::u16;  // u16 or u32
  int64_t tokens = 0;
  size_t offset_bytes = 0;
};

// Reads and checks the header of a shard held in `bytes`: magic, version and that the count accounts for
// every byte. kData error that names `file`, the value found, the value expected and what to do.
ShardInfo parse_shard(std::span<const std::byte> bytes, std::string_view file,
                      ShardLayout layout = ShardLayout::kHeader);

// The narrowest type that holds the ids of a vocabulary: u16 up to 65,536 ids.
constexpr DType shard_dtype(int64_t vocab_size) { return vocab_size <= 65536 ? DType::u16 : DType::u32; }

// One shard, mapped; tokens are copied only by read(). Reading is thread-safe.
class TokenShard {
 public:
  // kData errors as MappedFile and parse_shard.
  explicit TokenShard(const std::filesystem::path& path, ShardLayout layout = ShardLayout::kHeader);

  const std::filesystem::path& path() const { return file_.path(); }
  DType dtype() const { return info_.dtype; }
  int64_t tokens() const { return info_.tokens; }
  // The first token's address, aligned for dtype(); valid as long as this object or what it is moved to.
  const std::byte* data() const { return file_.bytes().data() + info_.offset_bytes; }
  // out[i] = token begin + i. REQUIRES: [begin, begin + out.size()) lies in [0, tokens()).
  void read(int64_t begin, std::span<uint32_t> out) const;
  // Lets go of the memory that reading took; the next read takes it from the file again. Thread-safe.
  void release() const;

 private:
  MappedFile file_;
  ShardInfo info_;
};

// Writes one shard with a header, by a ReplacedFile (core/output.h): `path` is either absent (or as before)
// or whole, and becomes whole with commit(). kDisk errors name the file.
class ShardWriter {
 public:
  // dtype: u16 or u32.
  ShardWriter(const std::filesystem::path& path, DType dtype);
  ~ShardWriter();

  // kData error for an id that dtype cannot hold, or for more than kMaxShardTokens tokens.
  void append(std::span<const uint32_t> tokens);
  void commit();
  int64_t tokens() const { return tokens_; }

 private:
  void flush();

  std::filesystem::path path_;
  DType dtype_;
  std::unique_ptr<ReplacedFile> file_;
  std::vector<std::byte> buffer_;
  int64_t tokens_ = 0;
};

}  // namespace ingot
