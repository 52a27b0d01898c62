#include "ingot/data/document_stats.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ingot/data/corpus.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/formats/xxh3.h"

namespace ingot {
namespace {

constexpr size_t kPreviewBytes = 160, kPreviewTokens = 32;

// Returns a number that is as good as random, so that the documents with the lowest ones are an even sample.
uint64_t priority_of(int64_t index) { return XXH3_64bits_withSeed(&index, sizeof index, 1); }

bool is_lower(const std::pair<uint64_t, DocumentStats::Sample>& a,
              const std::pair<uint64_t, DocumentStats::Sample>& b) {
  return a.first < b.first;
}

std::string ids_text(std::span<const uint32_t> ids) {
  std::string text;
  for (const uint32_t id : ids) text += fmt::format("{}{}", text.empty() ? "" : " ", id);
  return text;
}

// Follows a token stream and passes each document on.
class TokenDocuments {
 public:
  TokenDocuments(const TokenSource& source, const Tokenizer* tokenizer, DocumentStats& stats)
      : starts_(source.documents()), tokenizer_(tokenizer), stats_(stats) {}

  void add(int64_t position, std::span<const uint32_t> tokens) {
    for (size_t i = 0; i < tokens.size();) {
      const bool is_end_of_text = tokens[i] == starts_.end_of_text;
      if (is_end_of_text || begins_at(position + static_cast<int64_t>(i))) finish();
      if (is_end_of_text) {
        ++i;
        continue;
      }
      size_t end = i + 1;
      while (end < tokens.size() && tokens[end] != starts_.end_of_text &&
             !begins_at(position + static_cast<int64_t>(end)))
        ++end;
      add_to_document(position + static_cast<int64_t>(i), tokens.subspan(i, end - i));
      i = end;
    }
  }
  void finish() {
    if (length_ > 0)
      stats_.add(length_, hash_.value(), [&] {
        std::string text = ids_text(begin_);
        if (tokenizer_) text = Utf8Stream().push(decode(*tokenizer_, begin_));
        return DocumentStats::Sample{.index = 0,
                                     .name = fmt::format("token {}", first_),
                                     .length = 0,
                                     .begin = one_line_preview(text, kPreviewBytes)};
      });
    hash_.reset();
    begin_.clear();
    length_ = 0;
  }

 private:
  // Returns true if a document of the list begins here. Positions are asked for in ascending order.
  bool begins_at(int64_t position) {
    while (next_ < starts_.positions.size() && starts_.positions[next_] < position) ++next_;
    return next_ < starts_.positions.size() && starts_.positions[next_] == position;
  }
  void add_to_document(int64_t position, std::span<const uint32_t> tokens) {
    if (length_ == 0) first_ = position;
    length_ += static_cast<int64_t>(tokens.size());
    hash_.add(std::as_bytes(tokens));
    const size_t room = kPreviewTokens - std::min(kPreviewTokens, begin_.size());
    const auto shown = tokens.first(std::min(room, tokens.size()));
    begin_.insert(begin_.end(), shown.begin(), shown.end());
  }

  const DocumentStarts& starts_;
  const Tokenizer* tokenizer_;
  DocumentStats& stats_;
  size_t next_ = 0;  // index of the next position
  Xxh3 hash_;
  int64_t first_ = 0, length_ = 0;  // what the document has so far
  std::vector<uint32_t> begin_;     // its first tokens
};

}  // namespace

std::string one_line_preview(std::string_view text, size_t most_bytes) {
  size_t end = std::min(text.size(), most_bytes);
  while (end > 0 && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  std::string line(text.substr(0, end));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

DocumentStats::DocumentStats(size_t samples, size_t most_hashes)
    : most_samples_(samples), most_hashes_(std::max<size_t>(1, most_hashes)) {}

void DocumentStats::add(int64_t length, uint64_t hash, const std::function<Sample()>& make_sample) {
  const int64_t index = documents_++;
  length_ += length;
  shortest_ = std::min(shortest_, length);
  longest_ = std::max(longest_, length);
  Bin& bin = bins_[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length)))];
  ++bin.documents;
  bin.length += length;

