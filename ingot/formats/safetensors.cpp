#include "ingot/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ingot/core/error.h"
#include "ingot/formats/safetensors_detail.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using safetensors_detail::dims_text;
using safetensors_detail::FileDType;
using safetensors_detail::kFileDTypes;
using safetensors_detail::kMaxHeaderBytes;
using safetensors_detail::kMetadataKey;
using safetensors_detail::tensor_bytes;

constexpr size_t kMaxRank = 64;

const FileDType* find_dtype(std::string_view name) {
  const auto it = std::ranges::find(kFileDTypes, name, &FileDType::name);
  return it == kFileDTypes.end() ? nullptr : &*it;
}

// One tensor's entry in the header, as parsed.
struct HeaderEntry {
  std::string name;
  const FileDType* dtype = nullptr;
  std::vector<int64_t> shape;
  std::array<uint64_t, 2> offsets{};  // [begin, end) in the data
};

// Parses the header's JSON event by event, so that duplicate keys are detected and nothing deeper than
// the format allows is built.
class HeaderParser : public nlohmann::json_sax<json> {
 public:
  explicit HeaderParser(const std::string& label) : label_(label) {}

  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;

  [[noreturn]] void refuse(std::string_view what) const {
    const std::string where = state_ == State::kMetadata ? ": __metadata__"
                              : depth_ >= 2 ? fmt::format(": tensor {:?}", shortened(entry_.name))
                                            : "";
    fail(ErrorKind::kData, "{}{}: {}; the file is damaged or not safetensors, fetch or export it again",
         label_, where, what);
  }

  bool start_object(size_t) override {
    if (depth_ == 0) {
      state_ = State::kRoot;
    } else if (depth_ == 1 && key_ == kMetadataKey) {
      if (has_metadata_) refuse("__metadata__ is given twice");
      has_metadata_ = true;
      state_ = State::kMetadata;
    } else if (depth_ == 1) {
      if (entries.size() >= SafetensorsFile::kMaxTensors)
        refuse(fmt::format("more than {} tensors", SafetensorsFile::kMaxTensors));
      entry_ = {};
      entry_.name = key_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      state_ = State::kEntry;
    } else {
      refuse("an object where a dtype, shape or data_offsets is wanted");
    }
    ++depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    if (state_ == State::kEntry) {
      ++depth_;  // so that errors still name the tensor
      if (!has_dtype_) refuse("dtype is missing");
      if (!has_shape_) refuse("shape is missing");
      if (!has_offsets_) refuse("data_offsets is missing");
      --depth_;
      entries.push_back(std::move(entry_));
    }
    state_ = State::kRoot;
    return true;
  }

  bool key(std::string& key) override {
    if (state_ == State::kEntry) {
      bool* seen = key == "dtype"          ? &has_dtype_
                   : key == "shape"        ? &has_shape_
                   : key == "data_offsets" ? &has_offsets_
                                           : nullptr;
      if (!seen)
        refuse(fmt::format("unknown key {:?}, only dtype, shape and data_offsets are known", shortened(key)));
      if (*seen) refuse(fmt::format("{} is given twice", key));
      *seen = true;
    }
    key_ = std::move(key);
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != State::kEntry || key_ == "dtype") refuse("an array where none is wanted");
    state_ = key_ == "shape" ? State::kShape : State::kOffsets;
    offsets_seen_ = 0;
    ++depth_;
    return true;
  }

  bool end_array() override {
    if (state_ == State::kOffsets && offsets_seen_ != 2) refuse("data_offsets must be two numbers");
    state_ = State::kEntry;
    --depth_;
    return true;
  }

  bool string(std::string& text) override {
    if (state_ == State::kMetadata) {
      if (!metadata.emplace(key_, text).second)
        refuse(fmt::format("key {:?} is given twice", shortened(key_)));
    } else if (state_ == State::kEntry && key_ == "dtype") {
      entry_.dtype = find_dtype(text);
      if (!entry_.dtype) refuse(fmt::format("unknown dtype {:?}", shortened(text)));
    } else {
      refuse("a string where none is wanted");
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (state_ == State::kShape) {
      if (entry_.shape.size() >= kMaxRank) refuse(fmt::format("more than {} dims", kMaxRank));
      if (value > static_cast<uint64_t>(INT64_MAX)) refuse(fmt::format("dim {} is past 2^63", value));
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::kOffsets) {
      if (offsets_seen_ >= 2) refuse("data_offsets must be two numbers");
      entry_.offsets[offsets_seen_++] = value;
    } else {
      refuse("a number where none is wanted");
    }
    return true;
  }

  bool number_integer(int64_t value) override { refuse(fmt::format("negative number {}", value)); }
  bool number_float(double, const std::string& text) override {
    refuse(fmt::format("number {} is not a whole number below 2^64", shortened(text)));
  }
  bool null() override { refuse("a null where none is wanted"); }
  bool boolean(bool) override { refuse("a boolean where none is wanted"); }
  bool binary(json::binary_t&) override { refuse("binary data in the header"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    refuse(fmt::format("header is not JSON in UTF-8 at its byte {} ({})", position, shortened(error.what())));
  }

 private:
  enum class State { kRoot, kMetadata, kEntry, kShape, kOffsets };

  static std::string_view shortened(std::string_view text) { return text.substr(0, 200); }

  const std::string& label_;
  State state_ = State::kRoot;
  int depth_ = 0;
  std::string key_;  // the latest key, at any depth
  HeaderEntry entry_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  size_t offsets_seen_ = 0;
};

// Returns the header's text. kData error if its length or its first byte is wrong.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& label) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::kData, "{}: {}; the file is damaged or not safetensors, fetch or export it again", label,
         what);
  };
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes)
    refuse(fmt::format("{} bytes are too few for a header length", bytes.size()));
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes == 0) refuse("header length is 0");
  if (header_bytes > kMaxHeaderBytes)
    refuse(fmt::format("header length {} is above the format's {}", header_bytes, kMaxHeaderBytes));
  if (header_bytes > bytes.size() - sizeof header_bytes)
    refuse(
        fmt::format("header length {} is past the end of the file of {} bytes", header_bytes, bytes.size()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes,
                              header_bytes);
  if (text[0] != '{') refuse("header does not begin with '{'");
  // The JSON parser takes a NUL for the end of its input and would ignore what follows.
  if (text.find('\0') != text.npos) refuse("header holds a NUL byte");
  return text;
}

}  // namespace

