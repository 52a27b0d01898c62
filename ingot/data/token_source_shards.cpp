#include "ingot/data/token_source_shards.h"

#include <unistd.h>

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/core/output.h"
#include "ingot/data/corpus.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {
constexpr std::string_view kHeaderlessPrefix = "nanogpt:";

bool names_shard(const std::string& spec) {
  return spec.ends_with(".bin") || spec.starts_with(kHeaderlessPrefix);
}

// Opens all shards of the specs. kData error if they hold no tokens.
std::vector<TokenShard> open_each(std::span<const std::string> specs) {
  std::vector<TokenShard> shards;
  int64_t tokens = 0;
  for (const std::string& spec : specs) {
    const bool is_headerless = spec.starts_with(kHeaderlessPrefix);
    const std::string pattern = is_headerless ? spec.substr(kHeaderlessPrefix.size()) : spec;
    for (const fs::path& file : expand_paths(std::span(&pattern, 1))) {
      shards.emplace_back(file, is_headerless ? ShardLayout::kHeaderlessU16 : ShardLayout::kHeader);
      tokens += shards.back().tokens();
    }
  }
  if (tokens == 0)
    fail(ErrorKind::kData, "{}: the shards hold no tokens; make them again with `ingot data prepare`",
         specs.empty() ? "no shard was given" : specs.front());
  return shards;
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

TokenSource open_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text) {
  TokenSource source;
  for (TokenShard& shard : open_each(specs)) source.add(std::move(shard));
  source.set_documents({.end_of_text = end_of_text, .positions = {}});
  return source;
}

TokenSplit split_shards(std::span<const std::string> specs, std::optional<uint32_t> end_of_text,
                        double val_fraction) {
  if (!(val_fraction > 0 && val_fraction < 1))
    fail(ErrorKind::kUsage, "the validation fraction of token shards must be above 0 and below 1, got {}",
         val_fraction);
  std::vector<TokenShard> train = open_each(specs), val = open_each(specs);
  int64_t total = 0;
  for (const TokenShard& shard : train) total += shard.tokens();
  if (total < 2)
    fail(ErrorKind::kData, "{}: one token cannot be split into training and validation; give more",
         specs.front());
  const auto wanted = static_cast<int64_t>(static_cast<double>(total) * (1 - val_fraction));
  const int64_t cut = std::clamp<int64_t>(wanted, 1, total - 1);
  TokenSplit parts;
  int64_t begin = 0;
  for (size_t i = 0; i < train.size(); ++i) {
    const int64_t tokens = train[i].tokens(), before = std::clamp<int64_t>(cut - begin, 0, tokens);
    parts.train.add(std::move(train[i]), 0, before);
    parts.val.add(std::move(val[i]), before, tokens - before);
    begin += tokens;
  }
  for (TokenSource* part : {&parts.train, &parts.val})
    part->set_documents({.end_of_text = end_of_text, .positions = {}});
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
}

StagedFolder::~StagedFolder() {
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
