#include "ingot/data/text_format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace fs = std::filesystem;
using namespace std::string_view_literals;
namespace {

struct KnownFormat {
  std::string_view bytes;       // first bytes of the file; if empty, only the name decides
  std::string_view extensions;  // " .a .b "
  std::string_view what, fix;
};

constexpr std::string_view kDecompress = "decompress it first";
constexpr std::string_view kToJsonl =
    "write its text as JSON Lines, one {\"text\": \"...\"} per line (.jsonl)";
constexpr std::string_view kFromTable =
    "write its text column as JSON Lines: python3 examples/data/table_to_jsonl.py FILE --column NAME --out "
    "FILE.jsonl.gz (the script is in Ingot's checkout, and in share/doc/ingot of an installed Ingot)";
constexpr std::string_view kToText = "extract its text first, e.g. pdftotext FILE.pdf";

// Formats whose bytes could pass for text, or that deserve a clearer message than "NUL byte".
constexpr std::array kKnownFormats = {
    KnownFormat{"\x1f\x8b"sv, " .gz .tgz ", "gzip-compressed twice", kDecompress},
    KnownFormat{"\x28\xb5\x2f\xfd"sv, " .zst .zstd ", "zstd-compressed twice", kDecompress},
    KnownFormat{"\xfd\x37zXZ"sv, " .xz ", "xz-compressed", kDecompress},
    KnownFormat{{}, " .bz2 .lz4 .br .lzma ", "compressed", kDecompress},
    KnownFormat{"PK\x03\x04"sv, " .zip .docx .xlsx .odt .epub .npz ", "a zip archive", kDecompress},
    KnownFormat{{}, " .tar .7z .rar ", "an archive", "unpack it first"},
    KnownFormat{"PAR1"sv, " .parquet ", "a Parquet table", kFromTable},
    KnownFormat{"ARROW1"sv, " .arrow .feather ", "an Arrow table", kFromTable},
    KnownFormat{"MMIDIDX"sv, " .idx ", "a Megatron index", "give the text that it was made from"},
    KnownFormat{"\x93NUMPY"sv, " .npy ", "a NumPy array", "give text, or token shards (.bin)"},
    KnownFormat{"\x89HDF"sv, " .h5 .hdf5 ", "an HDF5 file", kToJsonl},
    KnownFormat{"SQLite format 3"sv, " .sqlite .db ", "a database", kToJsonl},
    KnownFormat{"GGUF"sv, " .gguf .safetensors .pt .pth .ckpt .onnx ", "a model", "give text"},
    KnownFormat{{}, " .pkl .pickle ", "a Python pickle", kToJsonl},
    KnownFormat{"%PDF-"sv, " .pdf ", "a PDF document", kToText},
    KnownFormat{"\x89PNG"sv, " .png .jpg .jpeg .gif .webp .bmp .tif .tiff .ico ", "an image", "leave it out"},
    KnownFormat{{}, " .mp3 .wav .ogg .flac .mp4 .mkv .avi .webm ", "sound or video", "leave it out"},
    KnownFormat{{}, " .doc .xls .ppt .pptx .rtf ", "an office document", "extract its text first"},
};

constexpr size_t kTarMagicOffset = 257;

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

void refuse_table(const std::string& file) {
  fail(ErrorKind::kData,
       "{}: is a table (CSV), not prose; write it as JSON Lines, e.g. python3 -c 'import csv,json,sys; "
       "[print(json.dumps(row)) for row in csv.DictReader(sys.stdin)]' <FILE.csv >FILE.jsonl, and name the "
       "column with the text field (data.text_field, --text-field) unless it is \"text\"",
       file);
}

TextFormat json_format(const std::string& file, const TextHead& head) {
  const std::string_view text = head.text;
  const size_t mark = byte_order_mark_bytes(text);
  const size_t first = mark > 0 ? mark : text.find_first_not_of(" \t\r\n");
  if (first >= text.size()) return TextFormat::kJsonLines;  // the file has no line
  if (text[first] == '{') {
    const size_t end = text.find('\n', first);
    const std::string_view line = text.substr(first, end - first);
    if (end == std::string_view::npos && !head.is_whole) return TextFormat::kJsonLines;
    if (line[line.find_last_not_of(" \t\r")] == '}') return TextFormat::kJsonLines;
    fail(ErrorKind::kData,
         "{}: is one JSON value over several lines; give one object per line (JSON Lines), e.g. jq -c . "
         "FILE.json >FILE.jsonl",
         file);
  }
  if (text[first] == '[')
    fail(ErrorKind::kData,
         "{}: is a JSON array; give one object per line (JSON Lines), e.g. jq -c '.[]' FILE.json "
         ">FILE.jsonl",
         file);
  fail(ErrorKind::kData, "{}: is not JSON with text: it begins with '{}'; {}", file, text[first], kToJsonl);
}

// Refuses UTF-16, with a byte order mark or with a NUL in every other of the first bytes.
void refuse_utf16(const std::string& file, std::string_view text) {
  const std::string_view head = text.substr(0, 64);
  const auto nuls = [&](size_t first) {
    size_t count = 0;
    for (size_t i = first; i < head.size(); i += 2) count += head[i] == '\0';
    return count;
  };
  const size_t half = head.size() / 2;
  const bool is_little = half >= 2 && nuls(0) == 0 && nuls(1) == half;
  const bool is_big = half >= 2 && nuls(1) == 0 && nuls(0) == head.size() - half;
  const bool has_mark = head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff");
  if (has_mark || is_little || is_big)
    fail(ErrorKind::kData,
         "{}: looks like UTF-16; convert the file, e.g. iconv -f UTF-16{} -t UTF-8 {} >FILE", file,
         has_mark    ? ""
         : is_little ? "LE"
                     : "BE",
         file);
}

}  // namespace

