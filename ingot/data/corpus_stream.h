// StreamedCorpus splits a corpus of any size into training and validation text and reads it
// in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/corpus.h"

namespace ingot {

// The text of one document, or a range of a long document's text.
struct TextPiece {
  std::string_view text;
  bool begins_document = true;
};

// Consecutive pieces of one split (training or validation).
struct TextBatch {
  bool is_val = false;
  bool is_separated = false;  // true if the split has several documents
  std::span<const TextPiece> pieces;
};

class StreamedCorpus {
 public:
  // Called with the input bytes read so far and in total, after every few megabytes. What it throws ends the
  // reading.
  using Progress = std::function<void(int64_t done, int64_t total)>;
  // Returns where `text` may be cut, at or after `from` (Tokenizer::find_cut).
  using FindCut = std::function<size_t(std::string_view text, size_t from)>;

  // Reads the whole corpus once to count and check it. Arguments, errors and split are those of load_split().
  StreamedCorpus(std::vector<std::string> specs, double val_fraction, std::string jsonl_field,
                 const Progress& progress = {});

  int64_t documents() const { return documents_; }
  int64_t text_bytes() const { return text_bytes_; }
  uint64_t content_hash() const { return content_hash_; }  // Documents::content_hash of the whole corpus

  // Reads the corpus again and calls take() with its text in order, training before validation. A batch
  // is valid during the call. Long documents come in several pieces. kData error if the text has changed
  // since the constructor read it.
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
  std::optional<DocumentSplit> loaded_;  // set if a built-in corpus uses its own split
  int64_t documents_ = 0, text_bytes_ = 0;
  int64_t first_bytes_ = 0, second_bytes_ = 0;  // sizes of the first two documents
  int64_t first_characters_ = 0;
  std::map<int64_t, int64_t> parted_bytes_;  // sizes of the documents that come in several parts, by index
  uint64_t content_hash_ = 0;
};

}  // namespace ingot
