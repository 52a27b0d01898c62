// Hugging Face tokenizer files of byte-level BPE: tokenizer.json, and GPT-2's pair encoder.json + vocab.bpe
// (the same pair as vocab.json + merges.txt).
//
// Readers throw kData naming the file and the place (line, or path in the JSON) for anything malformed or not
// supported: other models than BPE, normalizers, more than one Split, nesting deeper than 64.
#pragma once

#include <string>
#include <string_view>

#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

// Pre-tokenizers read: ByteLevel and Sequence[Split, ByteLevel]; without one, a vocabulary of single
// characters. Merges are read in both spellings, "a b" and ["a", "b"]. Post-processors, truncation and
// padding are not read: Ingot adds no tokens of its own to an encoding.
TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& name);

// Merges are written as "a b", which every version of the Python library reads. If `is_gpt2_pattern`, the
// pattern is ByteLevel's own; otherwise it becomes a Split.
std::string write_tokenizer_json(const TokenizerSpec& spec, bool is_gpt2_pattern);

// GPT-2's pair. The pattern is "gpt2"; tokens that merges cannot make and that look like <|...|> are special.
TokenizerSpec read_gpt2_vocab(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                              const std::string& merges_name);
std::string write_vocab_json(const TokenizerSpec& spec);
std::string write_merges_txt(const TokenizerSpec& spec);

// The small files that Hugging Face keeps beside a tokenizer.
std::string write_tokenizer_config_json(const TokenizerSpec& spec, const std::string& end_of_text);
std::string write_special_tokens_map_json(const std::string& end_of_text);

}  // namespace ingot
