// Waiting for data with a number of loader workers, for bench/reproduce/loader.py: takes batches from a Loader,
// sleeps as long as a device would compute between two of them, and prints one JSON object: the mean wait per
// step once the batches made ahead are used up, and a hash of all tokens. The data are shards, or text that
// is tokenized as it is read, on a disk whose requests take a time of their own beside each other and share a
// rate. Usage: loader_waits shards|text TEXT TOKENIZER WORKERS PREFETCH STEP_MS LATENCY_MS MB_PER_S
#include <fmt/core.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "ingot/core/file.h"
#include "ingot/data/loader.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"

using namespace ingot;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

namespace {

constexpr int64_t kBatch = 16, kContext = 1024;

class SlowDisk {
 public:
  SlowDisk(double latency_s, double bytes_per_s) : latency_s_(latency_s), bytes_per_s_(bytes_per_s) {}
  void wait_for(int64_t bytes) const {
    if (latency_s_ == 0) return;
    Clock::time_point end;
    {
      const std::lock_guard lock(mutex_);
      free_at_ = std::max(free_at_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(
                                                        Seconds(static_cast<double>(bytes) / bytes_per_s_));
      end = free_at_ + std::chrono::duration_cast<Clock::duration>(Seconds(latency_s_));
    }
    std::this_thread::sleep_until(end);
  }

 private:
  double latency_s_, bytes_per_s_;
  mutable std::mutex mutex_;
  mutable Clock::time_point free_at_;
};

class ShardReader : public TokenReader {
 public:
  ShardReader(TokenSource shards, const SlowDisk& disk) : shards_(std::move(shards)), disk_(disk) {}
  int64_t tokens() const override { return shards_.tokens(); }
  void read(int64_t begin, std::span<uint32_t> out) const override {
    disk_.wait_for(static_cast<int64_t>(out.size()) * 2);
    shards_.read(begin, out);
  }

 private:
  TokenSource shards_;
  const SlowDisk& disk_;
};

// The text in blocks, and an index of the tokens before each.
class TextReader : public TokenReader {
 public:
  TextReader(const std::string& text, const Tokenizer& tokenizer, const SlowDisk& disk)
      : tokenizer_(tokenizer), disk_(disk) {
    constexpr size_t kBlockBytes = 4096;
    std::vector<TokenId> ids;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end =
          text.size() - begin <= kBlockBytes ? text.size() : tokenizer.find_cut(text, begin + kBlockBytes);
      blocks_.push_back(text.substr(begin, end - begin));
      firsts_.push_back(tokens_);
      ids.clear();
      tokenizer.encode(blocks_.back(), ids);
      tokens_ += std::ssize(ids);
      begin = end;
    }
  }
  int64_t tokens() const override { return tokens_; }
  void read(int64_t begin, std::span<uint32_t> out) const override {
    auto block =
        static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), begin) - firsts_.begin()) - 1;
    int64_t bytes = 0;
    std::vector<TokenId> ids;
    const auto skipped = static_cast<size_t>(begin - firsts_[block]);
    for (; ids.size() < skipped + out.size(); ++block) {
      bytes += std::ssize(blocks_[block]);
      tokenizer_.encode(blocks_[block], ids);
    }
    disk_.wait_for(bytes);
    std::copy_n(ids.begin() + static_cast<int64_t>(skipped), out.size(), out.begin());
  }

 private:
  const Tokenizer& tokenizer_;
  const SlowDisk& disk_;
  std::vector<std::string> blocks_;
  std::vector<int64_t> firsts_;
  int64_t tokens_ = 0;
};

TokenSource as_shards(const std::string& text, const Tokenizer& tokenizer) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("loader-waits-{}", ::getpid());
  fs::create_directory(folder);
  ShardSetWriter writer(folder, "train", DType::u16, kMaxShardTokens, 0);
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  writer.append(ids);
  writer.commit();
  const std::vector<std::string> files = {writer.files().front().string()};
  TokenSource source = open_shards(files, std::nullopt);
  fs::remove_all(folder);  // the file stays mapped
  return source;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 9) fail(ErrorKind::kUsage, "loader_waits needs 8 arguments, got {}", argc - 1);
  const std::string text = read_file(argv[2]);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(argv[3]);
  const int64_t workers = std::atoll(argv[4]), prefetch = std::atoll(argv[5]);
  const double step_s = 1e-3 * std::atof(argv[6]);
  const SlowDisk disk(1e-3 * std::atof(argv[7]), 1e6 * std::atof(argv[8]));
  TokenSource source;
  if (std::string(argv[1]) == "text")
    source.add(std::make_unique<TextReader>(text, *tokenizer, disk));
  else
    source.add(std::make_unique<ShardReader>(as_shards(text, *tokenizer), disk));
  const Sampler sampler(SampleOrder::kRandom, 1, source.tokens(), kContext);
  const LoaderConfig config{
      .shape = {.batch = kBatch, .context = kContext, .vocab_size = tokenizer->vocab_size()},
      .workers = workers,
      .prefetch = prefetch};
  Loader loader(source, sampler, config);
  constexpr int kWarm = 80, kSteps = 60;  // after kWarm steps the batches of any measured ring are used up
  XXH64_hash_t hash = 0;
  double begin_wait_s = 0;
  const auto take = [&] {
    const Batch& batch = loader.next();
    hash = XXH3_64bits_withSeed(batch.tokens.as<int32_t>(), kBatch * kContext * sizeof(int32_t), hash);
    std::this_thread::sleep_for(Seconds(step_s));
  };
  for (int i = 0; i < kWarm; ++i) take();
  begin_wait_s = loader.total_wait_s();
  for (int i = 0; i < kSteps; ++i) take();
  fmt::print("{{\"wait_ms\": {:.4f}, \"tokens\": \"{:016x}\"}}\n",
             1e3 * (loader.total_wait_s() - begin_wait_s) / kSteps, hash);
} catch (const std::exception& error) {
  fmt::print(stderr, "loader_waits: {}\n", error.what());
  return 1;
}
