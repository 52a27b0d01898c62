// Hugging Face tokenizer files of byte-level BPE: tokenizer.json, and GPT-2's pair encoder.json +
// vocab.bpe (the same as vocab.json + merges.txt).
//
// The readers throw kData errors that name the file and the place (line, or path in the JSON) for
// malformed files and for what is not supported: models other than BPE, steps that formats/tokenizer/ does
// not read, nesting deeper than 64.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

// Reads a tokenizer.json into the simplest kind of TokenizerSpec: characters if the file has neither
// pre-tokenizer nor merges, byte-level BPE if it only splits text by one expression, else a pipeline
// (tokenizer_spec.h). Merges are read in both spellings, "a b" and ["a", "b"]. Post-processors, truncation
// and padding are ignored, because Ingot adds no tokens of its own to an encoding.
TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& name);

// Returns a pipeline's file as it was read. Otherwise writes merges as "a b", which every version of the
// Python library reads. If is_gpt2_pattern, ByteLevel's own pattern is used; otherwise the pattern becomes a
// Split.
std::string write_tokenizer_json(const TokenizerSpec& spec, bool is_gpt2_pattern);

// Reads GPT-2's pair. The pattern is "gpt2". Vocabulary entries that look like <|...|> are special tokens.
TokenizerSpec read_gpt2_vocab(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                              const std::string& merges_name);
std::string write_vocab_json(const TokenizerSpec& spec);
std::string write_merges_txt(const TokenizerSpec& spec);

// Return the text of a small file that Hugging Face stores in the same folder as a tokenizer. tokens: texts
// by "eos_token", "bos_token", ...; empty ones are left out. chat_template: a JSON value that is written
// under this key; empty if there is none.
std::string write_tokenizer_config_json(const TokenizerSpec& spec,
                                        const std::map<std::string, std::string>& tokens,
                                        const std::string& chat_template = {});
std::string write_special_tokens_map_json(const std::map<std::string, std::string>& tokens);

}  // namespace ingot
