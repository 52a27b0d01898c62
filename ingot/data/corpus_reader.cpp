#include "ingot/data/corpus_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/corpus.h"
#include "ingot/data/text_format.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr size_t kDocumentsAtOnce = 16384;  // maximum per batch; bounds the number of small documents
constexpr size_t kFilesAtOnce = 1024;

void check_whole_text(const MappedFile& file) {
  const std::string_view text = file.text();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end =
        check_text(text, begin, std::min(text.size(), begin + kBatchBytes), file.path().string());
    if (text.size() > kBatchBytes) release_pages(text.substr(begin, end - begin));
    begin = end;
  }
}

// Returns the length of the whole characters at the beginning of a block of UTF-8.
size_t character_cut(std::string_view block) {
  for (size_t back = 1; back <= std::min<size_t>(3, block.size()); ++back) {
    const auto byte = static_cast<uint8_t>(block[block.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? block.size() - back : block.size();
  }
  return block.size();
}

int64_t file_bytes(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

}  // namespace

UnpackedText::UnpackedText(MappedFile file, bool checks_text)
    : file_(std::move(file)), decompressor_(file_.text(), file_.path().string()) {
  if (checks_text) check_.emplace(file_.path().string());
}

bool UnpackedText::read(size_t bytes, std::string& text) {
  const size_t before = text.size();
  text += cut_;
  const size_t begin = text.size();
  text.resize(begin + bytes);
  const size_t count = decompressor_.read(std::span(text).subspan(begin));
  text.resize(begin + count);
  const bool is_last = count < bytes;
  const std::string_view block = std::string_view(text).substr(before);
  const size_t whole = check_ ? check_->check(block, is_last) : is_last ? block.size() : character_cut(block);
  cut_ = block.substr(whole);
  text.resize(before + whole);
  return !is_last;
}

void release_pages(std::string_view text) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Pages that are only partly inside `text` stay resident.
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(text.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(text.data() + text.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

size_t character_begin(std::string_view text, size_t i) {
  while (i < text.size() && (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80) ++i;
  return std::min(i, text.size());
}

CorpusReader::CorpusReader(std::span<const std::string> specs, std::string jsonl_field, bool checks_text)
    : jsonl_field_(std::move(jsonl_field)), checks_text_(checks_text) {
  for (const std::string& spec : specs) {
    if (spec.starts_with("builtin:")) {
      entries_.push_back({spec, {}});
      continue;
    }
    for (fs::path& path : expand_paths(std::span(&spec, 1))) {
      bytes_ += file_bytes(path);
      entries_.push_back({{}, std::move(path)});
    }
  }
}

bool CorpusReader::next(std::vector<ReadDocument>& batch) {
  batch.clear();
  batch_bytes_ = 0;
  if (held_) {
    batch.push_back(std::move(*held_));
    held_.reset();
    return true;
  }
  size_t files = 0;
  while (batch_bytes_ < kBatchBytes && batch.size() < kDocumentsAtOnce && files < kFilesAtOnce && !held_) {
    if (unpacked_) {
      if (!batch.empty()) break;
      batch.push_back(next_part());
      return true;
    }
    if (lines_) {
      if (!read_lines(batch)) lines_.reset();
    } else if (next_entry_ < entries_.size()) {
      open(entries_[next_entry_++], batch);
      ++files;
    } else {
      break;
    }
  }
  if (batch.empty() && held_) return next(batch);
  return !batch.empty();
}

void CorpusReader::open(const Entry& entry, std::vector<ReadDocument>& batch) {
  if (entry.builtin.empty()) return open_file(entry.path, batch);
  for (const Document& document : builtin_documents(entry.builtin)) {
    batch.push_back({document.name, std::string(document.text), std::nullopt});
    batch_bytes_ += document.text.size();
  }
}

void CorpusReader::open_file(const fs::path& path, std::vector<ReadDocument>& batch) {
  MappedFile file(path);
  check_compressed_name(path, file.text());
  if (compression_of(file.text()) != Compression::kNone) return open_compressed(std::move(file), batch);
  if (text_format({.path = path, .name = path, .text = file.text()}) == TextFormat::kJsonLines)
    return open_lines(path);
  if (checks_text_) check_whole_text(file);
  bytes_read_ += static_cast<int64_t>(file.size_bytes());
  batch_bytes_ += file.size_bytes();
  ReadDocument document{path.string(), {}, std::move(file)};
  if (document.view().size() >= kLongDocumentBytes)
    held_ = std::move(document);
  else
    batch.push_back(std::move(document));
}

void CorpusReader::open_lines(const fs::path& path) {
  lines_ = std::make_unique<JsonlReader>(path, jsonl_field_);
  has_lines_text_ = false;
}

void CorpusReader::open_compressed(MappedFile file, std::vector<ReadDocument>& batch) {
  const fs::path path = file.path();
  std::string head(kLongDocumentBytes, '\0');
  {
    Decompressor decompressor(file.text(), path.string());
    head.resize(decompressor.read(std::span(head)));
  }
  const bool is_whole = head.size() < kLongDocumentBytes;
  if (text_format({.path = path, .name = name_inside(path), .text = head, .is_whole = is_whole}) ==
      TextFormat::kJsonLines)
    return open_lines(path);
  UnpackedText text(std::move(file), checks_text_);
  if (!is_whole) {
    unpacked_.emplace(std::move(text));
    unpacked_begins_ = true;
    return;
  }
  ReadDocument document{.name = path.string(), .text = {}, .file = {}};
  while (text.read(kLongDocumentBytes, document.text)) {
  }
  document.text.erase(0, byte_order_mark_bytes(document.text));
  bytes_read_ += static_cast<int64_t>(text.file().size_bytes());
  batch_bytes_ += document.text.size();
  batch.push_back(std::move(document));
}

// Returns the next part of the long compressed file.
ReadDocument CorpusReader::next_part() {
  const std::string_view compressed = unpacked_->file().text();
  const size_t before = unpacked_->position();
  ReadDocument part{.name = unpacked_->file().path().string(), .text = {}, .file = {}};
  part.begins = std::exchange(unpacked_begins_, false);
  part.ends = !unpacked_->read(kBatchBytes, part.text);
  if (part.begins) part.text.erase(0, byte_order_mark_bytes(part.text));
  const size_t after = unpacked_->position();
  bytes_read_ += static_cast<int64_t>(after - before);
  release_pages(compressed.substr(before, after - before));
  if (part.ends) unpacked_.reset();
  return part;
}

// Reads the next lines of the current JSON Lines file into the batch. Returns false at its end.
bool CorpusReader::read_lines(std::vector<ReadDocument>& batch) {
  std::vector<Line> lines;
  size_t bytes = 0;
  const size_t before_bytes = lines_->position();
  for (std::string_view line; bytes < kBatchBytes && lines.size() < kDocumentsAtOnce;) {
    if (!lines_->next_line(line)) {
      if (lines.empty() && lines_->fill(kBatchBytes)) continue;
      break;
    }
    lines.push_back({line, lines_->line()});
    bytes += line.size();
  }
  if (lines.empty()) {
    if (!has_lines_text_)
      fail(ErrorKind::kData, "{}: holds no text; give a file with documents", lines_->path().string());
    return false;
  }
  const size_t before = batch.size();
  parse(lines, batch);
  has_lines_text_ |= batch.size() > before;
  for (size_t i = before; i < batch.size(); ++i) batch_bytes_ += batch[i].text.size();
  const size_t after_bytes = lines_->position();
  bytes_read_ += static_cast<int64_t>(after_bytes - before_bytes);
  release_pages(lines_->file().substr(before_bytes, after_bytes - before_bytes));
  return true;
}

void CorpusReader::parse(std::span<const Line> lines, std::vector<ReadDocument>& batch) const {
  const std::string file = lines_->path().string();
  std::vector<std::string> texts(lines.size());
  std::vector<std::exception_ptr> errors(lines.size());
  parallel_for(static_cast<int64_t>(lines.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      try {
        texts[i] = parse_jsonl_line(lines[i].text, jsonl_field_, file, lines[i].number);
        texts[i].erase(0, byte_order_mark_bytes(texts[i]));
      } catch (...) {
        errors[i] = std::current_exception();
        return;
      }
    }
  });
  for (const std::exception_ptr& error : errors)  // the first in order, whichever thread threw it
    if (error) std::rethrow_exception(error);
  for (size_t i = 0; i < lines.size(); ++i)
    if (!texts[i].empty())
      batch.push_back({fmt::format("{}:{}", file, lines[i].number), std::move(texts[i]), std::nullopt});
}

}  // namespace ingot
