// load_stream() opens a text that a model is evaluated on.
#pragma once

#include <string>
#include <vector>

#include "ingot/data/chat/chat_data.h"
#include "ingot/data/corpus_tokenizer.h"
#include "ingot/data/token_source.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace ingot {

// Returns true if both give every text the same tokens.
bool are_equal(const Tokenizer& a, const Tokenizer& b);

// Opens text files, token shards, the validation tokens of a prepared folder, or chat data as one stream, for
// evaluation. Throws a kData error if the folder was prepared with another tokenizer. `format` packs chat
// data; without, they are read as text.
TokenSource load_stream(const std::vector<std::string>& specs, const std::string& text_field,
                        const Tokenizer& tokenizer, const CorpusProgress& progress = {},
                        const ChatFormat* format = nullptr);

}  // namespace ingot
