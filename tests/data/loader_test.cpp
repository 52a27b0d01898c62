#include "ingot/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "ingot/core/error.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"

namespace {
// Counts the allocations of the whole test program. Only the test that next() does not allocate reads it.
std::atomic<int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(size_t size_bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size_bytes ? size_bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ingot::test {
namespace {
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::vector<uint32_t> make_tokens(size_t count, uint32_t vocab_size) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint32_t>((i * 2654435761u) >> 7) % vocab_size;
  return tokens;
}

std::vector<int32_t> values(const Tensor& t) { return {t.as<int32_t>(), t.as<int32_t>() + t.elements()}; }

struct LoaderCase {
  SampleOrder order;
  int64_t B, T, readers;
};

class LoaderReads : public ::testing::TestWithParam<LoaderCase> {};

TEST_P(LoaderReads, TheWindowsOfTheSampler) {
  const auto [order, B, T, readers] = GetParam();
  const std::vector<uint32_t> tokens = make_tokens(1000, 300);
  const TokenSource source = source_of(tokens);
  const Sampler sampler(order, 11, source.tokens(), T);
  for (int64_t reader = 0; reader < readers; ++reader) {
    Loader loader(
        source, sampler,
        {.shape = {.batch = B, .context = T, .vocab_size = 300}, .readers = readers, .reader = reader});
    for (int64_t i = 0; i < 20; ++i) {
      ASSERT_EQ(loader.position(), i * B * readers);
      const Batch& batch = loader.next();
      ASSERT_EQ(batch.first_sample, (i * readers + reader) * B);
      ASSERT_EQ(batch.counted_targets, B * T);
      ASSERT_FALSE(batch.doc_start);
      for (int64_t b = 0; b < B; ++b) {
        const auto start = static_cast<size_t>(sampler.start(batch.first_sample + b));
        for (int64_t t = 0; t < T; ++t) {
          ASSERT_EQ(batch.tokens.as<int32_t>()[b * T + t],
                    static_cast<int32_t>(tokens.at(start + static_cast<size_t>(t))));
          ASSERT_EQ(batch.targets.as<int32_t>()[b * T + t],
                    static_cast<int32_t>(tokens.at(start + static_cast<size_t>(t) + 1)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LoaderReads,
                         ::testing::Values(LoaderCase{SampleOrder::kRandom, 4, 16, 1},
                                           LoaderCase{SampleOrder::kEpochs, 4, 16, 1},
                                           LoaderCase{SampleOrder::kEpochs, 1, 1, 1},
                                           LoaderCase{SampleOrder::kRandom, 3, 7, 4},
                                           LoaderCase{SampleOrder::kEpochs, 2, 998, 2}));

class LoaderTest : public ::testing::Test {
 protected:
  TokenSource source = source_of(make_tokens(5000, 100));
  Sampler sampler{SampleOrder::kEpochs, 3, 5000, 32};
  LoaderConfig config{.shape = {.batch = 4, .context = 32, .vocab_size = 100}};

  std::vector<std::vector<int32_t>> read(Loader& loader, int count) {
    std::vector<std::vector<int32_t>> batches;
    for (int i = 0; i < count; ++i) batches.push_back(values(loader.next().tokens));
    return batches;
  }
};

TEST_F(LoaderTest, SlowConsumerAndSmallRingSeeTheSameBatches) {
  Loader straight(source, sampler, config);
  const auto want = read(straight, 12);
  config.prefetch = 1;
  Loader slow(source, sampler, config);
  int ready = 0;
  for (int i = 0; i < 12; ++i) {
    const Batch& batch = slow.next();
    ready += slow.last_wait_s() == 0 ? 1 : 0;
    std::this_thread::sleep_for(2ms);  // gives the thread time to overwrite a batch that is in use
    EXPECT_EQ(values(batch.tokens), want[static_cast<size_t>(i)]) << i;
  }
  EXPECT_GT(ready, 0) << "nothing was made ahead";
}

// Tokens of which every fifth read takes longer than the others, so that workers finish in another order than
// they begin.
class UnevenReader : public TokenReader {
 public:
  explicit UnevenReader(std::vector<uint32_t> tokens) : all_(std::move(tokens)) {}
  int64_t tokens() const override { return std::ssize(all_); }
  void read(int64_t begin, std::span<uint32_t> out) const override {
    if (reads_.fetch_add(1) % 5 == 0) std::this_thread::sleep_for(1ms);
    std::copy_n(all_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<uint32_t> all_;
  mutable std::atomic<int> reads_ = 0;
};

TEST_F(LoaderTest, AnyNumberOfWorkersMakesTheSameBatches) {
  Loader straight(source, sampler, config);
  const auto want = read(straight, 40);
  TokenSource uneven;
  uneven.add(std::make_unique<UnevenReader>(make_tokens(5000, 100)));
  for (const int64_t workers : {0, 1, 2, 4, 8}) {
    for (const int64_t prefetch : {1, 4}) {
      config.workers = workers;
      config.prefetch = prefetch;
      Loader loader(uneven, sampler, config);
      EXPECT_EQ(read(loader, 40), want) << workers << " workers";
      for (const int64_t at :
           {7, 0, 30, 29, 7}) {  // as a run resumes, while the workers are at other batches
        loader.seek(at * 4);
        EXPECT_EQ(values(loader.next().tokens), want[static_cast<size_t>(at)]) << workers << " workers";
        EXPECT_EQ(values(loader.next().tokens), want[static_cast<size_t>(at + 1)]) << workers << " workers";
        EXPECT_EQ(loader.position(), (at + 2) * 4);
      }
    }
  }
}

TEST_F(LoaderTest, ABatchInUseIsNotOverwrittenByAnyWorker) {
  for (const int64_t workers : {0, 2, 8}) {
    config.workers = workers;
    config.prefetch = 1;
    Loader loader(source, sampler, config);
    for (int i = 0; i < 10; ++i) {
      const Batch& batch = loader.next();
      const auto before = values(batch.tokens);
      std::this_thread::sleep_for(2ms);
      EXPECT_EQ(values(batch.tokens), before);
    }
  }
}

TEST_F(LoaderTest, WithoutWorkersTheCallerMakesTheBatchAndItsTimeIsWaiting) {
  config.workers = 0;
  Loader loader(source, sampler, config);
  EXPECT_EQ(loader.total_wait_s(), 0);
  loader.next();
  EXPECT_GT(loader.last_wait_s(), 0);
}

TEST_F(LoaderTest, SlowProducerIsWaitedForAndReported) {
  // A batch of 2 million tokens takes milliseconds to make, and the test takes no time between two calls
  // of next().
  source = source_of(make_tokens(600'000, 100));
  const Sampler wide(SampleOrder::kRandom, 3, source.tokens(), 500'000);
  config.shape = {.batch = 4, .context = 500'000, .vocab_size = 100};
  Loader loader(source, wide, config);
  double sum = 0;
  for (int i = 0; i < 6; ++i) {
    loader.next();
    sum += loader.last_wait_s();
  }
  EXPECT_GT(loader.total_wait_s(), 0.0);
  EXPECT_DOUBLE_EQ(loader.total_wait_s(), sum);
}

TEST_F(LoaderTest, SeekResumesAtThePosition) {
  Loader loader(source, sampler, config);
  const auto want = read(loader, 10);
  Loader resumed(source, sampler, config);
  for (const int64_t at : {5, 0, 9, 5}) {
    resumed.seek(at * 4);
    EXPECT_EQ(resumed.position(), at * 4);
    EXPECT_EQ(values(resumed.next().tokens), want[static_cast<size_t>(at)]);
    EXPECT_EQ(resumed.position(), (at + 1) * 4);
  }
  EXPECT_EQ(values(resumed.next().tokens), want[6]);
  EXPECT_THROW(resumed.seek(3), Error);
  EXPECT_THROW(resumed.seek(-4), Error);
}

TEST_F(LoaderTest, SeeksWhileTheThreadsWorkGiveTheRightBatches) {
  Loader straight(source, sampler, config);
  const auto want = read(straight, 30);
  for (const int64_t workers : {1, 3}) {
    config.workers = workers;
    Loader loader(source, sampler, config);
    for (int64_t i = 0; i < 300; ++i) {
      const int64_t at = i * 17 % 28;
      loader.seek(at * 4);
      if (i % 3 == 0) continue;
      ASSERT_EQ(values(loader.next().tokens), want[static_cast<size_t>(at)]) << i;
      if (i % 2) {
        ASSERT_EQ(values(loader.next().tokens), want[static_cast<size_t>(at + 1)]) << i;
      }
    }
  }
}

TEST_F(LoaderTest, SampleOrderDoesNotDependOnBatchOrReaders) {
  const auto rows = [&](int64_t batch, int64_t readers) {
    std::vector<std::vector<int32_t>> by_sample(48);
    config.shape.batch = batch;
    config.readers = readers;
    for (config.reader = 0; config.reader < readers; ++config.reader) {
      Loader loader(source, sampler, config);
      for (int64_t i = 0; i < 48 / (batch * readers); ++i) {
        const Batch& b = loader.next();
        for (int64_t r = 0; r < batch; ++r)
          by_sample.at(static_cast<size_t>(b.first_sample + r)) = values(b.tokens.rows(r, r + 1));
      }
    }
    return by_sample;
  };
  const auto want = rows(1, 1);
  EXPECT_EQ(rows(12, 1), want);
  EXPECT_EQ(rows(4, 3), want);
  EXPECT_EQ(rows(3, 4), want);
}

TEST_F(LoaderTest, AnIdOutsideTheVocabularyIsReportedByNextAndSeekRecovers) {
  std::vector<uint32_t> tokens = make_tokens(5000, 100);
  tokens[3000] = 100;
  source = source_of(tokens);
  for (const int64_t workers : {0, 1, 4}) {
    config.workers = workers;
    Loader loader(source, sampler, config);
    EXPECT_EQ(data_error([&] {
                for (int i = 0; i < 100; ++i) loader.next();
              }),
              "tokenized text, token 3000: id 100 is outside the vocabulary of 100 ids; use the tokenizer "
              "that made this data");
    EXPECT_THROW(loader.next(), Error) << "the failure must not pass away by itself";
    const auto clean = [&](int64_t sample) {
      return sampler.start(sample) > 3000 || sampler.start(sample) + 32 < 3000;
    };
    int64_t at = 0;
    while (!(clean(at) && clean(at + 1) && clean(at + 2) && clean(at + 3))) at += 4;
    loader.seek(at);
    EXPECT_NO_THROW(loader.next());
  }
}

TEST_F(LoaderTest, NextAllocatesNothing) {
  config.shape.document_mask = true;
  source.set_documents({.end_of_text = 7, .positions = {}});
  for (const int64_t workers : {0, 1, 4}) {
    config.workers = workers;
    Loader loader(source, sampler, config);
    for (int64_t i = 0; i <= config.ring(); ++i) loader.next();  // every thread has begun
    const int64_t before = allocations.load();
    for (int i = 0; i < 200; ++i) loader.next();
    EXPECT_EQ(allocations.load() - before, 0);
  }
}

TEST_F(LoaderTest, DocumentMaskKeepsEveryTargetAndStartsAtEndOfText) {
  source = source_of({9, 1, 2, 9, 3, 4, 5, 9, 6});
  source.set_documents({.end_of_text = 9, .positions = {}});
  const Sampler whole(SampleOrder::kEpochs, 1, 9, 8);
  Loader loader(source, whole,
                {.shape = {.batch = 1, .context = 8, .vocab_size = 10, .document_mask = true}});
  const Batch& batch = loader.next();
  EXPECT_EQ(values(batch.tokens), (std::vector<int32_t>{9, 1, 2, 9, 3, 4, 5, 9}));
  EXPECT_EQ(values(batch.targets), (std::vector<int32_t>{1, 2, 9, 3, 4, 5, 9, 6}));
  EXPECT_EQ(values(batch.doc_start), (std::vector<int32_t>{0, 0, 0, 3, 3, 3, 3, 7}));
  EXPECT_EQ(batch.counted_targets, 8);
}

TEST_F(LoaderTest, StopsWhileItsThreadsWaitOrWork) {
  for (int i = 0; i < 50; ++i) {
    config.workers = i % 5;
    Loader loader(source, sampler, config);
    if (i % 2) loader.next();
  }
}

TEST_F(LoaderTest, RefusesImpossibleShapes) {
  const auto refused = [&](LoaderConfig bad) { return usage_error([&] { bad.validate(); }) != "no error"; };
  EXPECT_FALSE(refused(config));
  EXPECT_TRUE(refused({.shape = {.batch = 0, .context = 4, .vocab_size = 4}}));
  EXPECT_TRUE(refused({.shape = {.batch = 1, .context = 0, .vocab_size = 4}}));
  EXPECT_TRUE(refused({.shape = {.batch = 1, .context = 4, .vocab_size = 0}}));
  EXPECT_TRUE(refused({.shape = {.batch = 1, .context = 4, .vocab_size = 4}, .readers = 2, .reader = 2}));
  EXPECT_TRUE(refused({.shape = {.batch = 1, .context = 4, .vocab_size = 4}, .workers = -1}));
  EXPECT_TRUE(refused({.shape = {.batch = 1, .context = 4, .vocab_size = 4}, .prefetch = 0}));
}

class EvalWindowsTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(EvalWindowsTest, EveryTokenButTheFirstIsATargetExactlyOnceAndInOrder) {
  const int64_t tokens = GetParam();
  std::vector<uint32_t> all(static_cast<size_t>(tokens));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
  const TokenSource source = source_of(all);
  for (const int64_t T : {1, 4, 16}) {
    for (const int64_t B : {1, 3}) {
      EvalWindows walk(source, {.batch = B, .context = T, .vocab_size = tokens, .document_mask = true});
      for (int pass = 0; pass < 2; ++pass, walk.rewind()) {
        int64_t expected = 1, counted = 0, batches = 0;
        while (const Batch* batch = walk.next()) {
          ++batches;
          counted += batch->counted_targets;
          for (int64_t i = 0; i < B * T; ++i) {
            const int32_t token = batch->tokens.as<int32_t>()[i], target = batch->targets.as<int32_t>()[i];
            if (target == kIgnoreIndex) {
              ASSERT_EQ(token, 0);
              continue;
            }
            ASSERT_EQ(target, expected++);
            ASSERT_EQ(token, target - 1);
          }
        }
        ASSERT_EQ(expected, tokens) << "T " << T << " B " << B;
        ASSERT_EQ(counted, walk.targets());
        ASSERT_EQ(batches, walk.batches());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokens, EvalWindowsTest,
                         ::testing::Values(2, 3, 4, 5, 16, 17, 18, 32, 33, 48, 49, 100));

TEST(EvalWindows, PaddingBelongsToNoDocument) {
  TokenSource source = source_of({5, 1, 5, 2, 3});
  source.set_documents({.end_of_text = 5, .positions = {}});
  EvalWindows walk(source, {.batch = 2, .context = 3, .vocab_size = 6, .document_mask = true});
  const Batch* batch = walk.next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(values(batch->tokens), (std::vector<int32_t>{5, 1, 5, 2, 0, 0}));
  EXPECT_EQ(values(batch->targets), (std::vector<int32_t>{1, 5, 2, 3, -100, -100}));
  EXPECT_EQ(values(batch->doc_start), (std::vector<int32_t>{0, 0, 2, 0, 1, 1}));
  EXPECT_EQ(batch->counted_targets, 4);
  EXPECT_EQ(walk.next(), nullptr);
}

TEST(EvalWindows, RefusesWhatItCannotEvaluate) {
  const TokenSource one = source_of({1}), foreign = source_of({1, 7});
  EXPECT_THAT(data_error([&] { EvalWindows walk(one, {.batch = 1, .context = 4, .vocab_size = 4}); }),
              HasSubstr("has 1 tokens, at least 2"));
  EvalWindows walk(foreign, {.batch = 1, .context = 4, .vocab_size = 4});
  EXPECT_THROW(walk.next(), Error);
}

}  // namespace
}  // namespace ingot::test
