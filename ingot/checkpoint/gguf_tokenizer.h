// Describes a tokenizer in the metadata of a GGUF file, as llama.cpp reads it.
#pragma once

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/gguf.h"

namespace ingot {

// Adds tokens, types, merges, the name of the pre-tokenizer and the end of text. `vocab` is the number of
// rows of the embedding; ids without a token become unused tokens. Returns notes on the rare texts for which
// llama.cpp gives other ids. Throws a kData error with the reason if common texts would get other ids.
std::vector<std::string> add_gguf_tokenizer(GgufMetadata& metadata, const Tokenizer& tokenizer,
                                            int64_t vocab);

}  // namespace ingot
