#include "ingot/data/token_source_shards.h"

#include <unistd.h>

#include <algorithm>
#include <variant>

#include "ingot/core/error.h"
#include "ingot/core/output.h"
#include "ingot/core/process/shrunken_file.h"
#include "ingot/data/corpus.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {
constexpr std::string_view kHeaderlessPrefix = "nanogpt:";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns true for Megatron's way to name a data set: NAME for NAME.bin and NAME.idx.
bool names_megatron_prefix(const std::string& spec) {
  return !spec.empty() && !is_file(spec) && is_file(spec + ".idx") && is_file(spec + ".bin");
}

bool names_shard(const std::string& spec) {
  return spec.ends_with(".bin") || spec.ends_with(".idx") || spec.starts_with(kHeaderlessPrefix) ||
         names_megatron_prefix(spec);
}

using AnyShard = std::variant<TokenShard, MegatronShard>;

// Returns true if the file is the .bin of a Megatron data set: there is an index, and no header of llm.c's.
bool is_megatron(const fs::path& file) {
  if (!is_file(MegatronShard::index_path(file))) return false;
  try {
    TokenShard with_header(file);
    return false;
  } catch (const Error&) {
    return true;
  }
}

AnyShard open_shard(const std::string& file) {
  if (file.starts_with(kHeaderlessPrefix))
    return TokenShard(file.substr(kHeaderlessPrefix.size()), ShardLayout::kHeaderlessU16);
  if (is_megatron(file)) return MegatronShard(file);
  return TokenShard(file);
}

int64_t tokens_of(const AnyShard& shard) {
  return std::visit([](const auto& s) { return s.tokens(); }, shard);
}

// Opens all shards of the specs. kData error if they hold no tokens; kUsage error if only some are
// Megatron's.
std::vector<AnyShard> open_each(std::span<const std::string> specs) {
  std::vector<AnyShard> shards;
  int64_t tokens = 0;
  for (const std::string& file : shard_files(specs)) {
    shards.push_back(open_shard(file));
    tokens += tokens_of(shards.back());
    if (shards.back().index() != shards.front().index())
      fail(ErrorKind::kUsage,
           "{}: Megatron data sets and other token shards cannot be one text, because they mark documents in "
           "different "
           "ways; give only one kind",
           file);
  }
  if (tokens == 0)
    fail(ErrorKind::kData, "{}: the shards hold no tokens; make them again with `ingot data prepare`",
         specs.empty() ? "no shard was given" : specs.front());
  return shards;
}

// Returns true if the documents of a Megatron data set end with the end-of-text token (preprocess_data.py
// --append-eod). Up to 4,096 documents, evenly spread, are looked at.
bool ends_documents(const MegatronShard& shard, uint32_t end_of_text) {
  constexpr size_t kMax = 4096;
  const std::vector<int64_t>& begins = shard.document_begins();
  const size_t stride = std::max<size_t>(1, begins.size() / kMax);
  for (size_t i = 0; i < begins.size(); i += stride) {
    uint32_t last = 0;
    shard.read((i + 1 < begins.size() ? begins[i + 1] : shard.tokens()) - 1, std::span(&last, 1));
    if (last != end_of_text) return false;
  }
  return true;
}

// Returns where the documents of a shard begin. In Ingot a document begins AT the end-of-text token before
// it.
std::vector<int64_t> document_positions(const MegatronShard& shard, std::optional<uint32_t> end_of_text) {
  std::vector<int64_t> positions = shard.document_begins();
  if (end_of_text && ends_documents(shard, *end_of_text))
    for (int64_t& position : positions) position = std::max<int64_t>(0, position - 1);
  return positions;
}

// Adds tokens [begin, begin + count) of a shard, and where documents begin in them.
void add_shard(AnyShard shard, int64_t begin, int64_t count, std::optional<uint32_t> end_of_text,
               TokenSource& source, DocumentStarts& starts) {
  if (const auto* megatron = std::get_if<MegatronShard>(&shard)) {
    starts.end_of_text.reset();
    for (const int64_t position : document_positions(*megatron, end_of_text))
      if (position >= begin && position < begin + count)
        starts.positions.push_back(source.tokens() + position - begin);
  }
  std::visit([&](auto& s) { source.add(std::move(s), begin, count); }, shard);
}
}  // namespace

bool names_shards(std::span<const std::string> specs) {
  const auto count = std::count_if(specs.begin(), specs.end(), names_shard);
  if (count == 0) return false;
  for (const std::string& spec : specs)
    if (!names_shard(spec))
      fail(ErrorKind::kUsage, "{}: is no token shard (.bin) but others are; give only shards or only text",
           spec);
  return true;
}

std::vector<std::string> shard_files(std::span<const std::string> specs) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& file) {
    if (std::ranges::find(files, file) == files.end()) files.push_back(file);
  };
  for (const std::string& spec : specs) {
    if (names_megatron_prefix(spec)) {
      add(spec + ".bin");
      continue;
    }
    const bool is_headerless = spec.starts_with(kHeaderlessPrefix);
    const std::string pattern = is_headerless ? spec.substr(kHeaderlessPrefix.size()) : spec;
    std::error_code error;
    const bool is_folder =
        fs::is_directory(pattern, error);  // of nanoGPT: train.bin, val.bin, meta.pkl, prepare.py
    for (fs::path file : expand_paths(std::span(&pattern, 1))) {
      if (is_folder && file.extension() != ".bin") continue;
      if (file.extension() == ".idx") file.replace_extension(".bin");
      add((is_headerless ? std::string(kHeaderlessPrefix) : "") + file.string());
    }
  }
  return files;
}

