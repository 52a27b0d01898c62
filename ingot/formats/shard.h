// Token shards: .bin files of token ids. The reader maps them; the writer streams them.
//
// Layout (llm.c, modded-nanogpt): 256 little-endian int32 ([0] magic, [1] version, [2] number of tokens,
// the rest 0), followed by the tokens and nothing else. Magic 20240520 version 1 has uint16 tokens
// (GPT-2), magic 20240801 version 7 has uint32 (Llama 3). nanoGPT's train.bin is uint16 tokens without a
// header. It cannot be distinguished from other files, so it is read only on request.
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

// The position of a shard's tokens in its file.
struct ShardInfo {
  DType dtype = DType::u16;  // u16 or u32
  int64_t tokens = 0;
  size_t offset_bytes = 0;
};

// Parses and checks the header of a shard in `bytes`: the magic, the version, and that the count accounts
// for every byte. A kData error names `file`, the found and the expected value, and what to do.
ShardInfo parse_shard(std::span<const std::byte> bytes, std::string_view file,
                      ShardLayout layout = ShardLayout::kHeader);

// The narrowest dtype that holds all ids of a vocabulary: u16 for up to 65,536 ids.
constexpr DType shard_dtype(int64_t vocab_size) { return vocab_size <= 65536 ? DType::u16 : DType::u32; }

// A mapped shard. Only read() copies tokens. Thread-safe for reading.
class TokenShard {
 public:
  // kData errors as for MappedFile and parse_shard.
  explicit TokenShard(const std::filesystem::path& path, ShardLayout layout = ShardLayout::kHeader);

  const std::filesystem::path& path() const { return file_.path(); }
  DType dtype() const { return info_.dtype; }
  int64_t tokens() const { return info_.tokens; }
  // Address of the first token, aligned for dtype(). Valid as long as this object or the one it is moved
  // to lives.
  const std::byte* data() const { return file_.bytes().data() + info_.offset_bytes; }
  // out[i] = token begin + i. REQUIRES: [begin, begin + out.size()) lies in [0, tokens()).
  void read(int64_t begin, std::span<uint32_t> out) const;
  // Releases the page memory that reads have taken; the next read loads it from the file again. Thread-safe.
  void release() const;

 private:
  MappedFile file_;
  ShardInfo info_;
};

// Writes a shard with a header through a ReplacedFile (core/output.h): `path` stays absent or unchanged
// until commit() replaces it by the complete shard. kDisk errors name the file.
class ShardWriter {
 public:
  // REQUIRES: dtype is u16 or u32.
  ShardWriter(const std::filesystem::path& path, DType dtype);
  ~ShardWriter();

  // kData error if an id does not fit dtype, or if there are more than kMaxShardTokens tokens.
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
