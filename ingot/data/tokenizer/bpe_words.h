// Counts the distinct pieces of a corpus, which are the input of BPE training.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ingot/data/tokenizer/pretokenize.h"

namespace ingot {

struct WordCount {
  std::string_view bytes;  // view into the documents
  int64_t count = 0;
};

// Returns every distinct piece of two bytes or more with its number of occurrences, in no particular
// order. Runs in parallel; the counts do not depend on the number of threads.
std::vector<WordCount> count_words(std::span<const std::string_view> documents,
                                   const Pretokenizer& pretokenizer);

}  // namespace ingot
