#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/bpe_trainer.h"
#include "ingot/data/tokenizer/bpe_words.h"
#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/data/tokenizer/tokenizer_build.h"
#include "ingot/formats/byte_chars.h"

namespace ingot {
namespace {

constexpr uint32_t kNone = 0xFFFFFFFFu;

// The pairs of neighbouring tokens, with their counts and places.
class PairTable {
 public:
  struct Pair {
    uint64_t key = 0;              // left id << 32 | right id
    int64_t count = 0;             // occurrences, weighted by the words' counts
    std::vector<uint32_t> places;  // positions of the left token; may be stale
    bool is_touched = false;
  };

  Pair& at(uint32_t left, uint32_t right) {
    const uint64_t key = uint64_t{left} << 32 | right;
    const auto [entry, is_new] = index_.try_emplace(key, static_cast<uint32_t>(pairs_.size()));
    if (is_new) pairs_.emplace_back().key = key;
    return pairs_[entry->second];
  }
  void add(uint32_t left, uint32_t right, int64_t count, uint32_t place) {
    Pair& pair = at(left, right);
    pair.count += count;
    pair.places.push_back(place);
    if (pair.is_touched) return;
    pair.is_touched = true;
    touched_.push_back(static_cast<uint32_t>(&pair - pairs_.data()));
  }
  // Calls f for every pair that add() has touched since the last call.
  template <typename F>
  void drain_touched(F&& f) {
    for (uint32_t i : touched_) {
      pairs_[i].is_touched = false;
      f(pairs_[i]);
    }
    touched_.clear();
  }

 private:
  std::unordered_map<uint64_t, uint32_t> index_;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> touched_;
};

// The distinct words, as linked lists of tokens in one array.
class MergeRun {
 public:
  MergeRun(const std::vector<WordCount>& words, const std::array<uint32_t, 256>& byte_ids) {
    size_t symbol_count = 0;
    for (const WordCount& word : words) symbol_count += word.bytes.size();
    if (symbol_count >= kNone)
      fail(ErrorKind::kMemory, "tokenizer train: {} bytes of distinct words; train on less text",
           symbol_count);
    symbols_.reserve(symbol_count);
    for (const WordCount& word : words) append(word, byte_ids);
    for (uint32_t i = 0; i < symbols_.size(); ++i)
      if (symbols_[i].next != kNone)
        pairs_.add(symbols_[i].id, symbols_[symbols_[i].next].id, counts_[symbols_[i].word], i);
    push_touched();
  }

  // The most frequent pair; count is 0 if there is no pair.
  struct Best {
    int64_t count = 0;
    uint32_t left = 0, right = 0;
  };
  Best best() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const Best pair{top.count, static_cast<uint32_t>(top.key >> 32), static_cast<uint32_t>(top.key)};
      const int64_t count = pairs_.at(pair.left, pair.right).count;
      if (count == top.count) return pair;
      queue_.pop();
      if (count > 0) queue_.push({count, top.key});
    }
    return {};
  }

  // Replaces every occurrence of the pair, from left to right in each word.
  void merge(uint32_t left, uint32_t right, uint32_t result) {
    PairTable::Pair& pair = pairs_.at(left, right);
    std::vector<uint32_t> places = std::move(pair.places);
    if (left == right) std::sort(places.begin(), places.end());  // "aaa" becomes (aa)(a)
    for (uint32_t place : places) merge_at(place, left, right, result);
    pairs_.at(left, right).count = 0;
    push_touched();
  }

