// Token sources out of text: documents through a tokenizer, in parallel, to memory or to a cache on disk.
//
// One document becomes its tokens and nothing else. Of several documents each begins with the end-of-text
// token, as in llm.c's shards; a tokenizer without one leaves them joined, and the source lists where they
// begin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "ingot/data/corpus.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// The next tokens of the stream and where in them documents begin. Pieces come in order, on the calling
// thread.
struct TokenPiece {
  std::vector<TokenId> tokens;
  std::vector<int64_t> document_begins;  // index in `tokens`
};
void tokenize_pieces(const Documents& documents, const Tokenizer& tokenizer,
                     const std::function<void(TokenPiece)>& take);
// The same for the pieces of one part of a streamed corpus.
void tokenize_batch(const TextBatch& batch, const Tokenizer& tokenizer,
                    const std::function<void(TokenPiece)>& take);

// The stream in memory, uint16 where the vocabulary allows it, with documents() and text_bytes() set. The
// tokens are the same for any number of threads.
TokenSource tokenize(const Documents& documents, const Tokenizer& tokenizer);

// The same from `cache_folder`/KEY, where KEY is a hash of texts and tokenizer; tokenized and kept there if
// it is not there yet or is damaged. The shards appear whole or not at all, so processes may share the
// folder.
TokenSource tokenize_cached(const Documents& documents, const Tokenizer& tokenizer,
                            const std::filesystem::path& cache_folder);

// Bytes of text that the stream decodes to; end-of-text tokens stand for none. For shards, whose text is not
// at hand. kData error for an id that the tokenizer does not have.
int64_t count_text_bytes(const TokenSource& source, const Tokenizer& tokenizer);

}  // namespace ingot
