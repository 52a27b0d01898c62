// A tokenizer converts text to token ids and back, byte for byte.
//
// It is immutable: every method may be called from several threads at once. encode() of a long text uses
// the thread pool by itself, except inside a parallel_for, where it stays on the calling thread. The ids
// depend only on the text, not on the number of threads or on earlier calls.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/tokenizer/tokenizer_side_files.h"

namespace ingot {

using TokenId = uint32_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of the text. Text that spells a special token ("<|endoftext|>") is ordinary text; an
  // added token of a tokenizer.json that is not special is found in text. Bytes that are not UTF-8 are
  // encoded too: decode(encode(text)) == text for any bytes, unless the tokenizer has a normalizer, an
  // unknown token or pieces that are removed. kData error, naming the character, for a character that a
  // vocabulary without byte tokens and unknown token lacks.
  virtual void encode(std::string_view text, std::vector<TokenId>& out) const = 0;

  // Does the same, but special tokens are found in the text too, as the library `tokenizers` finds them. The
  // default is for a tokenizer without special tokens.
  virtual void encode_with_special(std::string_view text, std::vector<TokenId>& out) const {
    encode(text, out);
  }

  // Returns the first position in [from, text.size()) where the text may be cut into two that, encoded
  // one after the other, give the same ids; text.size() if none is known.
  virtual size_t find_cut(std::string_view text, size_t /*from*/) const { return text.size(); }

  // Encodes training text: with its special tokens after set_finds_special(true) (data.special), and
  // otherwise without. find_data_cut() is find_cut() for it.
  void encode_data(std::string_view text, std::vector<TokenId>& out) const {
    finds_special_ ? encode_with_special(text, out) : encode(text, out);
  }
  size_t find_data_cut(std::string_view text, size_t from) const;
  void set_finds_special(bool finds_special) { finds_special_ = finds_special; }

  // Appends the bytes of one token, which may be only a part of a UTF-8 character. kData error if the id
  // has no token.
  virtual void append_bytes(TokenId id, std::string& out) const = 0;

  // Appends the text of a whole sequence: the bytes of its tokens, without the space that some tokenizers put
  // before each text.
  virtual void append_text(std::span<const TokenId> ids, std::string& out) const;

  // Returns the highest id + 1. Ids below it may be unused.
  virtual int64_t vocab_size() const = 0;

  // Returns the token that separates documents, or nullopt if the vocabulary has none.
  virtual std::optional<TokenId> end_of_text() const = 0;

  // Returns a Hugging Face tokenizer.json, which load_tokenizer() and the Python library
  // `tokenizers` can read.
  virtual std::string to_json() const = 0;

  // The contents of the other files in the folder of the tokenizer's file; they are not in to_json().
  const TokenizerSideFiles& side_files() const { return side_files_; }
  void set_side_files(TokenizerSideFiles side) { side_files_ = std::move(side); }

  // Returns the tokens that end a text: eos_token_id of side_files(), else the id of its eos_token, else
  // end_of_text(). Empty if there is none of them.
  std::vector<TokenId> eos_ids() const;

 private:
  // Returns true if the text may spell an added token across `at`, or next to it but for white space.
  virtual bool has_added_token_at(std::string_view /*text*/, size_t /*at*/) const { return false; }

  TokenizerSideFiles side_files_;
  bool finds_special_ = false;
};

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text);
std::vector<TokenId> encode_with_special(const Tokenizer& tokenizer, std::string_view text);
std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids);

// Reads a .tiktoken file, a tokenizer.json, an encoder.json or vocab.json (with vocab.bpe or merges.txt
// in the same folder), or a folder that holds one of them. A .tiktoken file does not define how text is
// split. `pattern` defines it (a name or a regex, as in BpeTrainConfig); if `pattern` is empty, the number
// of ranks of a published vocabulary or else the file's name decides. kData error, with file and place,
// for anything malformed. The side files of a tokenizer.json are read with it (tokenizer_side_files.h).
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path, std::string_view pattern = {});

// Reads the text of a tokenizer.json; `name` stands for the file in errors.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name);

// Makes a tokenizer whose ids 0..255 are the bytes themselves.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Makes a tokenizer whose ids are the positions of the corpus's distinct code points in ascending order
// (nanoGPT's character ids). kData error if the corpus is empty or not UTF-8.
std::unique_ptr<Tokenizer> make_char_tokenizer(std::string_view corpus);

struct BpeTrainConfig {
  int64_t vocab_size = 4096;     // 256 bytes + merges + special tokens
  std::string pattern = "gpt2";  // how text is split: gpt2, cl100k, o200k, llama3, qwen2, or a regex
  int64_t min_count = 2;         // rarer pairs are not merged, so the vocabulary may stay smaller
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // they have the last ids, in this order

  void validate() const;  // kUsage error
};

// Trains byte-level BPE (Sennrich et al. 2016, arXiv:1508.07909): the most frequent pair of neighbouring
// tokens within a piece is merged until the vocabulary is full. Among equally frequent pairs the smallest
// (left id, right id) wins. The base ids follow GPT-2's order of bytes, as in Hugging Face's trainer. The
// result does not depend on the number of threads.
std::unique_ptr<Tokenizer> train_bpe(std::span<const std::string_view> documents,
                                     const BpeTrainConfig& config);

// Turns generated bytes into valid UTF-8 for a terminal. The start of a character is held back until the
// rest arrives; bytes that cannot be a part of a character become U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // Ends the stream: bytes still held back are incomplete and become one U+FFFD.
  std::string flush();

 private:
  std::string held_;  // at most 3 bytes
};

}  // namespace ingot
