#include "ingot/data/corpus_stream.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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

// The number of parts of a document without a cut that are held at once is limited, because a small
// compressed file may unpack to more than the memory.
constexpr size_t kMaxHeldBytes = size_t{1} << 30;
// A cut that is found nearer to the end of the text so far may depend on what follows.
constexpr size_t kCutMargin = 64;

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

// Calls `progress` whenever a few megabytes of text have been used, and at the end of each batch. A long file
// is one batch.
class UsedText {
 public:
  UsedText(const StreamedCorpus::Progress& progress, const CorpusReader& reader)
      : progress_(progress), reader_(reader) {}
  void add(std::string_view text) {
    used_ += static_cast<int64_t>(text.size());
    if (used_ - said_ < static_cast<int64_t>(kBatchBytes)) return;
    said_ = used_;
    say(std::min(before_ + used_, reader_.bytes_read()));
  }
  void end_batch() {
    before_ = reader_.bytes_read();
    used_ = said_ = 0;
    say(before_);
  }

 private:
  void say(int64_t done) const {
    if (progress_) progress_(done, reader_.bytes());
  }

  const StreamedCorpus::Progress& progress_;
  const CorpusReader& reader_;
  int64_t before_ = 0;           // bytes of earlier batches
  int64_t used_ = 0, said_ = 0;  // bytes of this batch's text
};

}  // namespace

// The state of one walk(): collects short documents into batches and finds where validation begins.
class StreamedCorpus::Walk {
 public:
  Walk(const StreamedCorpus& corpus, const FindCut& find_cut,
       const std::function<void(const TextBatch&)>& take)
      : corpus_(corpus), find_cut_(find_cut), take_(take), is_separated_(!corpus.trains_on_one()) {}

  void add(const ReadDocument& document) {
    const bool is_split = corpus_.documents_ == 1 && corpus_.val_fraction_ > 0;
    if (document.begins && !is_split && !is_val_ && begins_val(document_bytes(document)))
      begin_val(corpus_.documents_ - index_ > 1);
    if (document.begins && document.ends)
      is_split ? add_split(document) : add_text(document, document.view());
    else
      is_split ? add_split_part(document) : add_part(document, document.view(), document.ends);
    index_ += document.ends ? 1 : 0;
    bytes_ += static_cast<int64_t>(document.view().size());
  }
  void add_documents(const Documents& documents, bool is_val) {
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
  // Returns the size of the document that `document` is or begins.
  int64_t document_bytes(const ReadDocument& document) const {
    if (document.ends) return static_cast<int64_t>(document.view().size());
    const auto found = corpus_.parted_bytes_.find(index_);
    return found == corpus_.parted_bytes_.end() ? 0 : found->second;  // 0: check_end() finds the change
  }
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
    const size_t cut = offset_of(document, training_characters());
    add_text(document, document.view().substr(0, cut));
    begin_val(false);
    add_text(document, document.view().substr(cut));
  }
  int64_t training_characters() const {
    return static_cast<int64_t>(static_cast<double>(corpus_.first_characters_) * (1 - corpus_.val_fraction_));
  }
  // Splits the only document of the corpus, which comes in parts.
  void add_split_part(const ReadDocument& document) {
    const std::string_view text = document.view();
    if (is_val_) return add_part(document, text, document.ends);
    const int64_t characters = count_characters_in(text), missing = training_characters() - characters_;
    characters_ += characters;
    if (characters <= missing && !document.ends) return add_part(document, text, false);
    const size_t cut = offset_of(document, missing);
    add_part(document, text.substr(0, cut), true);
    begin_val(false);
    add_part(document, text.substr(cut), document.ends);
  }
  // Appends text to the current part of a document, and adds the part up to the last place where the
  // tokenizer allows a cut.
  void add_part(const ReadDocument& document, std::string_view text, bool is_last) {
    flush();
    part_ += text;
    while (part_.size() > kBatchBytes || (is_last && (!part_.empty() || part_begins_))) {
      const bool is_rest = is_last && part_.size() <= kBatchBytes;
      const size_t cut = is_rest ? part_.size() : find_cut_(part_, std::max(kBatchBytes, part_searched_));
      if (!is_last && cut + kCutMargin > part_.size()) {
        part_searched_ = part_.size() - kCutMargin;
        if (part_.size() > kMaxHeldBytes)
          fail(ErrorKind::kData,
               "{}: is compressed and has no place in {} bytes where the tokenizer may cut it (a custom "
               "regular "
               "expression, or text without a space); unpack the file",
               document.name, part_.size());
        return;
      }
      pieces_.push_back({std::string_view(part_).substr(0, cut), std::exchange(part_begins_, false)});
      flush();
      part_.erase(0, cut);
      part_searched_ = 0;
    }
    if (is_last) part_begins_ = true;
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
  std::string part_;          // text of the document that comes in parts and is not yet passed on
  bool part_begins_ = true;   // nothing of that document has been passed on
  size_t part_searched_ = 0;  // there is no cut before this offset in part_
  int64_t characters_ = 0;    // of the only document, so far
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
  UsedText used(progress, reader);
  Xxh3 hash;
  Xxh3 text_hash;
  int64_t bytes = 0;  // what the document has so far
  for (std::vector<ReadDocument> batch; reader.next(batch);) {
    for (const ReadDocument& document : batch) {
      if (document.begins) {
        text_hash.reset();
        bytes = 0;
      }
      for_each_stretch(document, [&](std::string_view stretch) {
        text_hash.add(std::as_bytes(std::span(stretch)));
        if (documents_ == 0) first_characters_ += count_characters_in(stretch);
        used.add(stretch);
      });
      bytes += static_cast<int64_t>(document.view().size());
      if (!document.ends) continue;
      if (documents_ == 0) first_bytes_ = bytes;
      if (documents_ == 1) second_bytes_ = bytes;
      if (!document.begins) parted_bytes_[documents_] = bytes;
      ++documents_;
      text_bytes_ += bytes;
      const std::array<uint64_t, 2> entry = {static_cast<uint64_t>(bytes), text_hash.value()};
      hash.add(std::as_bytes(std::span(entry)));
    }
    used.end_batch();
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
  if (loaded_) {
    Walk walk(*this, find_cut, take);
    walk.add_documents(loaded_->train, false);
    walk.add_documents(loaded_->val, true);
    return;
  }
  CorpusReader reader(specs_, jsonl_field_, false);
  UsedText used(progress, reader);
  const std::function<void(const TextBatch&)> use = [&](const TextBatch& texts) {
    take(texts);
    for (const TextPiece& piece : texts.pieces) used.add(piece.text);
  };
  Walk walk(*this, find_cut, use);
  for (std::vector<ReadDocument> batch; reader.next(batch);) {
    for (const ReadDocument& document : batch) walk.add(document);
    walk.flush();
    used.end_batch();
  }
  walk.check_end();
}

}  // namespace ingot
