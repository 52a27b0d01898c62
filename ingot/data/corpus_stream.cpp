#include "ingot/data/corpus_stream.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ingot/core/error.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/formats/xxh3.h"

namespace ingot {
namespace {

int64_t count_characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

// Calls f(stretch) for consecutive ranges that cover the document; the pages of a long file are released
// after use.
template <typename F>
void for_each_stretch(const ReadDocument& document, F&& f) {
  const std::string_view text = document.view();
  for (size_t begin = 0; begin < text.size(); begin += kBatchBytes) {
    const std::string_view stretch = text.substr(begin, kBatchBytes);
    f(stretch);
    if (document.file && text.size() > kBatchBytes) release_pages(stretch);
  }
}

uint64_t hash_of(const ReadDocument& document) {
  Xxh3 hash;
  for_each_stretch(document, [&](std::string_view stretch) { hash.add(std::as_bytes(std::span(stretch))); });
  return hash.value();
}

// Returns the offset of character `n` of the document, or its size if it has fewer characters.
size_t offset_of(const ReadDocument& document, int64_t n) {
  size_t offset = 0;
  int64_t begun = 0;
  bool is_found = false;
  for_each_stretch(document, [&](std::string_view stretch) {
    if (is_found) return;
    const int64_t characters = count_characters_in(stretch);
    if (begun + characters <= n) {
      begun += characters;
      offset += stretch.size();
      return;
    }
    for (size_t i = 0; i < stretch.size() && !is_found; ++i) {
      if ((static_cast<uint8_t>(stretch[i]) & 0xc0) == 0x80 || begun++ < n) continue;
      offset += i;
      is_found = true;
    }
  });
  return offset;
}

}  // namespace

// The state of one walk(): collects short documents into batches and finds where validation begins.
class StreamedCorpus::Walk {
 public:
  Walk(const StreamedCorpus& corpus, const FindCut& find_cut,
       const std::function<void(const TextBatch&)>& take)
      : corpus_(corpus), find_cut_(find_cut), take_(take), is_separated_(!corpus.trains_on_one()) {}

  void add(const ReadDocument& document) {
    const auto bytes = static_cast<int64_t>(document.view().size());
    if (corpus_.documents_ == 1 && corpus_.val_fraction_ > 0) {
      add_split(document);
    } else {
      if (!is_val_ && begins_val(bytes)) begin_val(corpus_.documents_ - index_ > 1);
      add_text(document, document.view());
    }
    ++index_;
    bytes_ += bytes;
  }
  void add_part(const Documents& documents, bool is_val) {
    flush();
    is_val_ = is_val;
    is_separated_ = documents.size() > 1;
    for (const Document& document : documents) add_piece({document.text, true});
    flush();
  }
  // Must be called before the documents that the pieces point into are destroyed.
  void flush() {
    if (!pieces_.empty()) take_({is_val_, is_separated_, pieces_});
    pieces_.clear();
    pieces_bytes_ = 0;
  }
  void check_end() const {
    if (index_ != corpus_.documents_ || bytes_ != corpus_.text_bytes_)
      fail(ErrorKind::kData,
           "the text changed while it was read: {} documents of {} bytes at first, {} of {} bytes then; "
           "leave it "
           "alone until the command has ended",
           corpus_.documents_, corpus_.text_bytes_, index_, bytes_);
  }

 private:
  // Returns true if document index_ is the first of validation: putting it into training would move the
  // split further away from val_fraction.
  bool begins_val(int64_t document_bytes) const {
    if (corpus_.val_fraction_ == 0 || index_ == 0) return false;
    return index_ + 1 >= corpus_.documents_ ||
           corpus_.distance(bytes_ + document_bytes) > corpus_.distance(bytes_);
  }
  void begin_val(bool is_separated) {
    flush();
    is_val_ = true;
    is_separated_ = is_separated;
  }
  // Splits the only document of the corpus: its last characters are validation.
  void add_split(const ReadDocument& document) {
    const auto characters =
        static_cast<int64_t>(static_cast<double>(corpus_.first_characters_) * (1 - corpus_.val_fraction_));
    const size_t cut = offset_of(document, characters);
    add_text(document, document.view().substr(0, cut));
    begin_val(false);
    add_text(document, document.view().substr(cut));
  }
  void add_text(const ReadDocument& document, std::string_view text) {
    if (text.size() < kLongDocumentBytes) return add_piece({text, true});
    flush();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end =
          text.size() - begin <= kBatchBytes ? text.size() : find_cut_(text, begin + kBatchBytes);
      const std::string_view stretch = text.substr(begin, end - begin);
      add_piece({stretch, begin == 0});
      flush();
      if (document.file) release_pages(stretch);
      begin = end;
    }
  }
  void add_piece(const TextPiece& piece) {
    pieces_.push_back(piece);
    pieces_bytes_ += piece.text.size();
    if (pieces_bytes_ >= kBatchBytes) flush();
  }

