// TokenSource is one logical stream of tokens over mapped shards and token vectors in memory. It also
// holds what training needs to know about the stream: where documents begin, how many bytes of text it
// represents, and a hash of its content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ingot/formats/megatron.h"
#include "ingot/formats/shard.h"

namespace ingot {

// The positions where documents begin. A document begins AT its end-of-text token (as in the shards of
// llm.c and modded-nanogpt, where that token precedes every document): the token is the last target of
// the document before it and the first input of the new one.
struct DocumentStarts {
  std::optional<uint32_t> end_of_text;  // if set, every occurrence of this id begins a document
  std::vector<int64_t> positions;       // else: ascending positions; if empty, the stream is one document
};

// Tokens that are neither in a shard nor in memory, such as those of a remote store.
class TokenReader {
 public:
  virtual ~TokenReader() = default;
  virtual int64_t tokens() const = 0;  // does not change
  // Sets out[i] = token begin + i, always to the same values. The loader's workers call it at the same time.
  // It may take long. REQUIRES: [begin, begin + out.size()) lies in [0, tokens()).
  virtual void read(int64_t begin, std::span<uint32_t> out) const = 0;
};

// Copies are cheap: they share the tokens.
class TokenSource {
 public:
  TokenSource() = default;

  // Appends a segment to the stream. Ids are not checked here; the reader (Loader) checks them.
  void add(TokenShard shard);
  // Appends a range of the shard's tokens. REQUIRES: the range lies in the shard.
  void add(TokenShard shard, int64_t begin, int64_t count);
  void add(MegatronShard shard, int64_t begin, int64_t count);
  void add(std::vector<uint16_t> tokens);
  void add(std::vector<uint32_t> tokens);
  void add(std::unique_ptr<const TokenReader> reader);
  // Appends another stream with its documents; a document begins where it begins. text_bytes() is the sum if
  // both are known.
  void add(const TokenSource& source);
  void set_documents(DocumentStarts documents);
  // Says for every token whether the loss counts its prediction. Without, it counts all of them. REQUIRES:
  // one element per token; no stream was appended.
  void set_targets(std::vector<bool> is_target);
  // Says that the documents are pairs of answers (chat/chat_data.h). The loss compares each document's
  // log-probability with a reference, which references() then holds; it is 0 until a run sets it.
  // REQUIRES: the documents were set.
  void set_pairs();
  using References = std::shared_ptr<std::vector<float>>;
  // Returns null for a stream without pairs. They must be written before a Loader's first next() or seek().
  const References& references() const { return references_; }
  // Sets out[i] to the reference of the document that begins at token begin + i, where doc_start[i] is i.
  void read_references(int64_t begin, std::span<const int32_t> doc_start, std::span<float> out) const;
  // Returns the number of the document that holds a token. REQUIRES: as documents(), with positions.
  size_t document_of(int64_t position) const;
  // Sets the bytes of text that the stream represents, if known.
  void set_text_bytes(int64_t text_bytes) { text_bytes_ = text_bytes; }
  // Sets the bytes of text of every token id (token_bytes() of token_source_text.h), for bits per byte.
  using TokenBytes = std::shared_ptr<const std::vector<uint32_t>>;
  static constexpr uint32_t kNoToken = UINT32_MAX;  // the bytes of an id that has no token
  void set_token_bytes(TokenBytes bytes) { token_bytes_ = std::move(bytes); }

  int64_t tokens() const { return segments_.empty() ? 0 : segments_.back().begin + segments_.back().tokens; }
  std::optional<int64_t> text_bytes() const { return text_bytes_; }
  // Returns true if the loss does not count all tokens. Such a stream is packed: its windows begin at
  // multiples of the context, and nothing else may be drawn from it.
  bool is_masked() const;
  // Returns the number of tokens whose prediction the loss counts, in a pass over the whole stream.
  int64_t targets() const;
  // Returns the bytes of text of `count` tokens; nullopt if those of one are unknown, or if the stream is
  // masked. REQUIRES: as read().
  std::optional<int64_t> bytes_of(int64_t begin, int64_t count) const;
  // REQUIRES: no stream was appended to another.
  const DocumentStarts& documents() const;

  // Sets out[i] = token begin + i. Thread-safe. REQUIRES: [begin, begin + out.size()) lies in [0, tokens()).
  void read(int64_t begin, std::span<uint32_t> out) const;

  // Sets doc_start[i] to the index in the window where the document of token i begins, or to 0 if it
  // began before the window. `window` is the tokens read at `begin`. Thread-safe.
  void mark_documents(int64_t begin, std::span<const uint32_t> window, std::span<int32_t> doc_start) const;

  // Sets targets[i], token begin + i, to kIgnoreIndex if the loss does not count it. Returns how many it
  // counts. Thread-safe. REQUIRES: as read().
  int64_t mask_targets(int64_t begin, std::span<int32_t> targets) const;

  // XXH3-64 of the tokens as little-endian uint32; it depends neither on shard boundaries nor on the
  // stored dtype. For a stream longer than full_tokens, it covers the number of tokens and kHashBlocks
  // evenly spread blocks, about full_tokens tokens in total, so that starting a run does not read
  // terabytes. REQUIRES: full_tokens >= kHashBlocks.
  uint64_t content_hash(int64_t full_tokens = int64_t{1} << 28) const;
  static constexpr int64_t kHashBlocks = 4096;

  // Releases the memory that mapped shards occupy after being read (TokenShard::release).
  void release() const;

  // Returns "FILE, token i" for messages: the origin of token `position` of the stream.
  std::string place(int64_t position) const;

 private:
  using Owner = std::variant<TokenShard, MegatronShard, std::vector<uint16_t>, std::vector<uint32_t>,
                             std::unique_ptr<const TokenReader>>;
  struct Segment {
    std::shared_ptr<const Owner> owner;
    int64_t begin;  // position of the first token in the stream
    int64_t tokens;
    int64_t skipped;  // number of the owner's tokens before the first token of this segment
  };
  // A stretch of the stream with one way to tell where documents begin, and what the loss counts.
  struct Stretch {
    int64_t begin;
    DocumentStarts documents;                               // positions count from `begin`
    std::shared_ptr<const std::vector<bool>> targets = {};  // null: all tokens
  };
  template <typename Shard>
  void add_range(Shard shard, int64_t begin, int64_t count);
  void add_segment(Owner owner, int64_t tokens, int64_t skipped = 0);
  // Returns the index of the segment that holds token `position`.
  size_t segment_of(int64_t position) const;
  // Returns the index of the stretch that holds token `position`.
  size_t stretch_of(int64_t position) const;

  std::vector<Segment> segments_;               // segments are never empty
  std::vector<Stretch> stretches_ = {{0, {}}};  // at least one, ascending; the first begins at 0
  std::optional<int64_t> text_bytes_;
  TokenBytes token_bytes_;
  References references_;
};

}  // namespace ingot
