#include "ingot/formats/safetensors_ranges.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>

#include "ingot/core/error.h"
#include "ingot/core/finite.h"
#include "ingot/formats/xxh3.h"

namespace ingot {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;  // size of one read; a multiple of every element size

template <typename Word>
uint64_t sum_of_words(int64_t first, const std::byte* bytes, int64_t n) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    Word word;
    std::memcpy(&word, bytes + static_cast<size_t>(i) * sizeof word, sizeof word);
    uint64_t x = static_cast<uint64_t>(first + i) * 0x9e3779b97f4a7c15 + word * uint64_t{0xc2b2ae3d27d4eb4f};
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93;
    sum += x ^ x >> 32;
  }
  return sum;
}

// The sum for consecutive elements, the first of which has index `first`.
uint64_t element_sum(int64_t first, std::span<const std::byte> bytes, size_t element_bytes) {
  const auto n = static_cast<int64_t>(bytes.size() / element_bytes);
  switch (element_bytes) {
    case 1:
      return sum_of_words<uint8_t>(first, bytes.data(), n);
    case 2:
      return sum_of_words<uint16_t>(first, bytes.data(), n);
    case 4:
      return sum_of_words<uint32_t>(first, bytes.data(), n);
    default:
      return sum_of_words<uint64_t>(first, bytes.data(), n);
  }
}

}  // namespace

SafetensorsRanges::SafetensorsRanges(std::filesystem::path path, std::span<const SafetensorsSource> tensors)
    : path_(std::move(path)), file_name_(path_.filename().string()), layout_(safetensors_layout(tensors)) {
  for (size_t t = 0; t < tensors.size(); ++t) {
    const SafetensorsSource& tensor = tensors[t];
    const int64_t elements =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    tensors_.push_back({tensor.name, tensor.dtype, layout_.offsets[t], elements, size_bytes(tensor.dtype)});
  }
  sums_.resize(tensors_.size());
}

void SafetensorsRanges::create() const {
  RangeFile::create(path_, layout_.file_bytes);
  RangeFile file(path_);
  file.write(0, std::as_bytes(std::span(layout_.header)));
  file.close();
}

void SafetensorsRanges::open() { file_ = std::make_unique<RangeFile>(path_); }

void SafetensorsRanges::write(size_t tensor, int64_t element, std::span<const std::byte> bytes) {
  const Place& place = tensors_[tensor];
  const auto n = static_cast<int64_t>(bytes.size() / place.element_bytes);
  INGOT_CHECK(element >= 0 && element + n <= place.elements,
              "SafetensorsRanges: {} has {} elements, [{}, {}) was given", place.name, place.elements,
              element, element + n);
  require_finite(file_name_, place.name, place.dtype, element, bytes);
  sums_[tensor] += element_sum(element, bytes, place.element_bytes);
  file_->write(place.offset + static_cast<uint64_t>(element) * place.element_bytes, bytes);
}

const std::vector<uint64_t>& SafetensorsRanges::close() {
  file_->close();
  file_.reset();
  return sums_;
}

uint64_t SafetensorsRanges::verify(std::span<const uint64_t> sums) const {
  std::vector<size_t> order(tensors_.size());  // in file order
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t t) { return std::pair(tensors_[t].offset, tensors_[t].elements); });
  std::vector<uint64_t> found(tensors_.size());
  std::ifstream file(path_, std::ios::binary);
  std::vector<std::byte> block(kBlockBytes);
  Xxh3 hash;
  uint64_t begin = 0;
  for (size_t next = 0; begin < layout_.file_bytes;) {
    const size_t n = std::min<uint64_t>(kBlockBytes, layout_.file_bytes - begin);
    if (!file.read(reinterpret_cast<char*>(block.data()), static_cast<std::streamsize>(n)))
      fail(ErrorKind::kDisk, "{}: cannot be read back at byte {}; the checkpoint is not saved",
           path_.string(), begin);
    hash.add(std::span(block).first(n));
    for (; next < order.size() && tensors_[order[next]].offset < begin + n; ++next) {
      const Place& place = tensors_[order[next]];
      const uint64_t from = std::max(begin, place.offset), to = std::min(begin + n, place.end());
      if (from < to)
        found[order[next]] +=
            element_sum(static_cast<int64_t>((from - place.offset) / place.element_bytes),
                        std::span(block).subspan(from - begin, to - from), place.element_bytes);
      if (place.end() > begin + n) break;
    }
    begin += n;
  }
  for (size_t t = 0; t < tensors_.size(); ++t)
    if (found[t] != sums[t])
      fail(ErrorKind::kDisk,
           "{}: tensor {} is not what the ranks wrote; the checkpoint is not saved, try again",
           path_.string(), tensors_[t].name);
  return hash.value();
}

}  // namespace ingot