TokenSource open_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text) {
  TokenSource source;
  DocumentStarts starts{end_of_text, {}};
  for (AnyShard& shard : open_each(specs)) {
    const int64_t tokens = tokens_of(shard);
    add_shard(std::move(shard), 0, tokens, end_of_text, source, starts);
  }
  source.set_documents(std::move(starts));
  return source;
}

TokenSplit split_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text,
                        double val_fraction) {
  if (!(val_fraction > 0 && val_fraction < 1))
    fail(ErrorKind::kUsage, "the validation fraction of token shards must be above 0 and below 1, got {}",
         val_fraction);
  std::vector<AnyShard> train = open_each(specs), val = open_each(specs);
  int64_t total = 0;
  for (const AnyShard& shard : train) total += tokens_of(shard);
  if (total < 2)
    fail(ErrorKind::kData, "{}: one token cannot be split into training and validation; give more",
         specs.front());
  const auto wanted = static_cast<int64_t>(static_cast<double>(total) * (1 - val_fraction));
  const int64_t cut = std::clamp<int64_t>(wanted, 1, total - 1);
  TokenSplit parts;
  DocumentStarts train_starts{end_of_text, {}}, val_starts{end_of_text, {}};
  int64_t begin = 0;
  for (size_t i = 0; i < train.size(); ++i) {
    const int64_t tokens = tokens_of(train[i]), before = std::clamp<int64_t>(cut - begin, 0, tokens);
    add_shard(std::move(train[i]), 0, before, end_of_text, parts.train, train_starts);
    add_shard(std::move(val[i]), before, tokens - before, end_of_text, parts.val, val_starts);
    begin += tokens;
  }
  parts.train.set_documents(std::move(train_starts));
  parts.val.set_documents(std::move(val_starts));
  return parts;
}

TokenSummary summarize(const TokenSource& source) {
  TokenSummary summary;
  std::vector<uint32_t> chunk;
  for (int64_t begin = 0; begin < source.tokens(); begin += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(1 << 16, source.tokens() - begin)));
    source.read(begin, chunk);
    const auto [low, high] = std::minmax_element(chunk.begin(), chunk.end());
    summary.lowest_id = std::min(summary.lowest_id, *low);
    summary.highest_id = std::max(summary.highest_id, *high);
    if (const auto end_of_text = source.documents().end_of_text)
      summary.end_of_texts += std::count(chunk.begin(), chunk.end(), *end_of_text);
  }
  return summary;
}

StagedFolder::StagedFolder(const fs::path& target) : target_(target) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // removes the slash of "dir/"
  target_ = follow_links(target_);
  staged_ = target_.string() + fmt::format(".tmp.{}", ::getpid());
  std::error_code error;
  if (fs::exists(target_, error) && !(fs::is_directory(target_, error) && fs::is_empty(target_, error)))
    fail(ErrorKind::kUsage, "{}: exists and is not an empty folder; give a new one", target_.string());
  const fs::path beside = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  for (const fs::path& dead : dead_temporaries(beside))
    if (dead.stem().stem() == target_.filename()) fs::remove_all(dead, error);
  make_folders(staged_);
  remove_if_a_file_shrinks(staged_.string());
}

StagedFolder::~StagedFolder() {
  remove_if_a_file_shrinks("");
  std::error_code ignored;
  if (!is_committed_) fs::remove_all(staged_, ignored);
}

void StagedFolder::commit() {
  sync_folder(staged_);
  std::error_code error;
  fs::rename(staged_, target_, error);  // replaces an empty folder
  if (error) fail(ErrorKind::kDisk, "{}: the folder cannot be made: {}", target_.string(), error.message());
  is_committed_ = true;
  sync_folder(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
}

ShardSetWriter::ShardSetWriter(fs::path folder, std::string prefix, DType dtype, int64_t shard_tokens,
                               int first_number)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      dtype_(dtype),
      shard_tokens_(shard_tokens),
      next_number_(first_number) {
  INGOT_CHECK(shard_tokens >= 1 && shard_tokens <= kMaxShardTokens,
              "ShardSetWriter: tokens of a shard must be from 1 to {}, got {}", kMaxShardTokens,
              shard_tokens);
}

void ShardSetWriter::open_next() {
  files_.push_back(folder_ / fmt::format("{}_{:06}.bin", prefix_, next_number_++));
  writer_ = std::make_unique<ShardWriter>(files_.back(), dtype_);
}

void ShardSetWriter::append(std::span<const uint32_t> tokens) {
  while (!tokens.empty()) {
    if (!writer_) open_next();
    const auto count = std::min(static_cast<int64_t>(tokens.size()), shard_tokens_ - writer_->tokens());
    writer_->append(tokens.first(static_cast<size_t>(count)));
    tokens = tokens.subspan(static_cast<size_t>(count));
    tokens_ += count;
    if (writer_->tokens() < shard_tokens_) continue;
    writer_->commit();
    writer_.reset();
  }
}

void ShardSetWriter::commit() {
  if (files_.empty()) open_next();
  if (writer_) writer_->commit();
  writer_.reset();
}

}  // namespace ingot
