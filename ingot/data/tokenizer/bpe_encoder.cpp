#include "ingot/data/tokenizer/bpe_encoder.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstring>
#include <functional>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr size_t kShortCount = 64;  // up to so many symbols are merged by scanning an array
constexpr size_t kCacheBits = 15;   // 2^15 entries of 32 bytes: 1 MiB

// Returns a power of two with at least twice as many slots as entries.
size_t table_slots(size_t entries) { return std::bit_ceil(std::max<size_t>(2 * entries, 16)); }

uint64_t load(const char* p, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, p, bytes);
  return value;
}

}  // namespace

PairRanks::PairRanks(const std::vector<TokenizerMerge>& merges)
    : slots_(table_slots(merges.size())), mask_(slots_.size() - 1) {
  uint32_t rank = 0;
  for (size_t k = 0; k < merges.size(); ++k) {
    if (k > 0 && merges[k].result != merges[k - 1].result) ++rank;
    const uint64_t key = key_of(merges[k].left, merges[k].right);
    size_t i = hash(key) & mask_;
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
    if (slots_[i].key == kEmpty) slots_[i] = {key, {rank, merges[k].result}};
  }
}

TokenIndex::TokenIndex(const std::vector<std::string>& tokens)
    : tokens_(&tokens), slots_(table_slots(tokens.size()), kNone), mask_(slots_.size() - 1) {
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    size_t i = XXH3_64bits(tokens[id].data(), tokens[id].size()) & mask_;
    while (slots_[i] != kNone) i = (i + 1) & mask_;
    slots_[i] = id;
  }
}

uint32_t TokenIndex::find(std::string_view bytes) const {
  for (size_t i = XXH3_64bits(bytes.data(), bytes.size()) & mask_;; i = (i + 1) & mask_) {
    const uint32_t id = slots_[i];
    if (id == kNone || (*tokens_)[id] == bytes) return id;
  }
}

namespace {

// Builds a token with only the ranks below its own and returns the offset where its last two parts meet,
// or 0 if more than two parts remain. `parts` and `ranks` are working memory.
size_t last_split(const TokenIndex& index, std::string_view token, uint32_t id, std::vector<uint32_t>& parts,
                  std::vector<uint32_t>& ranks) {
  parts.resize(token.size() + 1);  // begin of each part, then the end of the token
  for (uint32_t i = 0; i <= token.size(); ++i) parts[i] = i;
  const auto rank_at = [&](size_t i) {  // rank of part i joined with part i + 1
    const uint32_t rank = index.find(token.substr(parts[i], parts[i + 2] - parts[i]));
    return rank < id ? rank : TokenIndex::kNone;
  };
  ranks.resize(token.size() - 1);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = rank_at(i);
  while (!ranks.empty()) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());
    if (*lowest == TokenIndex::kNone) break;
    const auto i = static_cast<size_t>(lowest - ranks.begin());
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(lowest);
    if (i < ranks.size()) ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
  return parts.size() == 3 ? parts[1] : 0;
}

std::vector<TokenizerMerge> all_splits(const std::vector<std::string>& tokens, const TokenIndex& index) {
  std::vector<TokenizerMerge> merges;
  for (uint32_t id = 0; id < tokens.size(); ++id)
    for (size_t split = 1; split < tokens[id].size(); ++split) {
      const std::string_view token = tokens[id];
      const uint32_t left = index.find(token.substr(0, split)), right = index.find(token.substr(split));
      if (left != TokenIndex::kNone && right != TokenIndex::kNone) merges.push_back({left, right, id});
    }
  return merges;
}

}  // namespace

std::vector<TokenizerMerge> merges_from_ranks(const std::vector<std::string>& tokens) {
  const TokenIndex index(tokens);
  std::vector<TokenizerMerge> merges(tokens.size(), {TokenIndex::kNone, 0, 0});
  std::atomic<bool> is_consistent{true};
  parallel_for(static_cast<int64_t>(tokens.size()), 1024, [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> parts, ranks;
    for (auto id = static_cast<uint32_t>(begin); id < static_cast<uint32_t>(end); ++id) {
      const std::string_view token = tokens[id];
      if (token.size() < 2) continue;
      const size_t split = last_split(index, token, id, parts, ranks);
      if (split == 0)
        is_consistent = false;
      else
        merges[id] = {index.find(token.substr(0, split)), index.find(token.substr(split)), id};
    }
  });
  if (!is_consistent) return all_splits(tokens, index);
  std::erase_if(merges, [](const TokenizerMerge& merge) { return merge.left == TokenIndex::kNone; });
  return merges;
}

BpeWorkspace::BpeWorkspace() : cache_(size_t{1} << kCacheBits) {}

BpeEncoder::BpeEncoder(const std::vector<std::string>& tokens, const std::vector<TokenizerMerge>& merges,
                       bool takes_whole_pieces)
    : ranks_(merges), index_(tokens), takes_whole_pieces_(takes_whole_pieces), has_merges_(!merges.empty()) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = index_.find(std::string_view(&c, 1));
    INGOT_CHECK(byte_ids_[byte] != TokenIndex::kNone, "BpeEncoder: no token for byte {}", byte);
  }
}

BpeEncoder::BpeEncoder(const TokenizerSpec& spec)
    : ranks_(spec.merges),
      index_(spec.tokens),
      symbols_(std::in_place, index_, spec.pipeline),
      takes_whole_pieces_(spec.takes_whole_pieces),
      has_merges_(!spec.merges.empty()) {}

