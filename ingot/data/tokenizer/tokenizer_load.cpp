#include <algorithm>
#include <array>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/hub_hint.h"
#include "ingot/data/tokenizer/bpe_encoder.h"
#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/data/tokenizer/tokenizer_build.h"
#include "ingot/formats/tiktoken.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;

// Published holds the facts about a published .tiktoken vocabulary that its file does not contain.
struct Published {
  std::string_view name;  // matched against the file name
  size_t token_count;
  std::string_view pattern;
  std::vector<AddedToken> special;
};

std::vector<Published> published() {
  return {
      {"r50k", 50256, "gpt2", {{50256, "<|endoftext|>"}}},
      {"p50k", 50280, "gpt2", {{50256, "<|endoftext|>"}}},
      {"cl100k",
       100256,
       "cl100k",
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}}},
      {"o200k", 199998, "o200k", {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
      {"llama3", 128000, "llama3", {{128000, "<|begin_of_text|>"}, {128001, "<|end_of_text|>"}}},
      {"qwen", 151643, "qwen2", {{151643, "<|endoftext|>"}}},
      {"gpt2", 0, "gpt2", {}},
  };
}

std::unique_ptr<Tokenizer> load_tiktoken(const fs::path& path, std::string_view pattern) {
  const MappedFile file(path);
  TokenizerSpec spec;
  spec.tokens = read_tiktoken(file.text(), path.string());
  spec.takes_whole_pieces = true;
  spec.pattern = pattern;
  const auto is_token = [](const std::string& token) { return !token.empty(); };
  const auto token_count =
      static_cast<size_t>(std::count_if(spec.tokens.begin(), spec.tokens.end(), is_token));
  for (const Published& known : published()) {
    if (known.token_count == token_count) spec.added = known.special;
    const bool is_meant =
        known.token_count == token_count || path.filename().string().find(known.name) != std::string::npos;
    if (spec.pattern.empty() && is_meant) spec.pattern = known.pattern;
  }
  if (spec.pattern.empty())
    fail(ErrorKind::kData,
         "{}: {} ranks are no published vocabulary, and the file does not say how text is split; name the "
         "pattern (gpt2, cl100k, o200k, llama3, qwen2 or a regular expression)",
         path.string(), token_count);
  if (spec.added.empty()) spec.added.push_back({static_cast<uint32_t>(spec.tokens.size()), "<|endoftext|>"});
  check_spec(spec, path.string());
  spec.merges = merges_from_ranks(spec.tokens);
  return make_tokenizer(std::move(spec));
}

std::unique_ptr<Tokenizer> load_gpt2_pair(const fs::path& vocab_path) {
  const std::array names = {"vocab.bpe", "merges.txt"};
  for (const char* name : names) {
    const fs::path merges_path = vocab_path.parent_path() / name;
    if (!path_exists(merges_path)) continue;
    const MappedFile vocab(vocab_path), merges(merges_path);
    return make_tokenizer(
        read_gpt2_vocab(vocab.text(), vocab_path.string(), merges.text(), merges_path.string()));
  }
  fail(ErrorKind::kData, "{}: neither vocab.bpe nor merges.txt lies beside it; put the merges there",
       vocab_path.string());
}

// Returns the tokenizer file of a folder.
fs::path find_in_folder(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "encoder.json", "vocab.json"})
    if (path_exists(folder / name)) return folder / name;
  std::vector<fs::path> tables;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".tiktoken") tables.push_back(entry.path());
  if (tables.size() > 1)
    fail(ErrorKind::kData, "{}: holds {} .tiktoken files; name one of them", folder.string(), tables.size());
  if (tables.empty())
    fail(ErrorKind::kData, "{}: holds no tokenizer.json, encoder.json, vocab.json or .tiktoken file",
         folder.string());
  return tables.front();
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path, std::string_view pattern) {
  std::error_code error;
  if (fs::is_directory(path, error)) return load_tokenizer(find_in_folder(path), pattern);
  if (!path_exists(path))
    fail(ErrorKind::kData, "{}: No such file or directory; check the path{}", path.string(), hub_hint(path));
  const std::string extension = path.extension().string(), name = path.filename().string();
  if (extension == ".tiktoken" || name == "tokenizer.model") return load_tiktoken(path, pattern);
  if (name == "encoder.json" || name == "vocab.json") return load_gpt2_pair(path);
  const MappedFile file(path);
  if (extension != ".json")
    fail(ErrorKind::kData, "{}: is no tokenizer; give a tokenizer.json, .tiktoken or encoder.json",
         path.string());
  std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer(file.text(), path.string());
  if (name == "tokenizer.json") tokenizer->set_side_files(read_side_files(path.parent_path()));
  return tokenizer;
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name) {
  return make_tokenizer(read_tokenizer_json(json, name));
}

}  // namespace ingot