int64_t SafetensorsEntry::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string SafetensorsEntry::shape_text() const { return fmt::format("({})", dims_text(shape)); }

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path), label_(path.string()) {
  parse(file_.bytes());
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, const std::string& label) : label_(label) {
  parse(bytes);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  const std::string_view text = header_text(bytes, label_);
  HeaderParser header(label_);
  json::sax_parse(text.begin(), text.end(), &header);

  const std::span<const std::byte> data = bytes.subspan(sizeof(uint64_t) + text.size());
  std::ranges::sort(header.entries, {}, [](const HeaderEntry& e) { return std::pair(e.offsets, e.name); });
  uint64_t end = 0;  // end of the tensors so far
  for (HeaderEntry& entry : header.entries) {
    const auto refuse = [&](const std::string& what) {
      fail(ErrorKind::kData,
           "{}: tensor {:?}: {}; the file is damaged or not safetensors, fetch or export it again", label_,
           entry.name.substr(0, 200), what);
    };
    const auto [from, to] = entry.offsets;
    if (from > to) refuse(fmt::format("data_offsets [{}, {}] run backwards", from, to));
    if (to > data.size())
      refuse(fmt::format("data_offsets [{}, {}] are past the end of the {} bytes of data", from, to,
                         data.size()));
    if (from < end)
      refuse(fmt::format("data_offsets [{}, {}] overlap the tensor that ends at {}", from, to, end));
    if (from > end) refuse(fmt::format("data_offsets [{}, {}] leave a hole after byte {}", from, to, end));
    const std::optional<uint64_t> wanted = tensor_bytes(entry.shape, entry.dtype->bits);
    if (!wanted) refuse(fmt::format("shape [{}] has too many elements", dims_text(entry.shape)));
    if (*wanted != to - from)
      refuse(fmt::format("{} [{}] takes {} bytes, data_offsets [{}, {}] give {}", entry.dtype->name,
                         dims_text(entry.shape), *wanted, from, to, to - from));
    end = to;
    tensors_.push_back({std::move(entry.name), entry.dtype->name, entry.dtype->dtype, std::move(entry.shape),
                        data.subspan(from, to - from)});
  }
  if (end != data.size())
    fail(ErrorKind::kData,
         "{}: {} bytes after the last tensor; the file is damaged, fetch or export it again", label_,
         data.size() - end);

  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  const auto name_of = [this](size_t i) -> const std::string& { return tensors_[i].name; };
  std::ranges::sort(by_name_, {}, name_of);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name_of);
  if (twice != by_name_.end())
    fail(ErrorKind::kData, "{}: tensor {:?} is given twice; fetch or export the file again", label_,
         name_of(*twice).substr(0, 200));
  metadata_ = std::move(header.metadata);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(by_name_, name, {},
                                           [this](size_t i) -> std::string_view { return tensors_[i].name; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

const SafetensorsEntry& SafetensorsFile::get(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry)
    fail(ErrorKind::kData, "{}: tensor {:?} is missing; give a checkpoint of the same model", label_, name);
  return *entry;
}

}  // namespace ingot