  const auto is_compared = [&](uint64_t h) { return (h & ((uint64_t{1} << level_) - 1)) == 0; };
  if (is_compared(hash)) {
    Seen& seen = seen_[hash];
    ++seen.count;
    seen.length = length;
    while (seen_.size() > most_hashes_ && level_ < 32) {
      ++level_;
      std::erase_if(seen_, [&](const auto& entry) { return !is_compared(entry.first); });
    }
  }

  const uint64_t priority = priority_of(index);
  const bool is_full = samples_.size() >= most_samples_;
  if (most_samples_ == 0 || (is_full && priority >= samples_.front().first)) return;
  if (is_full) {
    std::ranges::pop_heap(samples_, is_lower);
    samples_.pop_back();
  }
  samples_.emplace_back(priority, make_sample());
  samples_.back().second.index = index;
  samples_.back().second.length = length;
  std::ranges::push_heap(samples_, is_lower);
}

DocumentStats::Duplicates DocumentStats::duplicates() const {
  Duplicates duplicates;
  duplicates.one_in = int64_t{1} << level_;
  for (const auto& [hash, seen] : seen_) {
    duplicates.documents += (seen.count - 1) * duplicates.one_in;
    duplicates.length += (seen.count - 1) * seen.length * duplicates.one_in;
  }
  return duplicates;
}

DocumentStats::Duplicates DocumentStats::also_in(const DocumentStats& other) const {
  Duplicates shared;
  const int level = std::max(level_, other.level_);
  shared.one_in = int64_t{1} << level;
  for (const auto& [hash, seen] : seen_) {
    if ((hash & ((uint64_t{1} << level) - 1)) != 0 || !other.seen_.contains(hash)) continue;
    shared.documents += seen.count * shared.one_in;
    shared.length += seen.count * seen.length * shared.one_in;
  }
  return shared;
}

std::vector<DocumentStats::Sample> DocumentStats::samples() const {
  std::vector<Sample> samples;
  for (const auto& [priority, sample] : samples_) samples.push_back(sample);
  std::ranges::sort(samples, {}, &Sample::index);
  return samples;
}

TextStats text_stats(std::span<const std::string> specs, const std::string& text_field, size_t samples) {
  TextStats stats{DocumentStats(samples)};
  CorpusReader reader(specs, text_field);
  Xxh3 all, hash;
  int64_t bytes = 0;
  std::string begin;  // of the document
  for (std::vector<ReadDocument> batch; reader.next(batch);)
    for (const ReadDocument& document : batch) {
      const std::string_view text = document.view();
      if (document.begins) {
        hash.reset();
        bytes = 0;
        begin = one_line_preview(text, kPreviewBytes);
      }
      for (size_t at = 0; at < text.size(); at += kBatchBytes) {
        const std::string_view stretch = text.substr(at, kBatchBytes);
        hash.add(std::as_bytes(std::span(stretch)));
        if (document.file && text.size() > kBatchBytes) release_pages(stretch);
      }
      bytes += static_cast<int64_t>(text.size());
      if (!document.ends) continue;
      const std::array<uint64_t, 2> entry = {static_cast<uint64_t>(bytes), hash.value()};
      all.add(std::as_bytes(std::span(entry)));
      stats.documents.add(bytes, hash.value(), [&] {
        return DocumentStats::Sample{.index = 0, .name = document.name, .length = 0, .begin = begin};
      });
    }
  if (stats.documents.documents() == 0) fail_no_text();
  stats.content_hash = all.value();
  return stats;
}

DocumentStats token_stats(const TokenSource& source, const Tokenizer* tokenizer, size_t samples,
                          size_t most_hashes) {
  constexpr int64_t kChunkTokens = 1 << 16, kReleaseEvery = 64;
  DocumentStats stats(samples, most_hashes);
  TokenDocuments documents(source, tokenizer, stats);
  std::vector<uint32_t> chunk;
  for (int64_t begin = 0; begin < source.tokens(); begin += kChunkTokens) {
    chunk.resize(static_cast<size_t>(std::min(kChunkTokens, source.tokens() - begin)));
    source.read(begin, chunk);
    documents.add(begin, chunk);
    if (begin / kChunkTokens % kReleaseEvery == 0) source.release();
  }
  documents.finish();
  return stats;
}

}  // namespace ingot
