#include "ingot/data/tokenizer/bpe_words.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr size_t kCountChunkBytes = size_t{1} << 20;  // bytes of text that one thread reads at a time
constexpr size_t kCountedAtOnce = 1024;

// A hash table with open addressing; its keys are views into the documents.
class WordTable {
 public:
  WordTable() : slots_(size_t{1} << 12) {}

  void add(std::string_view word, int64_t count) { add(word, count, XXH3_64bits(word.data(), word.size())); }
  void add(const WordTable& other) {
    for (const Slot& slot : other.slots_)
      if (slot.word.count > 0) add(slot.word.bytes, slot.word.count, slot.hash);
  }
  std::vector<WordCount> words() const {
    std::vector<WordCount> words;
    words.reserve(used_);
    for (const Slot& slot : slots_)
      if (slot.word.count > 0) words.push_back(slot.word);
    return words;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    WordCount word;
  };

  void add(std::string_view word, int64_t count, uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t i = hash & mask;
    while (slots_[i].word.count > 0) {
      if (slots_[i].hash == hash && slots_[i].word.bytes == word) {
        slots_[i].word.count += count;
        return;
      }
      i = (i + 1) & mask;
    }
    slots_[i] = {hash, {word, count}};
    if (2 * ++used_ > slots_.size()) grow();
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    used_ = 0;
    for (const Slot& slot : old)
      if (slot.word.count > 0) add(slot.word.bytes, slot.word.count, slot.hash);
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

struct Chunk {
  std::string_view document;
  size_t begin, end;
};

std::vector<Chunk> cut_documents(std::span<const std::string_view> documents,
                                 const Pretokenizer& pretokenizer) {
  std::vector<Chunk> chunks;
  for (std::string_view document : documents)
    for (size_t begin = 0; begin < document.size();) {
      const size_t end = document.size() - begin <= 2 * kCountChunkBytes
                             ? document.size()
                             : pretokenizer.find_cut(document, begin + kCountChunkBytes);
      chunks.push_back({document, begin, end});
      begin = end;
    }
  return chunks;
}

void count_chunk(const Chunk& chunk, const Pretokenizer& pretokenizer, WordTable& table) {
  PieceReader reader(pretokenizer, chunk.document, chunk.begin, chunk.end);
  std::array<size_t, kCountedAtOnce> ends;
  size_t begin = chunk.begin;
  while (const size_t count = reader.next(ends))
    for (size_t i = 0; i < count; ++i) {
      if (ends[i] - begin > 1) table.add(chunk.document.substr(begin, ends[i] - begin), 1);
      begin = ends[i];
    }
}

}  // namespace

std::vector<WordCount> count_words(std::span<const std::string_view> documents,
                                   const Pretokenizer& pretokenizer) {
  const std::vector<Chunk> chunks = cut_documents(documents, pretokenizer);
  std::vector<WordTable> tables(static_cast<size_t>(num_threads()));
  parallel_ranges(static_cast<int64_t>(chunks.size()), 1, [&](int thread, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      count_chunk(chunks[static_cast<size_t>(i)], pretokenizer, tables[static_cast<size_t>(thread)]);
  });
  for (size_t i = 1; i < tables.size(); ++i) tables[0].add(tables[i]);
  return tables[0].words();
}

}  // namespace ingot
