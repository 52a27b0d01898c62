// Throughput of the data path: the sampler alone, building batches (the reader thread's work), and
// taking finished batches.
#include "ingot/data/loader.h"

#include <benchmark/benchmark.h>

#include <vector>

namespace ingot {
namespace {

constexpr int64_t kTokens = 20'000'000;

TokenSource make_source() {
  std::vector<uint16_t> tokens(kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>((i * 2654435761u) >> 9);
  TokenSource source;
  source.add(std::move(tokens));
  return source;
}

void sampler_start(benchmark::State& state) {
  const Sampler sampler(static_cast<SampleOrder>(state.range(0)), 1, kTokens, 256);
  int64_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.start(i++));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(sampler_start)
    ->Arg(static_cast<int>(SampleOrder::kRandom))
    ->Arg(static_cast<int>(SampleOrder::kEpochs));

void loader_next(benchmark::State& state) {
  const TokenSource source = make_source();
  const int64_t B = state.range(0), T = state.range(1);
  const Sampler sampler(SampleOrder::kEpochs, 1, kTokens, T);
  Loader loader(
      source, sampler,
      {.shape = {.batch = B, .context = T, .vocab_size = 65536, .document_mask = state.range(2) != 0}});
  for (auto _ : state) {
    int64_t targets = loader.next().counted_targets;
    benchmark::DoNotOptimize(targets);
  }
  state.SetItemsProcessed(state.iterations() * B * T);  // tokens
  state.counters["wait_us"] = 1e6 * loader.total_wait_s() / static_cast<double>(state.iterations());
}
BENCHMARK(loader_next)
    ->Args({12, 64, 0})
    ->Args({4, 256, 0})
    ->Args({32, 1024, 0})
    ->Args({32, 1024, 1})
    ->UseRealTime();

void eval_walk(benchmark::State& state) {
  const TokenSource source = make_source();
  EvalWindows walk(source, {.batch = 16, .context = 256, .vocab_size = 65536});
  for (auto _ : state) {
    const Batch* batch = walk.next();
    if (!batch) walk.rewind();
    benchmark::DoNotOptimize(batch);
  }
  state.SetItemsProcessed(state.iterations() * 16 * 256);
}
BENCHMARK(eval_walk);

void content_hash(benchmark::State& state) {
  const TokenSource source = make_source();
  for (auto _ : state) benchmark::DoNotOptimize(source.content_hash());
  state.SetItemsProcessed(state.iterations() * kTokens);
}
BENCHMARK(content_hash)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ingot

BENCHMARK_MAIN();
