#include "ingot/formats/compressed.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string>

#include "ingot/core/error.h"

#ifdef INGOT_WITH_ZLIB
#include <zlib.h>
#endif
#ifdef INGOT_WITH_ZSTD
#include <zstd.h>
#endif

namespace ingot {
namespace fs = std::filesystem;
using namespace std::string_view_literals;
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b"sv, kZstdMagic = "\x28\xb5\x2f\xfd"sv;

std::string compressed_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array kNames = {".gz"sv, ".tgz"sv, ".zst"sv, ".zstd"sv};
  return std::ranges::find(kNames, extension) == kNames.end() ? std::string() : extension;
}

// A skippable frame may come first; pzstd writes one.
bool is_skippable_frame(std::string_view bytes) {
  return bytes.size() >= 4 && (static_cast<uint8_t>(bytes[0]) & 0xf0) == 0x50 &&
         bytes.substr(1, 3) == "\x2a\x4d\x18"sv;
}

}  // namespace

Compression compression_of(std::string_view bytes) {
  if (bytes.starts_with(kGzipMagic)) return Compression::kGzip;
  if (bytes.starts_with(kZstdMagic) || is_skippable_frame(bytes)) return Compression::kZstd;
  return Compression::kNone;
}

bool has_compressed_name(const fs::path& path) { return !compressed_extension(path).empty(); }

fs::path name_inside(const fs::path& path) {
  const std::string extension = compressed_extension(path);
  if (extension.empty()) return path;
  fs::path inside = path;
  return inside.replace_extension(extension == ".tgz" ? ".tar" : "");
}

void check_compressed_name(const fs::path& path, std::string_view bytes) {
  if (!has_compressed_name(path) || compression_of(bytes) != Compression::kNone) return;
  if (bytes.empty()) fail(ErrorKind::kData, "{}: is empty; copy it again", path.string());
  fail(ErrorKind::kData,
       "{}: is neither gzip nor zstd, although its name ends in {} (it begins with byte 0x{:02x}); it may be "
       "a failed "
       "download: fetch it again, or rename it",
       path.string(), path.extension().string(), static_cast<uint8_t>(bytes[0]));
}

// Codec is the base of both decoders. It keeps the position and throws errors that name it.
class Decompressor::Codec {
 public:
  Codec(std::string_view bytes, std::string label) : bytes_(bytes), label_(std::move(label)) {}
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // Unpacks some bytes into `out`, which is not empty; 0 at the end.
  virtual size_t unpack(std::span<char> out) = 0;

  size_t read(std::span<char> out) {
    size_t filled = 0;
    while (filled < out.size()) {
      const size_t count = unpack(out.subspan(filled));
      if (count == 0) break;
      filled += count;
      unpacked_ += count;
    }
    return filled;
  }
  size_t position() const { return position_; }

 protected:
  std::string_view rest() const { return bytes_.substr(position_); }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::kData,
         "{}: {} at byte {} of {}, after {} unpacked bytes; copy the file again, or test it with `{} -t`",
         label_, what, position_, bytes_.size(), unpacked_, tool());
  }
  [[noreturn]] void refuse_cut() const { refuse("the compressed data are cut off"); }
  virtual const char* tool() const = 0;

  std::string_view bytes_;
  std::string label_;
  size_t position_ = 0;
  uint64_t unpacked_ = 0;
};

#ifdef INGOT_WITH_ZLIB
class Decompressor::GzipCodec : public Codec {
 public:
  GzipCodec(std::string_view bytes, std::string label) : Codec(bytes, std::move(label)) {
    constexpr int kGzipOnly = 16;  // added to the window bits
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipCodec() override { inflateEnd(&stream_); }

  size_t unpack(std::span<char> out) override {
    constexpr size_t kMax = size_t{1} << 30;  // zlib counts in unsigned int
    if (is_between_members_ && !begin_member()) return 0;
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), kMax));
    const uInt room = stream_.avail_out;
    while (stream_.avail_out == room) {
      const std::string_view input = rest().substr(0, kMax);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
      stream_.avail_in = static_cast<uInt>(input.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      position_ += input.size() - stream_.avail_in;
      if (result == Z_STREAM_END) {
        is_between_members_ = true;
        if (stream_.avail_out == room && !begin_member()) return 0;
        continue;
      }
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      const bool is_stuck = result == Z_BUF_ERROR || (result == Z_OK && rest().empty());
      if (is_stuck && stream_.avail_out == room) refuse_cut();
      if (result != Z_OK && result != Z_BUF_ERROR)
        refuse(fmt::format("the gzip data are damaged ({})", stream_.msg ? stream_.msg : "unknown"));
    }
    return room - stream_.avail_out;
  }

 private:
  const char* tool() const override { return "gzip"; }
  // Returns false at the end of the file. Zeros after the last member are padding, which gzip ignores too.
  bool begin_member() {
    if (rest().find_first_not_of('\0') == std::string_view::npos) return false;
    if (!rest().starts_with(kGzipMagic)) refuse("something other than gzip data follows");
    inflateReset(&stream_);
    is_between_members_ = false;
    return true;
  }

  z_stream stream_ = {};
  bool is_between_members_ = false;
};
#endif

#ifdef INGOT_WITH_ZSTD
class Decompressor::ZstdCodec : public Codec {
 public:
  ZstdCodec(std::string_view bytes, std::string label)
      : Codec(bytes, std::move(label)), stream_(ZSTD_createDStream()) {
    if (!stream_) throw std::bad_alloc();
    // zstd --long=31 is common for large dumps; only such files need the memory.
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~ZstdCodec() override { ZSTD_freeDStream(stream_); }

  size_t unpack(std::span<char> out) override {
    ZSTD_outBuffer output = {out.data(), out.size(), 0};
    while (output.pos == 0) {
      if (rest().empty() && is_frame_done_) return 0;
      const std::string_view before = rest();
      ZSTD_inBuffer input = {before.data(), before.size(), 0};
      const size_t result = ZSTD_decompressStream(stream_, &output, &input);
      position_ += input.pos;
      if (ZSTD_isError(result))
        refuse(fmt::format("the zstd data are damaged ({})", ZSTD_getErrorName(result)));
      is_frame_done_ = result == 0;
      if (output.pos == 0 && !is_frame_done_ && input.pos == 0) refuse_cut();
    }
    return output.pos;
  }

 private:
  const char* tool() const override { return "zstd"; }

  ZSTD_DStream* stream_;
  bool is_frame_done_ = true;
};
#endif

namespace {
// Only a build without a library calls this.
[[maybe_unused, noreturn]] void fail_built_without(const std::string& label, const char* library,
                                                   const char* package) {
  fail(ErrorKind::kUsage,
       "{}: this program was built without {}; install {} and build again, or unpack the file", label,
       library, package);
}
}  // namespace

Decompressor::Decompressor(std::string_view bytes, std::string label) {
  if (compression_of(bytes) == Compression::kZstd) {
#ifdef INGOT_WITH_ZSTD
    codec_ = std::make_unique<ZstdCodec>(bytes, std::move(label));
#else
    fail_built_without(label, "zstd", "libzstd-dev");
#endif
    return;
  }
#ifdef INGOT_WITH_ZLIB
  codec_ = std::make_unique<GzipCodec>(bytes, std::move(label));
#else
  fail_built_without(label, "zlib", "zlib1g-dev");
#endif
}

Decompressor::~Decompressor() = default;
Decompressor::Decompressor(Decompressor&&) noexcept = default;

size_t Decompressor::read(std::span<char> out) { return codec_->read(out); }
size_t Decompressor::position() const { return codec_->position(); }

}  // namespace ingot
