// TokenSource: one logical stream of tokens over mapped shards and token vectors in memory, with what
// training needs to know about it: where documents begin, how many bytes of text it stands for, a hash of its
// content.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ingot/formats/shard.h"

namespace ingot {

// Where documents begin. A document begins AT its end-of-text token (as in llm.c's and modded-nanogpt's
// shards, where every document is preceded by one): that token is the last target of the document before it
// and the first input of the new one.
struct DocumentStarts {
  std::optional<uint32_t> end_of_text;  // present: every occurrence of this id begins a document
  std::vector<int64_t> positions;  // else these positions do, ascending; none: the stream is one document
};

class TokenSource {
 public:
  TokenSource() = default;

  // Appends a segment to the stream. Ids are not checked here but by who reads them (Loader).
  void add(TokenShard shard);
  // A range of the shard's tokens. REQUIRES: it lies in the shard.
  void add(TokenShard shard, int64_t begin, int64_t count);
  void add(std::vector<uint16_t> tokens);
  void add(std::vector<uint32_t> tokens);
  void set_documents(DocumentStarts documents) { documents_ = std::move(documents); }
  // Bytes of text that the stream stands for, where known: total loss in bits / text bytes = bits per byte.
  void set_text_bytes(int64_t text_bytes) { text_bytes_ = text_bytes; }

  int64_t tokens() const { return segments_.empty() ? 0 : segments_.back().begin + segments_.back().tokens; }
  std::optional<int64_t> text_bytes() const { return text_bytes_; }
  const DocumentStarts& documents() const { return documents_; }

  // out[i] = token begin + i. Thread-safe. REQUIRES: [begin, begin + out.size()) lies in [0, tokens()).
  void read(int64_t begin, std::span<uint32_t> out) const;

  // For the window of tokens read at `begin`: doc_start[i] = index in the window where the document of token
  // i begins, 0 if it began before the window. Thread-safe.
  void mark_documents(int64_t begin, std::span<const uint32_t> window, std::span<int32_t> doc_start) const;

  // XXH3-64 of the tokens as little-endian uint32, so it does not depend on how they are cut into shards or
  // how wide they are stored. Of a stream longer than full_tokens: of the count and of kHashBlocks evenly
  // spread blocks, full_tokens in all, so that starting a run does not read terabytes. REQUIRES: full_tokens
  // >= kHashBlocks.
  uint64_t content_hash(int64_t full_tokens = int64_t{1} << 28) const;
  static constexpr int64_t kHashBlocks = 4096;

  // Lets go of the memory that mapped shards took by being read (TokenShard::release).
  void release() const;

  // "FILE, token i" for messages: where token `position` of the stream comes from.
  std::string place(int64_t position) const;

 private:
  struct Segment {
    std::variant<TokenShard, std::vector<uint16_t>, std::vector<uint32_t>> owner;
    int64_t begin;  // position of the first token in the stream
    int64_t tokens;
    int64_t skipped;  // tokens of the owner before the first
  };
  template <typename Owner>
  void add_segment(Owner owner, int64_t tokens, int64_t skipped = 0);
  // The segment that holds token `position`.
  size_t segment_of(int64_t position) const;

  std::vector<Segment> segments_;  // none empty
  DocumentStarts documents_;
  std::optional<int64_t> text_bytes_;
};

}  // namespace ingot
