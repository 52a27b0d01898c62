#include "ingot/profile/bench_data.h"

#include <algorithm>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/philox.h"
#include "ingot/plan/hardware.h"
#include "ingot/run/thread_count.h"

namespace ingot::bench {

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

namespace {

// Returns a vocabulary size for a config that leaves it to a tokenizer: tinyshakespeare's 65 characters,
// 256 bytes, or the size that a BPE would be trained to.
int64_t usual_vocab(const DataConfig& data) {
  return data.tokenizer == "char" ? 65 : data.tokenizer == "byte" ? 256 : data.tokenizer_vocab;
}

}  // namespace

void require_one_rank(const RunConfig& config) {
  if (config.parallel.ranks() == 1) return;
  fail(ErrorKind::kUsage,
       "ingot bench times the steps of one rank here, and parallel: {} is {} ranks; leave parallel out, or "
       "train some steps and read step_ms and the bytes_ of metrics.jsonl",
       config.parallel.to_string(), config.parallel.ranks());
}

double data_sheet_gflops(std::string_view device, DType compute) {
  constexpr std::pair<std::string_view, std::string_view> kDescribed[] = {
      {"NVIDIA H100 80GB HBM3", "h100-sxm"}, {"NVIDIA H200", "h200-sxm"}};
  for (const auto& [name, described] : kDescribed)
    if (device == name) {
      const Hardware::Device peaks = find_hardware(std::string(described)).device;
      return 1e-9 * (compute == DType::f32 ? peaks.f32_flops : peaks.bf16_flops);
    }
  return 0;
}

RunConfig runnable(RunConfig config) {
  use_threads(config.train);
  if (config.model.vocab == 0) config.model.vocab = usual_vocab(config.data);
  return config;
}

TokenSource random_tokens(const RunConfig& config) {
  const int64_t n = 8 * config.train.batch_size * (config.model.context + 1);
  std::vector<uint32_t> tokens(static_cast<size_t>(n));
  const RandomKey key{.seed = config.train.seed, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = random_word(key, i) % static_cast<uint32_t>(config.model.vocab);
  TokenSource source;
  source.add(std::move(tokens));
  return source;
}

}  // namespace ingot::bench
