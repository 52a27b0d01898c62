#include "ingot/data/tokenizer/tokenizer_export.h"

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/tiktoken.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;

void require_bytes(const TokenizerSpec& spec, const char* format) {
  if (spec.kind != TokenizerSpec::Kind::kByteBpe)
    fail(ErrorKind::kData, "a character tokenizer has no {} form; export it as tokenizer.json", format);
}

// tiktoken merges the pair whose result has the lowest id. That is the order of the merges only if their
// results have ascending ids.
void require_ranks(const TokenizerSpec& spec) {
  require_bytes(spec, ".tiktoken");
  for (size_t i = 1; i < spec.merges.size(); ++i)
    if (spec.merges[i].result <= spec.merges[i - 1].result)
      fail(
          ErrorKind::kData,
          "merge {} makes id {}, the one before it id {}: a .tiktoken file needs ids in the order of merges; "
          "export it as tokenizer.json",
          i, spec.merges[i].result, spec.merges[i - 1].result);
}

}  // namespace

void export_tokenizer(const Tokenizer& tokenizer, TokenizerFormat format, const fs::path& out) {
  const std::string json = tokenizer.to_json();
  if (format == TokenizerFormat::kJson) return write_file(out, json);
  const TokenizerSpec spec = read_tokenizer_json(json, "tokenizer.json");
  if (format == TokenizerFormat::kTiktoken) {
    require_ranks(spec);
    return write_file(out, write_tiktoken(spec.tokens));
  }
  if (format == TokenizerFormat::kGpt2) require_bytes(spec, "encoder.json + vocab.bpe");
  make_folders(out);
  if (format == TokenizerFormat::kGpt2) {
    write_file(out / "encoder.json", write_vocab_json(spec));
    write_file(out / "vocab.bpe", write_merges_txt(spec));
    return;
  }
  const TokenizerSideFiles& side = tokenizer.side_files();
  std::string end_of_text;
  if (tokenizer.end_of_text()) tokenizer.append_bytes(*tokenizer.end_of_text(), end_of_text);
  std::map<std::string, std::string> tokens = side.tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token"}) tokens.emplace(name, end_of_text);
  write_file(out / "tokenizer.json", json);
  write_file(out / "vocab.json", write_vocab_json(spec));
  if (spec.kind != TokenizerSpec::Kind::kCharacters) write_file(out / "merges.txt", write_merges_txt(spec));
  write_file(out / "tokenizer_config.json", write_tokenizer_config_json(spec, tokens, side.chat_json));
  if (!side.chat_jinja.empty()) write_file(out / kChatTemplateFile, side.chat_jinja);
  write_file(out / "special_tokens_map.json", write_special_tokens_map_json(tokens));
}

}  // namespace ingot
