// Documents holds a corpus: the documents of text files, folders, globs and JSON Lines files, in
// a fixed order.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/core/file.h"

namespace ingot {

struct Document {
  std::string name;       // file, or file:line for JSON Lines
  std::string_view text;  // UTF-8 without NUL
};

// Documents in a fixed order. Copies are cheap and share the texts (split() makes two views of one
// corpus); the texts live as long as any copy.
class Documents {
 public:
  Documents() : storage_(std::make_shared<Storage>()) {}

  void add(std::string name, std::string text);
  // Adds the whole mapped file as one document, without a byte order mark.
  void add(MappedFile file);

  size_t size() const { return documents_.size(); }
  bool empty() const { return documents_.empty(); }
  const Document& operator[](size_t i) const { return documents_[i]; }
  auto begin() const { return documents_.begin(); }
  auto end() const { return documents_.end(); }

  int64_t size_bytes() const;
  // XXH3-64 of the texts and of their boundaries; names are not included.
  uint64_t content_hash() const;

 private:
  friend struct DocumentSplit split(const Documents& documents, double val_fraction);
  struct Storage {  // shared by a corpus and its splits, whose views point into it
    std::deque<std::string> strings;
    std::deque<MappedFile> files;
  };
  std::shared_ptr<Storage> storage_;
  std::vector<Document> documents_;
};

// Returns the files that `specs` name. A file names itself. A folder names the regular files in it and
// below it, sorted by path, without hidden ones. A pattern (* ? [) names its sorted matches. kData error
// if a spec names nothing.
std::vector<std::filesystem::path> expand_paths(std::span<const std::string> specs);

// Loads the documents of `specs` (as in expand_paths, or built-in corpora, see builtin_corpus.h). A JSON
// Lines file has one document per line, with the text in `jsonl_field`; any other file is one document
// (text_format.h). Documents without text are left out. kData error, with file and place, if a file is
// missing, unreadable, empty, not text (NUL bytes, compressed, tables, JSON arrays ...), not UTF-8, or a
// token shard.
Documents load_documents(std::span<const std::string> specs, const std::string& jsonl_field = "text");

struct DocumentSplit {
  Documents train, val;
};

// Splits the documents; validation comes last. A single document is cut where nanoGPT cuts: train is the
// first int(characters * (1 - val_fraction)) code points. Several documents are cut between two
// documents, where the bytes of validation come nearest to val_fraction, with at least one document on
// each side. val is empty if val_fraction is 0. kUsage error unless 0 <= val_fraction < 1.
DocumentSplit split(const Documents& documents, double val_fraction);

// Calls load_documents and split. If `specs` is a single built-in corpus, its own split is used and
// val_fraction is ignored unless it is 0.
DocumentSplit load_split(std::span<const std::string> specs, double val_fraction,
                         const std::string& jsonl_field = "text");

// Returns true if load_split uses the built-in corpus's own split.
bool has_own_split(std::span<const std::string> specs, double val_fraction);

// kUsage error unless 0 <= val_fraction < 1.
void check_val_fraction(double val_fraction);

// Throws the kData error of a corpus without text.
[[noreturn]] void fail_no_text();

}  // namespace ingot
