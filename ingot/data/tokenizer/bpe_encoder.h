// Byte-level BPE of one piece. Every byte becomes a token; then the neighbouring pair with the
// lowest rank (the leftmost among equals) is merged until no pair has a rank (Sennrich et al.
// 2016, arXiv:1508.07909).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/tokenizer/bpe_symbols.h"
#include "ingot/data/tokenizer/token_index.h"
#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

// The ranks of pairs of ids, in an open-addressing table that is built once. Consecutive merges with the
// same result (the splits of one tiktoken rank) have the same rank.
class PairRanks {
 public:
  explicit PairRanks(const std::vector<TokenizerMerge>& merges);

  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct Found {
    uint32_t rank;    // kNone if the pair does not merge
    uint32_t result;  // id of the merged token
  };
  Found find(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = hash(key) & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return slot.found;
      if (slot.key == kEmpty) return {kNone, 0};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Found found{kNone, 0};
  };
  static uint64_t key_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  static uint64_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    return key ^ (key >> 32);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// Returns the merges of a tiktoken table of ranks, in order of rank. Each token of several bytes is built
// with the ranks below its own; the two parts that remain are its merge. If more than two parts remain
// for any token, no order of merges made the table. Then every split of every token into two tokens is a
// merge, which is what tiktoken does with any table. REQUIRES: check_spec passes for the tokens.
std::vector<TokenizerMerge> merges_from_ranks(const std::vector<std::string>& tokens);

// Returns true if merging the bytes of each token gives the token.
bool merges_make_every_token(const std::vector<std::string>& tokens,
                             const std::vector<TokenizerMerge>& merges);

// Working memory of one thread: a cache of short pieces and the arrays for merging. Its content never
// changes a result.
class BpeWorkspace {
 public:
  BpeWorkspace();

 private:
  friend class BpeEncoder;
  static constexpr size_t kCachedBytes = 16, kCachedTokens = 3;
  struct Entry {                   // 32 bytes
    uint64_t first = 0, last = 0;  // first and last 8 bytes of the piece; they overlap unless it has 16
    std::array<uint32_t, kCachedTokens> ids{};
    uint8_t length_bytes = 0;  // 0 if the entry is free
    uint8_t token_count = 0;
  };
  struct Node {
    uint32_t id, rank, result;  // id of the token; rank and result of the pair that begins here
    uint32_t previous, next;    // positions of the neighbours; kNone at the ends
  };
  std::vector<Entry> cache_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank << 32 | position
};

// Immutable. Thread-safe if each thread has its own workspace.
class BpeEncoder {
 public:
  // REQUIRES: every single byte is a token (check_spec). `tokens` is borrowed and must outlive the encoder.
  BpeEncoder(const std::vector<std::string>& tokens, const std::vector<TokenizerMerge>& merges,
             bool takes_whole_pieces);
  // An encoder whose merging begins with BpeSymbols instead of the bytes. `spec` is borrowed.
  explicit BpeEncoder(const TokenizerSpec& spec);
  BpeEncoder(const BpeEncoder&) = delete;
  BpeEncoder& operator=(const BpeEncoder&) = delete;

  // Writes the ids of the piece (at most piece.size()) to `out` and returns the end of what was written.
  // Takes O(n log n) steps for n = piece.size(). REQUIRES: piece.size() < 2^32 - 1.
  uint32_t* encode(std::string_view piece, uint32_t* out, BpeWorkspace& workspace) const;

 private:
  uint32_t* encode_uncached(std::string_view piece, uint32_t* out, BpeWorkspace& workspace) const;
  // Each merges the ids from `out` to `end` in place and returns their new end.
  uint32_t* merge(uint32_t* out, uint32_t* end, BpeWorkspace& workspace) const;
  uint32_t* merge_short(uint32_t* out, size_t n) const;
  uint32_t* merge_long(uint32_t* out, size_t count, BpeWorkspace& workspace) const;

  std::array<uint32_t, 256> byte_ids_{};
  PairRanks ranks_;
  TokenIndex index_;
  std::optional<BpeSymbols> symbols_;
  bool takes_whole_pieces_, has_merges_;
};

}  // namespace ingot