  const StreamedCorpus& corpus_;
  const FindCut& find_cut_;
  const std::function<void(const TextBatch&)>& take_;
  bool is_val_ = false, is_separated_;
  int64_t index_ = 0, bytes_ = 0;  // documents and bytes of text so far
  std::vector<TextPiece> pieces_;
  size_t pieces_bytes_ = 0;
};

StreamedCorpus::StreamedCorpus(std::vector<std::string> specs, double val_fraction, std::string jsonl_field,
                               const Progress& progress)
    : specs_(std::move(specs)), val_fraction_(val_fraction), jsonl_field_(std::move(jsonl_field)) {
  check_val_fraction(val_fraction);
  if (has_own_split(specs_, val_fraction)) {
    loaded_ = load_split(specs_, val_fraction, jsonl_field_);
    survey_loaded();
  } else {
    survey(progress);
  }
}

void StreamedCorpus::survey_loaded() {
  Documents all = loaded_->train;
  for (const Document& document : loaded_->val) all.add(document.name, std::string(document.text));
  documents_ = static_cast<int64_t>(all.size());
  text_bytes_ = all.size_bytes();
  content_hash_ = all.content_hash();
}

void StreamedCorpus::survey(const Progress& progress) {
  CorpusReader reader(specs_, jsonl_field_);
  Xxh3 hash;
  for (std::vector<ReadDocument> batch; reader.next(batch);) {
    for (const ReadDocument& document : batch) {
      const auto bytes = static_cast<int64_t>(document.view().size());
      if (documents_ == 0) {
        first_bytes_ = bytes;
        for_each_stretch(
            document, [&](std::string_view stretch) { first_characters_ += count_characters_in(stretch); });
      } else if (documents_ == 1) {
        second_bytes_ = bytes;
      }
      ++documents_;
      text_bytes_ += bytes;
      const std::array<uint64_t, 2> entry = {static_cast<uint64_t>(bytes), hash_of(document)};
      hash.add(std::as_bytes(std::span(entry)));
    }
    if (progress) progress(reader.bytes_read(), reader.bytes());
  }
  if (documents_ == 0) fail_no_text();
  content_hash_ = hash.value();
}

// Returns how many bytes validation would be off its target if the first training_bytes were for training.
double StreamedCorpus::distance(int64_t training_bytes) const {
  const double target = static_cast<double>(text_bytes_) * val_fraction_;
  return std::abs(static_cast<double>(text_bytes_ - training_bytes) - target);
}

bool StreamedCorpus::trains_on_one() const {
  if (documents_ <= 1) return true;
  return val_fraction_ > 0 &&
         (documents_ == 2 || distance(first_bytes_ + second_bytes_) > distance(first_bytes_));
}

void StreamedCorpus::walk(const FindCut& find_cut, const std::function<void(const TextBatch&)>& take,
                          const Progress& progress) const {
  Walk walk(*this, find_cut, take);
  if (loaded_) {
    walk.add_part(loaded_->train, false);
    walk.add_part(loaded_->val, true);
    return;
  }
  CorpusReader reader(specs_, jsonl_field_, false);
  for (std::vector<ReadDocument> batch; reader.next(batch);) {
    for (const ReadDocument& document : batch) walk.add(document);
    walk.flush();
    if (progress) progress(reader.bytes_read(), reader.bytes());
  }
  walk.check_end();
}

}  // namespace ingot
