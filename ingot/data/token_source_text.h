// Tokenizes documents in parallel, to memory.
//
// A single document becomes its tokens and nothing else. If there are several, each begins with the
// end-of-text token, as in llm.c's shards. If the tokenizer has no such token, the documents are joined
// and the source lists where they begin.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ingot/data/corpus.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// Tokenizes the documents and calls take() with consecutive runs of tokens, in order, on the calling thread.
struct TokenPiece {
  std::vector<TokenId> tokens;
  std::vector<int64_t> document_begins;  // indices in `tokens` where a document begins
};
void tokenize_pieces(const Documents& documents, const Tokenizer& tokenizer,
                     const std::function<void(TokenPiece)>& take);
// Does the same for one batch of a streamed corpus.
void tokenize_batch(const TextBatch& batch, const Tokenizer& tokenizer,
                    const std::function<void(TokenPiece)>& take);

// Tokenizes to memory, as uint16 if the vocabulary fits, with documents() and text_bytes() set. The
// tokens do not depend on the number of threads.
TokenSource tokenize(const Documents& documents, const Tokenizer& tokenizer);

// One side of a streamed corpus, training or validation.
struct StreamedTokens {
  TokenSource tokens;  // as tokenize() of the documents
  int64_t documents = 0;
  Documents text;  // the documents, if their text is asked for and short enough; otherwise empty
};
struct StreamedSplit {
  StreamedTokens train, val;
};

// KeptText limits the bytes of text that each side returns in addition to its tokens.
struct KeptText {
  int64_t train_bytes = 0, val_bytes = 0;
};

// Tokenizes a corpus to memory without ever holding its text (except what `kept` asks for).
StreamedSplit tokenize(const StreamedCorpus& corpus, const Tokenizer& tokenizer, const KeptText& kept = {},
                       const StreamedCorpus::Progress& progress = {});

// Returns the bytes of text that the stream decodes to; end-of-text tokens count as 0. Used for shards
// whose text is not available. kData error for an id that the tokenizer does not have.
int64_t count_text_bytes(const TokenSource& source, const Tokenizer& tokenizer);

// Returns the bytes of text of every token of a tokenizer, for TokenSource::set_token_bytes; 0 for the end of
// text.
TokenSource::TokenBytes token_bytes(const Tokenizer& tokenizer);

}  // namespace ingot
