// A corpus of any size, split into training and validation text and walked through in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/corpus.h"

namespace ingot {

// Text of one document: all of it, or a stretch of a long one.
struct TextPiece {
  std::string_view text;
  bool begins_document = true;
};

// Pieces that follow each other in one part of a corpus.
struct TextBatch {
  bool is_val = false;
  bool is_separated = false;  // the part has several documents
  std::span<const TextPiece> pieces;
};

class StreamedCorpus {
 public:
  // How many bytes of the input are read, of how many.
  using Progress = std::function<void(int64_t done, int64_t total)>;
  // Where a text may be cut at or after `from` (Tokenizer::find_cut).
  using FindCut = std::function<size_t(std::string_view text, size_t from)>;

  // Reads the whole corpus once, to count and to check it. Arguments, errors and split as of load_split().
  StreamedCorpus(std::vector<std::string> specs, double val_fraction, std::string jsonl_field,
                 const Progress& progress = {});

  int64_t documents() const { return documents_; }
  int64_t text_bytes() const { return text_bytes_; }
  uint64_t content_hash() const { return content_hash_; }  // Documents::content_hash of the whole

  // Reads the corpus again and hands on its text in order, training before validation; a batch is valid
  // during the call. Long documents come in pieces. kData error if the text is not what it was the first
  // time.
  void walk(const FindCut& find_cut, const std::function<void(const TextBatch&)>& take,
            const Progress& progress = {}) const;

 private:
  class Walk;

  void survey(const Progress& progress);
  void survey_loaded();
  double distance(int64_t training_bytes) const;
  bool trains_on_one() const;

  std::vector<std::string> specs_;
  double val_fraction_;
  std::string jsonl_field_;
  std::optional<DocumentSplit> loaded_;  // set for a built-in corpus, which brings its own split
  int64_t documents_ = 0, text_bytes_ = 0;
  int64_t first_bytes_ = 0, second_bytes_ = 0;  // sizes of the first two documents
  int64_t first_characters_ = 0;
  uint64_t content_hash_ = 0;
};

}  // namespace ingot
