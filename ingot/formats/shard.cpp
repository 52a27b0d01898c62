#include "ingot/formats/shard.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "ingot/core/error.h"

namespace ingot {
namespace {
static_assert(std::endian::native == std::endian::little, "shards are mapped as little-endian integers");

constexpr int32_t kMagicU16 = 20240520, kVersionU16 = 1;
constexpr int32_t kMagicU32 = 20240801, kVersionU32 = 7;
constexpr size_t kBufferBytes = size_t{1} << 18;

int32_t header_word(std::span<const std::byte> bytes, size_t i) {
  int32_t word;
  std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
  return word;
}

// Describes a file that is not a token shard, by its magic: llm.c's other binary files and compressed files.
std::string_view foreign_kind(int32_t magic) {
  switch (magic) {
    case 20240326:
      return "it is an llm.c model checkpoint";
    case 20240327:
      return "it is an llm.c debug state";
    case 20240328:
      return "it is an llm.c tokenizer";
    case 20240522:
      return "it is an llm.c evaluation file";
    case 20240527:
      return "it is an llm.c optimizer state";
  }
  if ((magic & 0xffff) == 0x8b1f) return "it is gzip-compressed: decompress it first";
  if (magic == static_cast<int32_t>(0xfd2fb528u)) return "it is zstd-compressed: decompress it first";
  return "make shards from text with `ingot data prepare`; if it is nanoGPT's uint16 file without a header, "
         "write nanogpt: before its path; if it is Megatron's, its .idx must lie beside it";
}

ShardInfo parse_headerless(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() % 2 != 0)
    fail(ErrorKind::kData,
         "{}: a headerless uint16 shard has an even number of bytes, this one has {}; copy it again", file,
         bytes.size());
  if (bytes.size() >= 4 && (header_word(bytes, 0) == kMagicU16 || header_word(bytes, 0) == kMagicU32))
    fail(ErrorKind::kData,
         "{}: was given as a headerless shard but has a header (magic {}); drop the nanogpt: prefix", file,
         header_word(bytes, 0));
  return {DType::u16, static_cast<int64_t>(bytes.size() / 2), 0};
}

template <typename T>
void widen(const std::byte* data, int64_t begin, std::span<uint32_t> out) {
  const T* tokens = reinterpret_cast<const T*>(data) + begin;
  for (size_t i = 0; i < out.size(); ++i) out[i] = tokens[i];
}
}  // namespace

ShardInfo parse_shard(std::span<const std::byte> bytes, std::string_view file, ShardLayout layout) {
  if (layout == ShardLayout::kHeaderlessU16) return parse_headerless(bytes, file);
  if (bytes.empty())
    fail(ErrorKind::kData,
         "{}: is empty, a token shard begins with a header of {} bytes; make it "
         "again with `ingot data prepare`",
         file, kShardHeaderBytes);
  const int32_t magic = bytes.size() >= 4 ? header_word(bytes, 0) : 0;
  if (magic != kMagicU16 && magic != kMagicU32)
    fail(ErrorKind::kData,
         "{}: is not a token shard: its magic number is {}, expected {} (uint16) or {} (uint32); {}", file,
         magic, kMagicU16, kMagicU32, foreign_kind(magic));
  if (bytes.size() < kShardHeaderBytes)
    fail(ErrorKind::kData, "{}: is cut off: {} bytes, the header alone has {}; copy it again", file,
         bytes.size(), kShardHeaderBytes);
  const bool is_u16 = magic == kMagicU16;
  const int32_t version = header_word(bytes, 1), wanted_version = is_u16 ? kVersionU16 : kVersionU32;
  if (version != wanted_version)
    fail(ErrorKind::kData,
         "{}: shard version is {}, expected {} for magic {}; write it again with a current tool", file,
         version, wanted_version, magic);
  const int64_t tokens = header_word(bytes, 2);
  const DType dtype = is_u16 ? DType::u16 : DType::u32;
  if (tokens < 0)
    fail(ErrorKind::kData, "{}: the header counts {} tokens, expected 0 to {}; write it again", file, tokens,
         kMaxShardTokens);
  const size_t wanted_bytes = kShardHeaderBytes + static_cast<size_t>(tokens) * size_bytes(dtype);
  if (bytes.size() != wanted_bytes)
    fail(ErrorKind::kData,
         "{}: has {} bytes, expected {} for the {} {} tokens of its header; the file is {}: copy it again",
         file, bytes.size(), wanted_bytes, tokens, name(dtype),
         bytes.size() < wanted_bytes ? "cut off" : "longer than it says");
  return {dtype, tokens, kShardHeaderBytes};
}

TokenShard::TokenShard(const std::filesystem::path& path, ShardLayout layout)
    : file_(path), info_(parse_shard(file_.bytes(), path.string(), layout)) {}

void TokenShard::read(int64_t begin, std::span<uint32_t> out) const {
  INGOT_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= info_.tokens,
              "TokenShard::read: tokens [{}, {}) asked for, {} has {}", begin,
              begin + static_cast<int64_t>(out.size()), path().string(), info_.tokens);
  info_.dtype == DType::u16 ? widen<uint16_t>(data(), begin, out) : widen<uint32_t>(data(), begin, out);
}

void TokenShard::release() const {
  // The mapping is private and only read, so nothing is lost.
  if (!file_.bytes().empty())
    ::madvise(const_cast<std::byte*>(file_.bytes().data()), file_.bytes().size(), MADV_DONTNEED);
}

ShardWriter::ShardWriter(const std::filesystem::path& path, DType dtype) : path_(path), dtype_(dtype) {
  INGOT_CHECK(dtype == DType::u16 || dtype == DType::u32, "ShardWriter: dtype must be u16 or u32, got {}",
              name(dtype));
  file_ = std::make_unique<ReplacedFile>(path);
  buffer_.reserve(kBufferBytes);
  buffer_.resize(kShardHeaderBytes);  // room for the header, which commit() writes
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const uint32_t> tokens) {
  INGOT_CHECK(file_ != nullptr, "ShardWriter::append: {} is already committed", path_.string());
  if (static_cast<int64_t>(tokens.size()) > kMaxShardTokens - tokens_)
    fail(ErrorKind::kData, "{}: a shard holds at most {} tokens; write several", path_.string(),
         kMaxShardTokens);
  const size_t width = size_bytes(dtype_);
  for (const uint32_t token : tokens) {
    if (dtype_ == DType::u16 && token > 0xffff)
      fail(ErrorKind::kData,
           "{}: token id {} at position {} does not fit uint16 (at most 65535); write uint32 shards",
           path_.string(), token, tokens_);
    if (buffer_.size() + width > kBufferBytes) flush();
    const auto bytes = std::bit_cast<std::array<std::byte, 4>>(token);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(width));
    ++tokens_;
  }
}

void ShardWriter::flush() {
  file_->write(std::span<const std::byte>(buffer_));
  buffer_.clear();
}

void ShardWriter::commit() {
  INGOT_CHECK(file_ != nullptr, "ShardWriter::commit: {} is already committed", path_.string());
  flush();
  std::array<int32_t, kShardHeaderBytes / 4> header{};
  header[0] = dtype_ == DType::u16 ? kMagicU16 : kMagicU32;
  header[1] = dtype_ == DType::u16 ? kVersionU16 : kVersionU32;
  header[2] = static_cast<int32_t>(tokens_);
  file_->write_at(0, std::as_bytes(std::span(header)));
  file_->commit();
  file_.reset();
}

}  // namespace ingot
