#include "ingot/run/data/load_stream.h"

#include <filesystem>

#include "ingot/core/error.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"

namespace ingot {
namespace fs = std::filesystem;

bool are_equal(const Tokenizer& a, const Tokenizer& b) {
  return a.vocab_size() == b.vocab_size() && a.to_json() == b.to_json();
}

namespace {

TokenSource open_stream(const std::vector<std::string>& specs, const std::string& text_field,
                        const Tokenizer& tokenizer, const CorpusProgress& progress,
                        const ChatFormat* format) {
  if (const std::optional<fs::path> folder = prepared_folder(specs)) {
    const Dataset dataset = read_dataset(*folder);
    if (!are_equal(*open_dataset_tokenizer(*folder, dataset), tokenizer))
      fail(ErrorKind::kData,
           "{}: was prepared with another tokenizer than this model's; give the text, or prepare it with "
           "--tokenizer "
           "and the model's folder",
           folder->string());
    if (dataset.val.tokens == 0)
      fail(ErrorKind::kData, "{}: has no validation part; name shards, e.g. {}/train_*.bin", folder->string(),
           folder->string());
    return open_dataset_part(*folder, dataset.val, tokenizer);
  }
  if (format && !names_shards(specs) && names_chat(specs, text_field)) {
    TokenSource chats =
        pack(read_chats(specs, *format).conversations, format->context, tokenizer.vocab_size());
    if (chats.references())
      fail(ErrorKind::kData,
           "{}: holds pairs of answers, whose loss only a run with dpo.beta knows; give them as data.val",
           specs.front());
    return chats;
  }
  if (!names_shards(specs)) {
    const StreamedCorpus corpus(specs, 0, text_field, in_phase(progress, "reading"));
    return tokenize(corpus, tokenizer, {}, in_phase(progress, "tokenizing")).train.tokens;
  }
  TokenSource source = open_shards(specs, tokenizer.end_of_text());
  source.set_text_bytes(count_text_bytes(source, tokenizer));
  return source;
}

}  // namespace

TokenSource load_stream(const std::vector<std::string>& specs, const std::string& text_field,
                        const Tokenizer& tokenizer, const CorpusProgress& progress,
                        const ChatFormat* format) {
  TokenSource source = open_stream(specs, text_field, tokenizer, progress, format);
  source.set_token_bytes(token_bytes(tokenizer));
  return source;
}

}  // namespace ingot
