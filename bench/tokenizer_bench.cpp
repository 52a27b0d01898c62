// MB/s of pre-tokenisation, encoding and BPE training, on the text file INGOT_BENCH_TEXT or, if unset, on
// synthetic words. INGOT_BENCH_TOKENIZER names a tokenizer for encoding; if unset, one is trained.
#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "ingot/core/file.h"
#include "ingot/core/philox.h"
#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/data/tokenizer/tokenizer.h"

namespace {

using namespace ingot;

// Words of a random lexicon with Zipf frequencies, and some punctuation.
std::string synthetic_text() {
  constexpr uint64_t kBytes = 8u << 20, kLexicon = 40'000;
  const RandomKey key{.seed = 1};
  uint64_t next = 0;
  const auto dice = [&](uint32_t n) { return random_word(key, next++) % n; };
  std::vector<std::string> lexicon(kLexicon);
  for (std::string& word : lexicon)
    for (uint32_t length = 2 + dice(9); length > 0; --length)
      word.push_back(static_cast<char>('a' + dice(5) * dice(6)));
  std::string text;
  while (text.size() < kBytes) {
    text += lexicon[static_cast<size_t>(std::pow(kLexicon, random_uniform(key, next++))) - 1];
    text += dice(12) ? " " : dice(4) ? ", " : ".\n";
  }
  return text;
}

const std::string& text() {
  static const std::string content = [] {
    const char* path = std::getenv("INGOT_BENCH_TEXT");
    return path ? read_file(path) : synthetic_text();
  }();
  return content;
}

void report(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(text().size()));
}

void split(benchmark::State& state, const char* pattern) {
  const Pretokenizer pretokenizer(pattern);
  for (auto _ : state) {
    PieceReader reader(pretokenizer, text(), 0, text().size());
    std::array<size_t, 1024> ends;
    while (reader.next(ends)) benchmark::DoNotOptimize(ends);
  }
  report(state);
}

void train(benchmark::State& state) {
  const std::string_view document = text();
  for (auto _ : state) benchmark::DoNotOptimize(train_bpe({&document, 1}, {.vocab_size = 4096}));
  report(state);
}

void encode_text(benchmark::State& state) {
  const std::string_view document = text();
  const char* path = std::getenv("INGOT_BENCH_TOKENIZER");
  const auto tokenizer = path ? load_tokenizer(path) : train_bpe({&document, 1}, {.vocab_size = 4096});
  for (auto _ : state) benchmark::DoNotOptimize(encode(*tokenizer, document));
  report(state);
}

void load(benchmark::State& state) {
  const char* path = std::getenv("INGOT_BENCH_TOKENIZER");
  if (!path) return state.SkipWithError("INGOT_BENCH_TOKENIZER is not set");
  for (auto _ : state) benchmark::DoNotOptimize(load_tokenizer(path));
}

BENCHMARK_CAPTURE(split, gpt2, "gpt2")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(split, cl100k, "cl100k")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(split, o200k, "o200k")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(encode_text)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(train)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
