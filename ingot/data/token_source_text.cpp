#include "ingot/data/token_source_text.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/parallel.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/data/token_source_shards.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kCacheShardTokens = 100'000'000;
constexpr std::string_view kCacheFormat = "ingot-token-cache-1";

void append_piece(const TextPiece& text, const Tokenizer& tokenizer, bool is_separated, TokenPiece& piece) {
  if (text.begins_document) {
    piece.document_begins.push_back(static_cast<int64_t>(piece.tokens.size()));
    if (is_separated && tokenizer.end_of_text()) piece.tokens.push_back(*tokenizer.end_of_text());
  }
  tokenizer.encode(text.text, piece.tokens);
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

fs::path cache_path(const Documents& documents, const Tokenizer& tokenizer, const fs::path& cache_folder) {
  const std::string json = tokenizer.to_json();
  const std::string key = fmt::format("{} {} {:x} {:x}", kCacheFormat, documents.size(),
                                      documents.content_hash(), XXH3_64bits(json.data(), json.size()));
  return cache_folder / fmt::format("{:016x}", XXH3_64bits(key.data(), key.size()));
}

// Writes a cache folder: tokens_*.bin, starts.i64 (document positions) and info (one line of numbers).
void write_cache(const TokenSource& source, int64_t vocab_size, const fs::path& folder) {
  ShardSetWriter writer(folder, "tokens", shard_dtype(vocab_size), kCacheShardTokens, 0);
  std::vector<uint32_t> chunk;
  for (int64_t begin = 0; begin < source.tokens(); begin += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(1 << 20, source.tokens() - begin)));
    source.read(begin, chunk);
    writer.append(chunk);
  }
  writer.commit();
  const auto& positions = source.documents().positions;
  write_file(folder / "starts.i64",
             {reinterpret_cast<const char*>(positions.data()), positions.size() * sizeof(int64_t)});
  write_file(folder / "info", fmt::format("{} {} {} {} {}\n", kCacheFormat, source.tokens(),
                                          *source.text_bytes(), source.content_hash(), positions.size()));
}

// Opens a cache folder. kData error if its content differs from what was written.
TokenSource open_cache(const fs::path& folder, const Tokenizer& tokenizer) {
  std::istringstream info(read_file(folder / "info"));
  std::string format;
  int64_t tokens = 0, text_bytes = 0;
  uint64_t hash = 0;
  size_t positions = 0;
  info >> format >> tokens >> text_bytes >> hash >> positions;
  const std::string starts = read_file(folder / "starts.i64");
  const std::vector<std::string> shards = {(folder / "tokens_*.bin").string()};
  TokenSource source = open_shards(shards, tokenizer.end_of_text());
  if (!info || format != kCacheFormat || starts.size() != positions * sizeof(int64_t) ||
      source.tokens() != tokens || source.content_hash() != hash)
    fail(ErrorKind::kData, "{}: the cached tokens are damaged; remove the folder", folder.string());
  DocumentStarts documents{tokenizer.end_of_text(), std::vector<int64_t>(positions)};
  if (positions > 0) std::memcpy(documents.positions.data(), starts.data(), starts.size());
  source.set_documents(std::move(documents));
  source.set_text_bytes(text_bytes);
  return source;
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
  corpus.walk([&](std::string_view text, size_t from) { return tokenizer.find_cut(text, from); },
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

TokenSource tokenize_cached(const Documents& documents, const Tokenizer& tokenizer,
                            const fs::path& cache_folder) {
  const fs::path folder = cache_path(documents, tokenizer, cache_folder);
  std::error_code error;
  if (fs::exists(folder, error)) {
    try {
      return open_cache(folder, tokenizer);
    } catch (const Error& damage) {
      if (damage.kind() != ErrorKind::kData) throw;
      fs::remove_all(folder, error);
    }
  }
  TokenSource source = tokenize(documents, tokenizer);
  if (source.tokens() == 0) return source;
  make_folders(cache_folder);
  StagedFolder staged(folder);
  write_cache(source, tokenizer.vocab_size(), staged.path());
  try {
    staged.commit();
  } catch (const Error&) {
    if (!fs::exists(folder, error)) throw;  // another process was faster and wrote the same tokens
  }
  return open_cache(folder, tokenizer);
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
