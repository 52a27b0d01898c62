#include "ingot/data/corpus.h"

#include <glob.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/corpus_reader.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

void add_folder(const fs::path& folder, std::vector<fs::path>& files) {
  const size_t before = files.size();
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (is_hidden(it->path())) {
      it.disable_recursion_pending();
    } else if (std::error_code ignored; it->is_regular_file(ignored)) {
      files.push_back(it->path());
    }
  }
  if (error)
    fail(ErrorKind::kData, "{}: the folder cannot be read: {}; check its permissions", folder.string(),
         error.message());
  if (files.size() == before)
    fail(ErrorKind::kData, "{}: the folder holds no files; put text files there", folder.string());
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
}

void add_path(const fs::path& path, std::vector<fs::path>& files) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    add_folder(path, files);
  else
    files.push_back(path);
}

void add_pattern(const std::string& pattern, std::vector<fs::path>& files) {
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &matches);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (paths.empty()) fail(ErrorKind::kData, "{}: no file matches; check the pattern", pattern);
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) add_path(path, files);
}

// Returns the offset of code point `n`. REQUIRES: `text` is valid UTF-8.
size_t offset_of_character(std::string_view text, int64_t n) {
  size_t i = 0;
  for (int64_t begun = 0; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) == 0x80) continue;
    if (begun++ == n) break;
  }
  return i;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

// Returns how many of the documents are for training.
size_t training_documents(const Documents& documents, double val_fraction) {
  const double target = static_cast<double>(documents.size_bytes()) * val_fraction;
  size_t best = documents.size() - 1;
  double val_bytes = 0, best_distance = INFINITY;
  for (size_t first = documents.size() - 1; first > 0; --first) {
    val_bytes += static_cast<double>(documents[first].text.size());
    const double distance = std::abs(val_bytes - target);
    if (distance < best_distance) {
      best = first;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

void Documents::add(std::string name, std::string text) {
  storage_->strings.push_back(std::move(text));
  documents_.push_back({std::move(name), storage_->strings.back()});
}

void Documents::add(MappedFile file) {
  storage_->files.push_back(std::move(file));
  const MappedFile& kept = storage_->files.back();
  documents_.push_back({kept.path().string(), kept.text().substr(byte_order_mark_bytes(kept.text()))});
}

int64_t Documents::size_bytes() const {
  int64_t sum = 0;
  for (const Document& document : documents_) sum += static_cast<int64_t>(document.text.size());
  return sum;
}

uint64_t Documents::content_hash() const {
  std::vector<uint64_t> hashes;
  for (const Document& document : documents_) {
    hashes.push_back(document.text.size());
    hashes.push_back(XXH3_64bits(document.text.data(), document.text.size()));
  }
  return XXH3_64bits(hashes.data(), hashes.size() * sizeof(uint64_t));
}

std::vector<fs::path> expand_paths(std::span<const std::string> specs) {
  std::vector<fs::path> files;
  for (const std::string& spec : specs) {
    std::error_code ignored;
    if (fs::exists(spec, ignored))
      add_path(spec, files);
    else if (spec.find_first_of("*?[") != std::string::npos)
      add_pattern(spec, files);
    else if (spec.find("://") != std::string::npos)
      fail(ErrorKind::kData,
           "{}: Ingot downloads nothing; download it, for instance with curl -LO, and give the file", spec);
    else
      fail(ErrorKind::kData, "{}: does not exist; give a file, a folder, a pattern, {} or {}", spec,
           kBibleCorpus, kCppHeadersCorpus);
  }
  return files;
}

Documents load_documents(std::span<const std::string> specs, const std::string& jsonl_field) {
  Documents documents;
  CorpusReader reader(specs, jsonl_field);
  std::string text;  // what the document has so far
  for (std::vector<ReadDocument> batch; reader.next(batch);) {
    for (ReadDocument& document : batch) {
      if (document.file) {
        documents.add(std::move(*document.file));
        continue;
      }
      if (document.begins)
        text = std::move(document.text);
      else
        text += document.text;
      if (document.ends) documents.add(std::move(document.name), std::exchange(text, {}));
    }
  }
  if (documents.empty()) fail_no_text();
  return documents;
}

DocumentSplit load_split(std::span<const std::string> specs, double val_fraction,
                         const std::string& jsonl_field) {
  return has_own_split(specs, val_fraction) ? builtin_split(specs[0])
                                            : split(load_documents(specs, jsonl_field), val_fraction);
}

bool has_own_split(std::span<const std::string> specs, double val_fraction) {
  return val_fraction != 0 && specs.size() == 1 &&
         (specs[0] == kCppHeadersCorpus || specs[0] == kBibleCorpus);
}

void check_val_fraction(double val_fraction) {
  if (!(val_fraction >= 0 && val_fraction < 1))
    fail(ErrorKind::kUsage, "the validation fraction must be at least 0 and below 1, got {}", val_fraction);
}

void fail_no_text() {
  fail(ErrorKind::kData, "no text was given; name a file, a folder, a pattern, {} or {}", kBibleCorpus,
       kCppHeadersCorpus);
}

DocumentSplit split(const Documents& documents, double val_fraction) {
  check_val_fraction(val_fraction);
  DocumentSplit parts{documents, documents};
  parts.val.documents_.clear();
  if (documents.empty() || val_fraction == 0) return parts;
  if (documents.size() > 1) {
    const auto first_val = parts.train.documents_.begin() +
                           static_cast<std::ptrdiff_t>(training_documents(documents, val_fraction));
    parts.val.documents_.assign(first_val, parts.train.documents_.end());
    parts.train.documents_.erase(first_val, parts.train.documents_.end());
    return parts;
  }
  const Document& whole = documents[0];
  const auto train_characters =
      static_cast<int64_t>(static_cast<double>(count_characters(whole.text)) * (1 - val_fraction));
  const size_t cut = offset_of_character(whole.text, train_characters);
  parts.train.documents_[0].text = whole.text.substr(0, cut);
  parts.val.documents_.push_back({whole.name, whole.text.substr(cut)});
  return parts;
}

}  // namespace ingot
