#include "ingot/formats/jsonl.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "ingot/core/error.h"

namespace ingot {
namespace {
using Json = nlohmann::json;

// Extracts one member from the parser's events and stores nothing else.
class FieldTaker : public nlohmann::json_sax<Json> {
 public:
  explicit FieldTaker(std::string_view field) : field_(field) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary"); }
  bool string(string_t& text) override {
    if (!is_wanted()) return value("a string");
    if (text_) return refuse(fmt::format("the field \"{}\" is there twice; keep one", field_));
    text_ = std::move(text);
    is_field_ = false;
    return true;
  }
  bool key(string_t& name) override {
    is_field_ = depth_ == 1 && name == field_;
    return true;
  }
  bool start_object(size_t) override { return open("an object", true); }
  bool start_array(size_t) override { return open("an array", false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return refuse(fmt::format("column {} is not valid JSON: {}", position, reason(error.what())));
  }

  const std::string& error() const { return error_; }
  std::optional<std::string>& text() { return text_; }

 private:
  bool is_wanted() const { return depth_ == 1 && is_field_; }
  bool refuse(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }
  bool value(const char* kind) {
    if (depth_ == 0) return refuse(fmt::format("holds {}, expected an object", kind));
    if (is_wanted()) return refuse(fmt::format("the field \"{}\" is {}, expected a string", field_, kind));
    return true;
  }
  bool open(const char* kind, bool is_object) {
    if (!(depth_ == 0 && is_object) && !value(kind)) return false;
    if (++depth_ > kMaxJsonlDepth) return refuse(fmt::format("is nested deeper than {}", kMaxJsonlDepth));
    return true;
  }
  bool close() {
    --depth_;
    is_field_ = false;
    return true;
  }
  // The parser's message without its position and without the text it has read, which may be the whole line.
  static std::string reason(std::string_view what) {
    const size_t begin = what.find(" - ");
    if (begin == std::string_view::npos) return std::string(what.substr(0, 160));
    what.remove_prefix(begin + 3);
    return std::string(what.substr(0, std::min<size_t>(what.find("; last read"), 160)));
  }

  std::string_view field_;
  int depth_ = 0;
  bool is_field_ = false;  // the last key of the outermost object was the field
  std::optional<std::string> text_;
  std::string error_;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }
}  // namespace

std::string parse_jsonl_line(std::string_view line, std::string_view field, std::string_view file,
                             int64_t line_number) {
  FieldTaker taker(field);
  const bool is_parsed = Json::sax_parse(line.begin(), line.end(), &taker);
  if (!is_parsed || !taker.error().empty())
    fail(ErrorKind::kData, "{}:{}: {}; correct the line or leave it out", file, line_number, taker.error());
  if (!taker.text())
    fail(ErrorKind::kData, "{}:{}: has no field \"{}\"; name the field that holds the text", file,
         line_number, field);
  if (const size_t nul = taker.text()->find('\0'); nul != std::string::npos)
    fail(ErrorKind::kData,
         "{}:{}: does not look like text: NUL (\\u0000) at offset {} of the field \"{}\"; correct the line "
         "or leave it "
         "out",
         file, line_number, nul, field);
  return std::move(*taker.text());
}

JsonlReader::JsonlReader(const std::filesystem::path& path, std::string field)
    : file_(path), field_(std::move(field)) {
  check_compressed_name(path, file_.text());
  if (compression_of(file_.text()) != Compression::kNone)
    decompressor_ = std::make_unique<Decompressor>(file_.text(), path.string());
}

bool JsonlReader::fill(size_t bytes) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (decompressor_)
    unpack(bytes);
  else if (!is_begun_)
    rest_ = file_.text();
  if (!is_begun_ && rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  is_begun_ = true;
  return !rest_.empty();
}

// Fills the buffer with whole lines.
void JsonlReader::unpack(size_t bytes) {
  constexpr size_t kBlockBytes = size_t{1} << 20;
  buffer_.erase(0, ready_bytes_ - rest_.size());
  ready_bytes_ = rest_.size();
  while (!is_unpacked_ && (buffer_.size() < bytes || ready_bytes_ == 0)) {
    const size_t old_size = buffer_.size();
    check_line_bytes(old_size - ready_bytes_);
    buffer_.resize(old_size + kBlockBytes);
    const size_t count = decompressor_->read(std::span(buffer_).subspan(old_size));
    buffer_.resize(old_size + count);
    is_unpacked_ = count < kBlockBytes;
    const size_t newline = std::string_view(buffer_).substr(old_size).rfind('\n');
    if (newline != std::string_view::npos) ready_bytes_ = old_size + newline + 1;
  }
  if (is_unpacked_) ready_bytes_ = buffer_.size();
  rest_ = std::string_view(buffer_).substr(0, ready_bytes_);
}

size_t JsonlReader::position() const {
  if (decompressor_) return decompressor_->position();
  return is_begun_ ? file_.size_bytes() - rest_.size() : 0;
}

void JsonlReader::check_line_bytes(size_t bytes) const {
  if (bytes > kMaxJsonlLineBytes)
    fail(ErrorKind::kData,
         "{}:{}: the line is longer than {} MiB, the most that is read at once; split the document, or give "
         "it as a plain text file",
         file_.path().string(), line_ + 1, kMaxJsonlLineBytes >> 20);
}

bool JsonlReader::next_line(std::string_view& line) {
  while (!rest_.empty()) {
    const size_t end = rest_.substr(0, kMaxJsonlLineBytes + 1).find('\n');
    line = rest_.substr(0, end);
    if (end == std::string_view::npos) check_line_bytes(rest_.size());
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++line_;
    if (!is_blank(line)) return true;
  }
  return false;
}

bool JsonlReader::next(std::string& text) {
  constexpr size_t kAheadBytes = size_t{1} << 20;
  std::string_view line;
  while (!next_line(line))
    if (!fill(kAheadBytes)) return false;
  text = parse_jsonl_line(line, field_, file_.path().native(), line_);
  return true;
}

}  // namespace ingot
