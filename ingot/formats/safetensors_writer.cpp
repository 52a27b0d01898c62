#include <algorithm>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/formats/safetensors.h"
#include "ingot/formats/safetensors_detail.h"
#include "ingot/formats/xxh3.h"

namespace ingot {
namespace {

using nlohmann::json;
using safetensors_detail::dims_text;
using safetensors_detail::FileDType;
using safetensors_detail::kFileDTypes;
using safetensors_detail::kMaxHeaderBytes;
using safetensors_detail::kMetadataKey;
using safetensors_detail::tensor_bytes;

size_t file_rank(DType dtype) {
  const auto it = std::ranges::find(kFileDTypes, std::optional(dtype), &FileDType::dtype);
  INGOT_CHECK(it != kFileDTypes.end(), "safetensors has no dtype {}", name(dtype));
  return static_cast<size_t>(it - kFileDTypes.begin());
}

// Quotes and escapes like the reference writer. Throws unless the text is UTF-8.
std::string quoted(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    fail(ErrorKind::kInternal, "write_safetensors: {:?} is not UTF-8", text);
  }
}

uint64_t checked_bytes(const SafetensorsSource& tensor) {
  const std::optional<uint64_t> bytes = tensor_bytes(tensor.shape, 8 * size_bytes(tensor.dtype));
  INGOT_CHECK(bytes.has_value(), "write_safetensors: {}: shape ({}) has a negative dim or too many elements",
              tensor.name, dims_text(tensor.shape));
  return *bytes;
}

// Checks the tensors' names and returns the tensors in file order.
std::vector<const SafetensorsSource*> ordered(std::span<const SafetensorsSource> tensors) {
  std::vector<const SafetensorsSource*> order;
  for (const SafetensorsSource& tensor : tensors) {
    INGOT_CHECK(!tensor.name.empty() && tensor.name != kMetadataKey,
                "write_safetensors: {:?} cannot name a tensor", tensor.name);
    order.push_back(&tensor);
  }
  std::ranges::sort(order, [](const SafetensorsSource* a, const SafetensorsSource* b) {
    const size_t rank_a = file_rank(a->dtype), rank_b = file_rank(b->dtype);
    return rank_a != rank_b ? rank_a > rank_b : a->name < b->name;
  });
  std::vector<std::string_view> names;
  for (const SafetensorsSource* tensor : order) names.push_back(tensor->name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  INGOT_CHECK(twice == names.end(), "write_safetensors: tensor {} is given twice", *twice);
  return order;
}

std::string make_header(std::span<const SafetensorsSource* const> order,
                        const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    std::string pairs;
    for (const auto& [key, value] : metadata)
      pairs += fmt::format("{}{}:{}", pairs.empty() ? "" : ",", quoted(key), quoted(value));
    header += fmt::format("\"{}\":{{{}}}", kMetadataKey, pairs);
  }
  uint64_t begin = 0;
  for (const SafetensorsSource* tensor : order) {
    const uint64_t end = begin + checked_bytes(*tensor);
    header +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    header.size() > 1 ? "," : "", quoted(tensor->name),
                    kFileDTypes[file_rank(tensor->dtype)].name, dims_text(tensor->shape, ","), begin, end);
    begin = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

std::string header_bytes(std::span<const SafetensorsSource* const> order,
                         const std::map<std::string, std::string>& metadata) {
  const std::string text = make_header(order, metadata);
  const uint64_t length = text.size();
  INGOT_CHECK(length <= kMaxHeaderBytes, "write_safetensors: {} tensors need a header above 100 MB",
              order.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

SafetensorsLayout safetensors_layout(std::span<const SafetensorsSource> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const std::vector<const SafetensorsSource*> order = ordered(tensors);
  SafetensorsLayout layout;
  layout.header = header_bytes(order, metadata);
  layout.offsets.resize(tensors.size());
  layout.file_bytes = layout.header.size();
  for (const SafetensorsSource* tensor : order) {
    layout.offsets[static_cast<size_t>(tensor - tensors.data())] = layout.file_bytes;
    layout.file_bytes += checked_bytes(*tensor);
  }
  return layout;
}

SafetensorsWritten write_safetensors(const std::filesystem::path& path,
                                     std::span<const SafetensorsSource> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const std::vector<const SafetensorsSource*> order = ordered(tensors);
  const std::string header = header_bytes(order, metadata);
  OutputFile file(path);
  Xxh3 file_hash, tensor_hash;
  const auto write = [&](std::span<const std::byte> piece) {
    file_hash.add(piece);
    file.write(piece);
  };
  write(std::as_bytes(std::span(header)));
  SafetensorsWritten written;
  for (const SafetensorsSource* tensor : order) {
    tensor_hash.reset();
    uint64_t handed_bytes = 0;
    const ByteSink sink = [&](std::span<const std::byte> piece) {
      handed_bytes += piece.size();
      tensor_hash.add(piece);
      write(piece);
    };
    tensor->stream ? tensor->stream(sink) : sink(tensor->bytes);
    INGOT_CHECK(handed_bytes == checked_bytes(*tensor),
                "write_safetensors: {}: {} ({}) takes {} bytes, got {}", tensor->name, name(tensor->dtype),
                dims_text(tensor->shape), checked_bytes(*tensor), handed_bytes);
    written.tensors.push_back({tensor->name, tensor_hash.value()});
  }
  file.close();
  written.size_bytes = file.written_bytes();
  written.xxh3_64 = file_hash.value();
  return written;
}

}  // namespace ingot