 private:
  struct Symbol {
    uint32_t id, previous, next, word;
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {  // the greatest candidate is merged first
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  void append(const WordCount& word, const std::array<uint32_t, 256>& byte_ids) {
    const auto begin = static_cast<uint32_t>(symbols_.size());
    const auto n = static_cast<uint32_t>(word.bytes.size());
    for (uint32_t i = 0; i < n; ++i)
      symbols_.push_back({byte_ids[static_cast<uint8_t>(word.bytes[i])], i == 0 ? kNone : begin + i - 1,
                          i + 1 == n ? kNone : begin + i + 1, static_cast<uint32_t>(counts_.size())});
    counts_.push_back(word.count);
  }

  void merge_at(uint32_t place, uint32_t left, uint32_t right, uint32_t result) {
    Symbol& symbol = symbols_[place];
    if (symbol.id != left || symbol.next == kNone || symbols_[symbol.next].id != right) return;  // stale
    Symbol& gone = symbols_[symbol.next];
    const int64_t count = counts_[symbol.word];
    if (symbol.previous != kNone) {
      const uint32_t before = symbols_[symbol.previous].id;
      pairs_.at(before, left).count -= count;
      pairs_.add(before, result, count, symbol.previous);
    }
    if (gone.next != kNone) {
      const uint32_t after = symbols_[gone.next].id;
      pairs_.at(right, after).count -= count;
      pairs_.add(result, after, count, place);
      symbols_[gone.next].previous = place;
    }
    symbol.id = result;
    symbol.next = gone.next;
    gone.id = kNone;
  }

  void push_touched() {
    pairs_.drain_touched([&](const PairTable::Pair& pair) { queue_.push({pair.count, pair.key}); });
  }

  std::vector<Symbol> symbols_;
  std::vector<int64_t> counts_;  // count of each word
  PairTable pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void BpeTrainConfig::validate() const {
  constexpr int64_t kMaxVocab = 1 << 24;
  const auto least = static_cast<int64_t>(256 + special_tokens.size());
  if (vocab_size < least || vocab_size > kMaxVocab)
    fail(ErrorKind::kUsage, "vocab_size must be from {} (256 bytes and {} special tokens) to {}, got {}",
         least, special_tokens.size(), kMaxVocab, vocab_size);
  if (min_count < 1) fail(ErrorKind::kUsage, "min_count must be at least 1, got {}", min_count);
  std::unordered_set<std::string_view> names;
  for (const std::string& token : special_tokens)
    if (token.empty() || !names.insert(token).second)
      fail(ErrorKind::kUsage, "special tokens must be distinct and not empty, got '{}'", token);
}

namespace {

std::unique_ptr<Tokenizer> merge_words(const std::vector<WordCount>& words, const Pretokenizer& pretokenizer,
                                       const BpeTrainConfig& config) {
  TokenizerSpec spec;
  spec.pattern = pretokenizer.expression();
  std::array<uint32_t, 256> byte_ids{};
  for (uint8_t byte : bytes_in_char_order()) {
    byte_ids[byte] = static_cast<uint32_t>(spec.tokens.size());
    spec.tokens.emplace_back(1, static_cast<char>(byte));
  }
  const size_t full = static_cast<size_t>(config.vocab_size) - config.special_tokens.size();
  MergeRun run(words, byte_ids);
  std::unordered_map<std::string, uint32_t> id_of;  // two different merges may spell the same token
  while (spec.tokens.size() < full) {
    const MergeRun::Best best = run.best();
    if (best.count < config.min_count) break;
    std::string bytes = spec.tokens[best.left] + spec.tokens[best.right];
    const auto [entry, is_new] = id_of.try_emplace(bytes, static_cast<uint32_t>(spec.tokens.size()));
    if (is_new) spec.tokens.push_back(std::move(bytes));
    spec.merges.push_back({best.left, best.right, entry->second});
    run.merge(best.left, best.right, entry->second);
  }
  for (const std::string& token : config.special_tokens)
    spec.added.push_back({static_cast<uint32_t>(spec.tokens.size() + spec.added.size()), token, true});
  check_spec(spec, "trained tokenizer");
  return make_tokenizer(std::move(spec));
}

}  // namespace

std::unique_ptr<Tokenizer> train_bpe(std::span<const std::string_view> documents,
                                     const BpeTrainConfig& config) {
  config.validate();
  const Pretokenizer pretokenizer(config.pattern);
  return merge_words(count_words(documents, pretokenizer), pretokenizer, config);
}

BpeTrainer::BpeTrainer(BpeTrainConfig config) : config_(std::move(config)), pretokenizer_(config_.pattern) {
  config_.validate();
}

void BpeTrainer::add(std::span<const std::string_view> documents) {
  for (const WordCount& word : count_words(documents, pretokenizer_))
    counts_[std::string(word.bytes)] += word.count;
}

std::unique_ptr<Tokenizer> BpeTrainer::train() const {
  std::vector<WordCount> words;
  words.reserve(counts_.size());
  for (const auto& [bytes, count] : counts_) words.push_back({bytes, count});
  return merge_words(words, pretokenizer_, config_);
}

}  // namespace ingot
