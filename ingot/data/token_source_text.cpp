#include "ingot/data/token_source_text.h"

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/formats/shard.h"

namespace ingot {
namespace {

void append_piece(const TextPiece& text, const Tokenizer& tokenizer, bool is_separated, TokenPiece& piece) {
  if (text.begins_document) {
    piece.document_begins.push_back(static_cast<int64_t>(piece.tokens.size()));
    if (is_separated && tokenizer.end_of_text()) piece.tokens.push_back(*tokenizer.end_of_text());
  }
  tokenizer.encode_data(text.text, piece.tokens);
}

// Tokenizes short texts into one piece per thread, cut so that the threads get about the same
// number of bytes.
std::vector<TokenPiece> tokenize_short(std::span<const TextPiece> texts, const Tokenizer& tokenizer) {
  std::vector<size_t> bytes_before = {0};
  for (const TextPiece& text : texts) bytes_before.push_back(bytes_before.back() + text.text.size());
  const auto parts = static_cast<size_t>(num_threads());
  const auto cut = [&](size_t part) {
    const size_t target = bytes_before.back() * part / parts;
    return static_cast<size_t>(std::lower_bound(bytes_before.begin(), bytes_before.end() - 1, target) -
                               bytes_before.begin());
  };
  std::vector<TokenPiece> pieces(parts);
  parallel_for(static_cast<int64_t>(parts), 1, [&](int64_t first, int64_t last) {
    for (auto part = static_cast<size_t>(first); part < static_cast<size_t>(last); ++part)
      for (size_t i = cut(part); i < (part + 1 == parts ? texts.size() : cut(part + 1)); ++i)
        append_piece(texts[i], tokenizer, true, pieces[part]);
  });
  return pieces;
}

// Makes a TokenSource in memory of the tokens that it is passed.
class TokenCollector {
 public:
  explicit TokenCollector(const Tokenizer& tokenizer)
      : starts_{tokenizer.end_of_text(), {}}, is_narrow_(shard_dtype(tokenizer.vocab_size()) == DType::u16) {}

  void add(TokenPiece piece) {
    if (!starts_.end_of_text)
      for (const int64_t begin : piece.document_begins) starts_.positions.push_back(source_.tokens() + begin);
    if (is_narrow_) {
      source_.add(std::vector<uint16_t>(piece.tokens.begin(), piece.tokens.end()));
    } else {
      piece.tokens.shrink_to_fit();
      source_.add(std::move(piece.tokens));
    }
  }
  TokenSource finish(int64_t text_bytes) {
    source_.set_documents(std::move(starts_));
    source_.set_text_bytes(text_bytes);
    return std::move(source_);
  }

 private:
  TokenSource source_;
  DocumentStarts starts_;
  bool is_narrow_;
};

// Counts documents and bytes, and keeps the text until it is longer than most_bytes.
class TextCollector {
 public:
  explicit TextCollector(int64_t most_bytes) : most_bytes_(most_bytes) {}

  void add(const TextBatch& batch) {
    for (const TextPiece& piece : batch.pieces) {
      documents_ += piece.begins_document ? 1 : 0;
      bytes_ += static_cast<int64_t>(piece.text.size());
      if (bytes_ > most_bytes_) {
        texts_.clear();
        continue;
      }
      if (piece.begins_document) texts_.emplace_back();
      texts_.back() += piece.text;
    }
  }
  int64_t documents() const { return documents_; }
  int64_t bytes() const { return bytes_; }
  Documents finish() {
    Documents kept;
    for (std::string& text : texts_) kept.add("text", std::move(text));
    return kept;
  }

