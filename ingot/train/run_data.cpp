#include "ingot/train/run_data.h"

#include <algorithm>

#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"

namespace ingot {
namespace {

std::string all_text(const Documents& a, const Documents& b) {
  std::string text;
  for (const Documents* part : {&a, &b})
    for (const Document& d : *part) text += d.text;
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(const DataConfig& config, const DocumentSplit& text) {
  if (config.tokenizer == "byte") return make_byte_tokenizer();
  if (config.tokenizer == "char") return make_char_tokenizer(all_text(text.train, text.val));
  if (config.tokenizer != "bpe") return load_tokenizer(config.tokenizer);
  BpeTrainConfig bpe;
  bpe.vocab_size = config.tokenizer_vocab;
  bpe.pattern = config.tokenizer_pattern;
  const std::vector<std::string_view> texts = text.train.texts();
  return train_bpe(texts, bpe);
}

// llm.c's and modded-nanogpt's names tell the parts apart: NAME_train_000001.bin, NAME_val_000000.bin.
bool is_val_name(const std::filesystem::path& path) {
  const std::string name = fmt::format("_{}_", path.stem().string());
  return name.find("_val_") != std::string::npos;
}

RunData load_shards(const DataConfig& config, const std::optional<std::string>& tokenizer_json) {
  std::vector<std::string> train = config.train, val = config.val;
  const bool is_headerless =
      std::ranges::any_of(train, [](const auto& s) { return s.starts_with("nanogpt:"); });
  if (val.empty() && !is_headerless) {
    train.clear();
    for (const std::filesystem::path& file : expand_paths(config.train))
      (is_val_name(file) ? val : train).push_back(file.string());
  }
  if (val.empty() || train.empty())
    fail(ErrorKind::kUsage,
         "data: token shards need a validation part: set data.val, or name its files like "
         "NAME_val_000000.bin");
  if (!tokenizer_json && (config.tokenizer == "bpe" || config.tokenizer == "char"))
    fail(ErrorKind::kUsage,
         "data.tokenizer must name the tokenizer file that the shards were made with, got \"{}\"",
         config.tokenizer);
  RunData data;
  data.tokenizer = tokenizer_json               ? parse_tokenizer(*tokenizer_json, "tokenizer.json")
                   : config.tokenizer == "byte" ? make_byte_tokenizer()
                                                : load_tokenizer(config.tokenizer);
  data.train = open_shards(train, data.tokenizer->end_of_text());
  data.val = open_shards(val, data.tokenizer->end_of_text());
  data.val.set_text_bytes(count_text_bytes(data.val, *data.tokenizer));
  return data;
}

RunData load_text(const DataConfig& config, const std::optional<std::string>& tokenizer_json) {
  DocumentSplit text;
  if (config.val.empty()) {
    text = load_split(config.train, config.val_fraction, config.text_field);
  } else {
    text.train = load_documents(config.train, config.text_field);
    text.val = load_documents(config.val, config.text_field);
  }
  if (text.val.empty())
    fail(ErrorKind::kUsage, "data: there is no validation text; set data.val or a data.val_fraction above 0");
  RunData data;
  data.tokenizer =
      tokenizer_json ? parse_tokenizer(*tokenizer_json, "tokenizer.json") : make_tokenizer(config, text);
  data.train = tokenize(text.train, *data.tokenizer);
  data.val = tokenize(text.val, *data.tokenizer);
  data.val_documents = text.val;
  return data;
}

std::string megabytes(const TokenSource& source) {
  return source.text_bytes() ? fmt::format("{:.1f} MB, ", static_cast<double>(*source.text_bytes()) * 1e-6)
                             : "";
}

}  // namespace

RunData load_run_data(const DataConfig& config, const std::optional<std::string>& tokenizer_json) {
  if (config.train.empty())
    fail(ErrorKind::kUsage,
         "data.train is empty; give text with --data FILE, or data.train = \"builtin:cpp-headers\"");
  RunData data =
      names_shards(config.train) ? load_shards(config, tokenizer_json) : load_text(config, tokenizer_json);
  data.summary =
      fmt::format("train {}{} tokens; validation {}{} tokens; vocabulary {}", megabytes(data.train),
                  data.train.tokens(), megabytes(data.val), data.val.tokens(), data.tokenizer->vocab_size());
  return data;
}

TokenSource load_stream(const std::vector<std::string>& specs, const std::string& text_field,
                        const Tokenizer& tokenizer) {
  if (!names_shards(specs)) return tokenize(load_documents(specs, text_field), tokenizer);
  TokenSource source = open_shards(specs, tokenizer.end_of_text());
  source.set_text_bytes(count_text_bytes(source, tokenizer));
  return source;
}

}  // namespace ingot
