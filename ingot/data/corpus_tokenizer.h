// Makes a tokenizer from a streamed corpus, in bounded memory.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ingot/data/corpus_stream.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// Called with the name of the current phase and the input bytes read so far and in total.
using CorpusProgress = std::function<void(std::string_view phase, int64_t done, int64_t total)>;

// Returns true for "bpe", "char" and "byte", which name no file.
bool is_corpus_tokenizer(const std::string& kind);

// kind: as above. A bpe is trained on the training text of all corpora, and is train_bpe() of it; char has
// the characters of all of their text. REQUIRES: is_corpus_tokenizer(kind).
std::unique_ptr<Tokenizer> make_corpus_tokenizer(const std::string& kind, const BpeTrainConfig& bpe,
                                                 std::span<const StreamedCorpus* const> corpora,
                                                 const CorpusProgress& progress = {});

// Adapts `progress` to what reads a corpus in this phase; `progress` must outlive the result.
StreamedCorpus::Progress in_phase(const CorpusProgress& progress, std::string_view phase);

}  // namespace ingot
