#include "ingot/formats/megatron.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "ingot/core/error.h"

namespace ingot {
namespace fs = std::filesystem;
using namespace std::string_view_literals;
namespace {

constexpr std::string_view kMagic = "MMIDIDX\0\0"sv;
constexpr size_t kHeaderBytes = kMagic.size() + 8 + 1 + 8 + 8;

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t offset) {
  T number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

MegatronType parse_type(uint8_t code, std::string_view file) {
  switch (code) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
      return static_cast<MegatronType>(code);
    case 6:
    case 7:
      fail(ErrorKind::kData,
           "{}: dtype code {} is a floating-point type, token ids were expected (codes 1 to 5 and 8)", file,
           code);
    default:
      fail(ErrorKind::kData, "{}: dtype code {} is unknown, expected 1 to 5 or 8; the file is damaged", file,
           code);
  }
}

// Reads the tokens of the sequences' lengths and checks that the sequences follow each other. Returns, for
// every sequence and the end, the position of its first token.
std::vector<int64_t> parse_sequences(std::span<const std::byte> lengths, std::span<const std::byte> positions,
                                     int64_t token_bytes, std::string_view file) {
  const size_t count = lengths.size() / sizeof(int32_t);
  std::vector<int64_t> begins = {0};
  begins.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const auto length = number_at<int32_t>(lengths, i * sizeof(int32_t));
    const auto position = number_at<int64_t>(positions, i * sizeof(int64_t));
    if (length < 0)
      fail(ErrorKind::kData, "{}: sequence {} has {} tokens; the file is damaged", file, i, length);
    if (position != begins.back() * token_bytes)
      fail(ErrorKind::kData,
           "{}: sequence {} begins at byte {}, expected {}: sequences must follow each other without gaps; "
           "write the "
           "data set again with Megatron's preprocess_data.py or merge_datasets.py",
           file, i, position, begins.back() * token_bytes);
    begins.push_back(begins.back() + length);
  }
  return begins;
}

template <typename T>
void widen_checked(const std::byte* data, int64_t begin, std::span<uint32_t> out, const fs::path& path) {
  const T* tokens = reinterpret_cast<const T*>(data) + begin;
  for (size_t i = 0; i < out.size(); ++i) {
    const T token = tokens[i];
    if constexpr (std::is_signed_v<T>) {
      if (token < 0 || static_cast<int64_t>(token) > int64_t{UINT32_MAX})
        fail(ErrorKind::kData, "{}: token {} is {}, which is no id; the file is damaged", path.string(),
             begin + static_cast<int64_t>(i), static_cast<int64_t>(token));
    }
    out[i] = static_cast<uint32_t>(token);
  }
}

}  // namespace

int64_t size_bytes(MegatronType type) {
  switch (type) {
    case MegatronType::kU8:
    case MegatronType::kI8:
      return 1;
    case MegatronType::kI16:
    case MegatronType::kU16:
      return 2;
    case MegatronType::kI32:
      return 4;
    case MegatronType::kI64:
      return 8;
  }
  return 0;
}

MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, std::string_view file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic))
    fail(ErrorKind::kData, "{}: does not begin with MMIDIDX, so it is no index of a Megatron data set; {}",
         file,
         text.starts_with("TNTIDX")
             ? "it is an old cached index: write the data set again with --dataset-impl mmap"
             : "copy it again");
  if (bytes.size() < kHeaderBytes)
    fail(ErrorKind::kData, "{}: is cut off: {} bytes, the header alone has {}; copy it again", file,
         bytes.size(), kHeaderBytes);
  if (const auto version = number_at<uint64_t>(bytes, kMagic.size()); version != 1)
    fail(ErrorKind::kData, "{}: has version {}, expected 1", file, version);
  MegatronIndex index;
  index.type = parse_type(number_at<uint8_t>(bytes, kMagic.size() + 8), file);
  const auto sequences = number_at<uint64_t>(bytes, kHeaderBytes - 16);
  const auto documents = number_at<uint64_t>(bytes, kHeaderBytes - 8);
  constexpr size_t kSequenceBytes = sizeof(int32_t) + sizeof(int64_t), kDocumentBytes = sizeof(int64_t);
  const size_t rest = bytes.size() - kHeaderBytes;
  const bool fits =
      sequences <= rest / kSequenceBytes && documents <= (rest - sequences * kSequenceBytes) / kDocumentBytes;
  const size_t left = fits ? rest - sequences * kSequenceBytes - documents * kDocumentBytes : 0;
  if (fits && left > 0 && left == sequences)
    fail(ErrorKind::kData, "{}: is the index of a multimodal data set, text was expected", file);
  if (!fits || left != 0)
    fail(ErrorKind::kData,
         "{}: has {} bytes, which do not fit its {} sequences and {} document indices; copy it again", file,
         bytes.size(), sequences, documents);
  const auto arrays = bytes.subspan(kHeaderBytes);
  const auto lengths = arrays.first(sequences * sizeof(int32_t));
  const auto positions = arrays.subspan(lengths.size(), sequences * sizeof(int64_t));
  const auto indices = arrays.subspan(lengths.size() + positions.size());
  const std::vector<int64_t> begins = parse_sequences(lengths, positions, size_bytes(index.type), file);
  index.tokens = begins.back();
  int64_t before = 0;
  for (size_t i = 0; i < documents; ++i) {
    const auto sequence = number_at<int64_t>(indices, i * kDocumentBytes);
    if (sequence < before || static_cast<uint64_t>(sequence) > sequences)
      fail(ErrorKind::kData, "{}: document index {} is {}, expected {} to {}; the file is damaged", file, i,
           sequence, before, sequences);
    before = sequence;
    const int64_t begin = begins[static_cast<size_t>(sequence)];
    if (begin < index.tokens && (index.document_begins.empty() || index.document_begins.back() < begin))
      index.document_begins.push_back(begin);
  }
  return index;
}

MegatronShard::MegatronShard(const fs::path& path) : file_(path) {
  const fs::path index = index_path(path);
  index_ = parse_megatron_index(MappedFile(index).bytes(), index.string());
  const auto wanted = static_cast<uint64_t>(index_.tokens) * static_cast<uint64_t>(size_bytes(index_.type));
  if (file_.size_bytes() != wanted)
    fail(ErrorKind::kData, "{}: has {} bytes, {} says {} ({} tokens of {}); copy both files again",
         path.string(), file_.size_bytes(), index.string(), wanted, index_.tokens, size_bytes(index_.type));
}

void MegatronShard::read(int64_t begin, std::span<uint32_t> out) const {
  INGOT_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= index_.tokens,
              "MegatronShard::read: tokens [{}, {}) asked for, {} has {}", begin,
              begin + static_cast<int64_t>(out.size()), path().string(), index_.tokens);
  const std::byte* data = file_.bytes().data();
  switch (index_.type) {
    case MegatronType::kU8:
      return widen_checked<uint8_t>(data, begin, out, path());
    case MegatronType::kI8:
      return widen_checked<int8_t>(data, begin, out, path());
    case MegatronType::kI16:
      return widen_checked<int16_t>(data, begin, out, path());
    case MegatronType::kI32:
      return widen_checked<int32_t>(data, begin, out, path());
    case MegatronType::kI64:
      return widen_checked<int64_t>(data, begin, out, path());
    case MegatronType::kU16:
      return widen_checked<uint16_t>(data, begin, out, path());
  }
}

void MegatronShard::release() const {
  // The mapping is private and only read, so nothing is lost.
  if (!file_.bytes().empty())
    ::madvise(const_cast<std::byte*>(file_.bytes().data()), file_.bytes().size(), MADV_DONTNEED);
}

}  // namespace ingot