bool merges_make_every_token(const std::vector<std::string>& tokens,
                             const std::vector<TokenizerMerge>& merges) {
  const BpeEncoder encoder(tokens, merges, false);
  BpeWorkspace workspace;
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    ids.resize(std::max(ids.size(), tokens[id].size()));
    const uint32_t* end = encoder.encode(tokens[id], ids.data(), workspace);
    if (end - ids.data() != 1 || ids[0] != id) return false;
  }
  return true;
}

uint32_t* BpeEncoder::encode(std::string_view piece, uint32_t* out, BpeWorkspace& workspace) const {
  const size_t n = piece.size();
  if (n > BpeWorkspace::kCachedBytes) return encode_uncached(piece, out, workspace);
  if (n == 0) return out;
  const char* p = piece.data();
  uint64_t first, last = 0;
  if (n >= 8) {
    first = load(p, 8), last = load(p + n - 8, 8);
  } else if (n >= 4) {
    first = load(p, 4) | load(p + n - 4, 4) << 32;
  } else {
    first = load(p, 1) | load(p + n / 2, 1) << 8 | load(p + n - 1, 1) << 16;
  }
  uint64_t hash = (first ^ (last + n) * 0x9FB21C651E98DF25u) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 29;
  BpeWorkspace::Entry& entry = workspace.cache_[hash * 0xBF58476D1CE4E5B9u >> (64 - kCacheBits)];
  if (entry.first == first && entry.last == last && entry.length_bytes == n) {
    out[0] = entry.ids[0];  // most entries have only one id
    for (size_t i = 1; i < entry.token_count; ++i) out[i] = entry.ids[i];
    return out + entry.token_count;
  }
  uint32_t* end = encode_uncached(piece, out, workspace);
  const auto token_count = static_cast<size_t>(end - out);
  if (token_count <= BpeWorkspace::kCachedTokens) {
    entry.first = first, entry.last = last;
    std::copy(out, end, entry.ids.begin());
    entry.length_bytes = static_cast<uint8_t>(n);
    entry.token_count = static_cast<uint8_t>(token_count);
  }
  return end;
}

uint32_t* BpeEncoder::encode_uncached(std::string_view piece, uint32_t* out, BpeWorkspace& workspace) const {
  if (piece.size() == 1 && !symbols_) {
    *out = byte_ids_[static_cast<uint8_t>(piece[0])];
    return out + 1;
  }
  if (takes_whole_pieces_) {
    const uint32_t id = index_.find(piece);
    if (id != TokenIndex::kNone) {
      *out = id;
      return out + 1;
    }
  }
  uint32_t* end = symbols_ ? symbols_->write(piece, out)
                           : std::transform(piece.begin(), piece.end(), out,
                                            [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; });
  return has_merges_ ? merge(out, end, workspace) : end;
}

uint32_t* BpeEncoder::merge(uint32_t* out, uint32_t* end, BpeWorkspace& workspace) const {
  const auto count = static_cast<size_t>(end - out);
  return count <= kShortCount ? merge_short(out, count) : merge_long(out, count, workspace);
}

// Takes O(n^2) steps on arrays of at most kShortCount.
uint32_t* BpeEncoder::merge_short(uint32_t* out, size_t n) const {
  std::array<PairRanks::Found, kShortCount> pairs;  // pairs[i] is the pair out[i], out[i + 1]
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = ranks_.find(out[i], out[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == PairRanks::kNone) break;
    out[best] = pairs[best].result;
    for (size_t i = best + 1; i + 1 < n; ++i) out[i] = out[i + 1];
    for (size_t i = best; i + 2 < n; ++i) pairs[i] = pairs[i + 1];
    --n;
    if (best + 1 < n) pairs[best] = ranks_.find(out[best], out[best + 1]);
    if (best > 0) pairs[best - 1] = ranks_.find(out[best - 1], out[best]);
  }
  return out + n;
}

// Takes O(n log n) steps, with a heap of candidate pairs over a linked list. A candidate is stale if the
// pair at its position no longer has its rank.
uint32_t* BpeEncoder::merge_long(uint32_t* out, size_t count, BpeWorkspace& workspace) const {
  INGOT_CHECK(count < PairRanks::kNone, "tokenizer: a piece of {} symbols is too long", count);
  constexpr uint32_t kEnd = PairRanks::kNone;
  const auto n = static_cast<uint32_t>(count);
  auto& nodes = workspace.nodes_;
  auto& heap = workspace.heap_;
  nodes.resize(n);
  heap.clear();
  for (uint32_t i = 0; i < n; ++i)
    nodes[i] = {out[i], kEnd, 0, i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1};
  const auto rate = [&](uint32_t i) {  // looks up the pair at i
    PairRanks::Found found{PairRanks::kNone, 0};
    if (nodes[i].next != kEnd) found = ranks_.find(nodes[i].id, nodes[nodes[i].next].id);
    nodes[i].rank = found.rank, nodes[i].result = found.result;
    return found.rank != PairRanks::kNone;
  };
  const auto candidate = [&](uint32_t i) { return uint64_t{nodes[i].rank} << 32 | i; };
  for (uint32_t i = 0; i < n; ++i)
    if (rate(i)) heap.push_back(candidate(i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (!rate(i)) return;
    heap.push_back(candidate(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<uint32_t>(top);
    if (nodes[i].rank != top >> 32) continue;
    const uint32_t gone = nodes[i].next;
    nodes[i].id = nodes[i].result;
    nodes[i].next = nodes[gone].next;
    nodes[gone].rank = kEnd;
    if (nodes[i].next != kEnd) nodes[nodes[i].next].previous = i;
    push(i);
    if (nodes[i].previous != kEnd) push(nodes[i].previous);
  }
  for (uint32_t i = 0; i != kEnd; i = nodes[i].next) *out++ = nodes[i].id;
  return out;
}

}  // namespace ingot
