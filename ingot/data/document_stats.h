// DocumentStats describes the documents of a data set: their lengths, exact duplicates and a few samples. The
// caller adds each document once, in order. Memory stays bounded for any number of documents.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// The unit of a length is the caller's: bytes of text, or tokens.
class DocumentStats {
 public:
  struct Sample {
    int64_t index = 0;  // of the document
    std::string name = {};
    int64_t length = 0;
    std::string begin = {};  // its first characters
  };
  // Bin k counts the lengths in [2^(k-1), 2^k); bin 0 counts empty documents.
  struct Bin {
    int64_t documents = 0, length = 0;
  };
  struct Duplicates {
    int64_t documents = 0, length = 0;  // documents that are equal to an earlier one, and their total length
    int64_t one_in =
        1;  // 1: counted; n: estimated from the documents whose hashes fall into one of n classes
  };

  // samples: how many to choose, evenly at random but always the same ones. Up to most_hashes different
  // documents are compared exactly; with more, duplicates are estimated from a sample of the hashes.
  explicit DocumentStats(size_t samples, size_t most_hashes = size_t{1} << 20);

  // Adds the next document. make_sample is called if it is chosen; its index and length are filled in here.
  void add(int64_t length, uint64_t hash, const std::function<Sample()>& make_sample);

  int64_t documents() const { return documents_; }
  int64_t length() const { return length_; }
  int64_t shortest() const { return shortest_; }
  int64_t longest() const { return longest_; }
  std::span<const Bin> bins() const { return bins_; }
  Duplicates duplicates() const;
  // Returns the documents that `other` has too, each as often as it is here; validation text that is also
  // trained on.
  Duplicates also_in(const DocumentStats& other) const;
  std::vector<Sample> samples() const;  // by index

 private:
  struct Seen {
    int64_t count = 0, length = 0;
  };

  size_t most_samples_, most_hashes_;
  int64_t documents_ = 0, length_ = 0, shortest_ = INT64_MAX, longest_ = 0;
  std::array<Bin, 64> bins_ = {};
  int level_ = 0;  // hashes whose lowest level_ bits are 0 are compared
  std::unordered_map<uint64_t, Seen> seen_;
  std::vector<std::pair<uint64_t, Sample>> samples_;  // the lowest priorities, a heap
};

// The documents of text specs (corpus.h), in one pass.
struct TextStats {
  DocumentStats documents;    // lengths in bytes
  uint64_t content_hash = 0;  // Documents::content_hash
};
TextStats text_stats(std::span<const std::string> specs, const std::string& text_field, size_t samples);

// The documents of a token stream, in one pass; lengths in tokens, without end-of-text tokens. Documents
// without any other token are left out. tokenizer: for the samples' text; null shows ids.
DocumentStats token_stats(const TokenSource& source, const Tokenizer* tokenizer, size_t samples,
                          size_t most_hashes = size_t{1} << 20);

// Returns the beginning of a text as one line without control characters.
std::string one_line_preview(std::string_view text, size_t most_bytes);

}  // namespace ingot