TextFormat text_format(const TextHead& head) {
  const std::string file = head.path.string(), extension = lower_extension(head.name);
  const std::string_view text = head.text;
  refuse_utf16(file, text);
  if (extension == ".bin")
    fail(ErrorKind::kData,
         "{}: is a token shard by its name, text was expected; name shards themselves, e.g. train_*.bin, or "
         "the "
         "folder that `ingot data prepare` wrote",
         file);
  if (extension == ".jsonl" || extension == ".ndjson") return TextFormat::kJsonLines;
  if (text.size() == byte_order_mark_bytes(text))
    fail(ErrorKind::kData, "{}: is empty; give a file with text", file);
  if (extension == ".csv" || extension == ".tsv") refuse_table(file);
  if (extension == ".json") return json_format(file, head);
  const bool has_nul = text.substr(0, 4096).find('\0') != std::string_view::npos;
  for (const KnownFormat& known : kKnownFormats) {
    // Some of these first bytes are ASCII. Only the name, or a NUL byte near them, distinguishes them
    // from prose.
    const bool is_ascii =
        std::all_of(known.bytes.begin(), known.bytes.end(), [](char c) { return c >= ' '; });
    const bool is_begun = !known.bytes.empty() && text.starts_with(known.bytes) &&
                          (!is_ascii || has_nul || known.bytes == "%PDF-"sv);
    const bool is_named =
        !extension.empty() && known.extensions.find(" " + extension + " ") != std::string_view::npos;
    if (is_begun || is_named) fail(ErrorKind::kData, "{}: is {}; {}", file, known.what, known.fix);
  }
  if (text.size() > kTarMagicOffset && text.substr(kTarMagicOffset).starts_with("ustar"))
    fail(ErrorKind::kData, "{}: is a tar archive; unpack it first", file);
  return TextFormat::kPlain;
}

namespace {

[[noreturn]] void fail_nul(const std::string& file, size_t offset) {
  fail(ErrorKind::kData,
       "{}: does not look like text: NUL byte at offset {}; give UTF-8 text, JSON Lines (.jsonl) or token "
       "shards (.bin)",
       file, offset);
}

[[noreturn]] void fail_not_utf8(const std::string& file, int64_t line, char byte, size_t offset) {
  fail(ErrorKind::kData,
       "{}:{}: is not UTF-8: byte 0x{:02x} at offset {}; convert the file, e.g. iconv -f LATIN1 -t UTF-8",
       file, line, static_cast<uint8_t>(byte), offset);
}

}  // namespace

size_t TextBlockCheck::check(std::string_view block, bool is_last) {
  if (const void* nul = std::memchr(block.data(), 0, block.size()))
    fail_nul(file_, offset_ + static_cast<size_t>(static_cast<const char*>(nul) - block.data()));
  const size_t valid_end = valid_utf8_end(block, 0);
  newlines_ += std::count(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(valid_end), '\n');
  // Up to three bytes may be the beginning of a character.
  if (valid_end < block.size() && (is_last || block.size() - valid_end >= 4))
    fail_not_utf8(file_, 1 + newlines_, block[valid_end], offset_ + valid_end);
  offset_ += valid_end;
  return valid_end;
}

size_t check_text(std::string_view text, size_t begin, size_t end, const std::string& file) {
  if (const void* nul = std::memchr(text.data() + begin, 0, end - begin))
    fail_nul(file, static_cast<size_t>(static_cast<const char*>(nul) - text.data()));
  const size_t valid_end = valid_utf8_end(text.substr(0, end), begin);
  if (valid_end == end) return end;
  if (end < text.size() && end - valid_end < 4 && decode_utf8(text, valid_end).is_valid()) return valid_end;
  fail_not_utf8(file,
                1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(valid_end), '\n'),
                text[valid_end], valid_end);
}

}  // namespace ingot
