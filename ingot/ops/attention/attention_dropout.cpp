// Dropout in the attention kernels: the factors of one key for a register of queries at a time.
#include "ingot/ops/attention/attention_kernels.h"

namespace ingot::cpu {
namespace {

constexpr int64_t kMaxQueries = 64;  // maximum number of queries of a tile

// Calls f(key row, first lane, end lane) for every visible key; the lanes are whole registers that cover
// the queries that see the key.
template <typename F>
void for_each_visible(const tile::Block& block, F&& f) {
  const int64_t end = tile::round_up(block.m, tile::kLanes);
  for (int64_t j = 0; j < block.n && block.first_query(j) < block.m; ++j)
    f(j, block.first_query(j) / tile::kLanes * tile::kLanes, end);
}

}  // namespace

void AttentionKeep::fill(tile::Matrix keep, const tile::Block& block, int64_t first_query,
                         int64_t first_key) const {
  constexpr int64_t kWords = RandomBlocks::kWords;
  INGOT_CHECK(block.m <= kMaxQueries, "AttentionKeep: {} queries in a tile", block.m);
  uint32_t words[kMaxQueries / kWords + 1][kWords];
  for_each_visible(block, [&](int64_t j, int64_t begin, int64_t end) {
    const auto first =
        static_cast<uint64_t>(first_word_ + (first_key + j) * row_words_ + first_query + begin);
    const auto skip = static_cast<int64_t>(first % 4);
    for (int64_t i = 0; i * kWords < skip + end - begin; ++i)
      random_.fill(words[i], (first + static_cast<uint64_t>(i * kWords)) / 4);
    const uint32_t* own = &words[0][0] + skip;
    for (int64_t i = begin; i < end; i += tile::kLanes) {
      vec::UintVec word;
      std::memcpy(&word, own + i - begin, sizeof word);
      vec::store(keep.row(j) + i, word < rule_.threshold ? vec::Vec{} : vec::splat(rule_.scale));
    }
  });
}

void multiply_visible(tile::Matrix s, tile::Matrix keep, const tile::Block& block) {
  for_each_visible(block, [&](int64_t j, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += tile::kLanes)
      vec::store(s.row(j) + i, vec::load(s.row(j) + i) * vec::load(keep.row(j) + i));
  });
}

}  // namespace ingot::cpu