 private:
  int64_t most_bytes_, documents_ = 0, bytes_ = 0;
  std::vector<std::string> texts_;
};

}  // namespace

void tokenize_batch(const TextBatch& batch, const Tokenizer& tokenizer,
                    const std::function<void(TokenPiece)>& take) {
  const std::span<const TextPiece> texts = batch.pieces;
  for (size_t i = 0; i < texts.size();) {
    // From kLongDocumentBytes on, encode() uses all threads by itself.
    if (!batch.is_separated || texts[i].text.size() >= kLongDocumentBytes) {
      TokenPiece piece;
      append_piece(texts[i++], tokenizer, batch.is_separated, piece);
      take(std::move(piece));
      continue;
    }
    const size_t begin = i;
    for (size_t bytes = 0;
         i < texts.size() && texts[i].text.size() < kLongDocumentBytes && bytes < kBatchBytes;)
      bytes += texts[i++].text.size();
    for (TokenPiece& piece : tokenize_short(texts.subspan(begin, i - begin), tokenizer))
      take(std::move(piece));
  }
}

void tokenize_pieces(const Documents& documents, const Tokenizer& tokenizer,
                     const std::function<void(TokenPiece)>& take) {
  std::vector<TextPiece> texts;
  texts.reserve(documents.size());
  for (const Document& document : documents) texts.push_back({document.text, true});
  tokenize_batch({.is_val = false, .is_separated = documents.size() > 1, .pieces = texts}, tokenizer, take);
}

TokenSource tokenize(const Documents& documents, const Tokenizer& tokenizer) {
  TokenCollector collector(tokenizer);
  tokenize_pieces(documents, tokenizer, [&](TokenPiece piece) { collector.add(std::move(piece)); });
  return collector.finish(documents.size_bytes());
}

StreamedSplit tokenize(const StreamedCorpus& corpus, const Tokenizer& tokenizer, const KeptText& kept,
                       const StreamedCorpus::Progress& progress) {
  StreamedSplit split;
  TokenCollector train(tokenizer), val(tokenizer);
  TextCollector train_text(kept.train_bytes), val_text(kept.val_bytes);
  corpus.walk([&](std::string_view text, size_t from) { return tokenizer.find_data_cut(text, from); },
              [&](const TextBatch& batch) {
                (batch.is_val ? val_text : train_text).add(batch);
                tokenize_batch(batch, tokenizer,
                               [&](TokenPiece piece) { (batch.is_val ? val : train).add(std::move(piece)); });
              },
              progress);
  split.train = {train.finish(train_text.bytes()), train_text.documents(), train_text.finish()};
  split.val = {val.finish(val_text.bytes()), val_text.documents(), val_text.finish()};
  return split;
}

TokenSource::TokenBytes token_bytes(const Tokenizer& tokenizer) {
  std::vector<uint32_t> bytes(static_cast<size_t>(tokenizer.vocab_size()), TokenSource::kNoToken);
  std::string text;
  for (uint32_t id = 0; id < bytes.size(); ++id) {
    text.clear();
    try {
      if (id != tokenizer.end_of_text()) tokenizer.append_bytes(id, text);
    } catch (const Error&) {
      continue;  // an id without a token
    }
    bytes[id] = static_cast<uint32_t>(text.size());
  }
  return std::make_shared<const std::vector<uint32_t>>(std::move(bytes));
}

int64_t count_text_bytes(const TokenSource& source, const Tokenizer& tokenizer) {
  std::vector<int64_t> token_bytes(static_cast<size_t>(tokenizer.vocab_size()), -1);
  std::vector<uint32_t> chunk;
  std::string text;
  int64_t sum = 0;
  for (int64_t begin = 0; begin < source.tokens(); begin += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(1 << 16, source.tokens() - begin)));
    source.read(begin, chunk);
    for (size_t i = 0; i < chunk.size(); ++i) {
      const uint32_t id = chunk[i];
      if (id >= token_bytes.size())
        fail(ErrorKind::kData,
             "{}: id {} is outside the vocabulary of {} ids; use the tokenizer that made this data",
             source.place(begin + static_cast<int64_t>(i)), id, token_bytes.size());
      int64_t& bytes = token_bytes[id];
      if (bytes < 0) {
        text.clear();
        if (id != tokenizer.end_of_text()) tokenizer.append_bytes(id, text);
        bytes = static_cast<int64_t>(text.size());
      }
      sum += bytes;
    }
  }
  return sum;
}

}  // namespace ingot
