#include "ingot/data/corpus_tokenizer.h"

#include <vector>

#include "ingot/core/error.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/data/tokenizer/bpe_trainer.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

std::unique_ptr<Tokenizer> train_bpe_on(std::span<const StreamedCorpus* const> corpora,
                                        const BpeTrainConfig& config, const CorpusProgress& progress) {
  BpeTrainer trainer(config);
  std::vector<std::string_view> texts;
  for (const StreamedCorpus* corpus : corpora)
    corpus->walk([&](std::string_view text, size_t from) { return trainer.find_cut(text, from); },
                 [&](const TextBatch& batch) {
                   if (batch.is_val) return;
                   texts.clear();
                   for (const TextPiece& piece : batch.pieces) texts.push_back(piece.text);
                   trainer.add(texts);
                 },
                 in_phase(progress, "training the tokenizer"));
  return trainer.train();
}

std::unique_ptr<Tokenizer> make_char_tokenizer_on(std::span<const StreamedCorpus* const> corpora,
                                                  const CorpusProgress& progress) {
  std::vector<bool> is_present(0x110000);
  std::string characters;
  const auto take = [&](const TextBatch& batch) {
    for (const TextPiece& piece : batch.pieces)
      for (size_t i = 0; i < piece.text.size();) {
        const CodePoint c = decode_utf8(piece.text, i);
        if (c.is_valid() && !is_present[c.value]) append_utf8(c.value, characters);
        if (c.is_valid()) is_present[c.value] = true;
        i += c.length_bytes;
      }
  };
  for (const StreamedCorpus* corpus : corpora)
    corpus->walk(character_begin, take, in_phase(progress, "collecting characters"));
  return make_char_tokenizer(characters);
}

}  // namespace

StreamedCorpus::Progress in_phase(const CorpusProgress& progress, std::string_view phase) {
  if (!progress) return {};
  return [&progress, phase](int64_t done, int64_t total) { progress(phase, done, total); };
}

bool is_corpus_tokenizer(const std::string& kind) {
  return kind == "bpe" || kind == "byte" || kind == "char";
}

std::unique_ptr<Tokenizer> make_corpus_tokenizer(const std::string& kind, const BpeTrainConfig& bpe,
                                                 std::span<const StreamedCorpus* const> corpora,
                                                 const CorpusProgress& progress) {
  INGOT_CHECK(is_corpus_tokenizer(kind), "make_corpus_tokenizer: kind must be bpe, char or byte, got {}",
              kind);
  if (kind == "byte") return make_byte_tokenizer();
  if (kind == "char") return make_char_tokenizer_on(corpora, progress);
  return train_bpe_on(corpora, bpe, progress);
}

}  // namespace ingot
