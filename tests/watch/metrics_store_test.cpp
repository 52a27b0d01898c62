#include "ingot/formats/chart/metrics_store.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ingot/core/file.h"
#include "ingot/watch/line_tail.h"
#include "ingot/watch/offset_index.h"
#include "ingot/watch/run_view.h"
#include "tests/watch/written_run.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

namespace fs = std::filesystem;

struct Read {
  std::vector<std::string> lines;
  int starts = 0;
  LineTail::Change poll(LineTail& tail, size_t most = size_t{1} << 20) {
    lines.clear();
    return tail.poll(
        most, [this] { ++starts; }, [this](std::string_view line, uint64_t) { lines.emplace_back(line); });
  }
};

TEST(LineTail, ReadsLinesOnceAndATornLineWhenItIsComplete) {
  const WrittenRun run("tail");
  LineTail tail(run.metrics());
  Read read;
  read.poll(tail);
  EXPECT_THAT(read.lines, IsEmpty());
  run.append("one\ntwo\nthr");
  read.poll(tail);
  EXPECT_THAT(read.lines, ElementsAre("one", "two"));
  read.poll(tail);
  EXPECT_THAT(read.lines, IsEmpty());
  run.append("ee\n");
  read.poll(tail);
  EXPECT_THAT(read.lines, ElementsAre("three"));
  EXPECT_EQ(read.starts, 0);
}

TEST(LineTail, StartsAnewForAFileThatWasReplacedCutOrRewrittenInPlace) {
  const WrittenRun run("anew");
  LineTail tail(run.metrics());
  Read read;
  run.append("one\ntwo\nthree\n");
  read.poll(tail);
  write_file(run.metrics(), "one\n");  // as a resumed run does: another file at the same place
  EXPECT_EQ(read.poll(tail), LineTail::Change::kStartedAnew);
  EXPECT_THAT(read.lines, ElementsAre("one"));
  fs::resize_file(run.metrics(), 0);
  run.append("uno\n");  // the same length, at the same place
  EXPECT_EQ(read.poll(tail), LineTail::Change::kStartedAnew);
  EXPECT_THAT(read.lines, ElementsAre("uno"));
  fs::remove(run.metrics());
  EXPECT_EQ(read.poll(tail), LineTail::Change::kStartedAnew);
  EXPECT_THAT(read.lines, IsEmpty());
  run.append("back\n");
  read.poll(tail);
  EXPECT_THAT(read.lines, ElementsAre("back"));
  EXPECT_EQ(read.starts, 3);
}

TEST(LineTail, AResumedRunMayWriteOverATornLine) {
  const WrittenRun run("torn");
  LineTail tail(run.metrics());
  Read read;
  run.append("one\nto");
  read.poll(tail);
  fs::resize_file(run.metrics(), 4);
  run.append("four\n");
  read.poll(tail);
  EXPECT_THAT(read.lines, ElementsAre("four"));
  EXPECT_EQ(read.starts, 0);
}

TEST(LineTail, SkipsALineThatIsTooLongAndStopsAtItsLimit) {
  const WrittenRun run("long");
  LineTail tail(run.metrics());
  Read read;
  run.append("a\n" + std::string(3 * LineTail::kLongestLine, 'x'));
  read.poll(tail, size_t{1} << 30);
  EXPECT_THAT(read.lines, ElementsAre("a"));
  run.append("y\nb\n");
  read.poll(tail);
  EXPECT_THAT(read.lines, ElementsAre("b"));
  for (int i = 0; i < 30'000; ++i) run.append("0123456789\n");
  read.poll(tail, 1000);
  EXPECT_TRUE(tail.is_behind());
  size_t lines = read.lines.size();
  for (int polls = 0; tail.is_behind() && polls < 1000; ++polls) {
    read.poll(tail, 1000);
    lines += read.lines.size();
  }
  EXPECT_EQ(lines, 30'000u);
}

TEST(LineTail, FollowsNoLinkAndWaitsForNoPipe) {
  const WrittenRun run("link");
  write_file(run.root() / "secret", "secret\n");
  fs::create_symlink(run.root() / "secret", run.metrics());
  LineTail tail(run.metrics());
  Read read;
  read.poll(tail);
  EXPECT_THAT(read.lines, IsEmpty());
  EXPECT_EQ(read_regular(run.metrics(), 100), "");
  EXPECT_EQ(read_regular(run.root() / "secret", 3), "sec");
  fs::remove(run.metrics());
  ASSERT_EQ(mkfifo(run.metrics().c_str(), 0600), 0);
  read.poll(tail);
  EXPECT_THAT(read.lines, IsEmpty());
}

TEST(BoundedSeries, BucketsHaveTheExtremesAndMeansOfAnyNumberOfPoints) {
  for (const int points : {1, 7, 8, 9, 16, 17, 1000, 1023}) {
    BoundedSeries series(8);
    double sum = 0;
    for (int i = 0; i < points; ++i) {
      series.add(i, i == 5 ? -100 : i * 0.5);
      sum += i == 5 ? -100 : i * 0.5;
    }
    ASSERT_LE(series.buckets().size(), 8u);
    double bucket_sum = 0, low = 0;
    int64_t count = 0;
    for (const SeriesBucket& bucket : series.buckets()) {
      bucket_sum += bucket.mean() * static_cast<double>(bucket.points);
      count += bucket.points;
      low = std::min(low, bucket.low);
      EXPECT_LE(bucket.points, series.points_per_bucket());
    }
    EXPECT_EQ(count, points);
    EXPECT_NEAR(bucket_sum, sum, 1e-9 * std::abs(sum));
    EXPECT_EQ(low, points > 5 ? -100 : 0);
    EXPECT_EQ(series.buckets().back().x, points - 1);
    EXPECT_EQ(series.last(), points == 6 ? -100 : (points - 1) * 0.5);
  }
}

TEST(MetricsStore, ReadsNumbersEventsAndParametersAndIgnoresTheRest) {
  MetricsStore store;
  for (const char* line :
       {R"({"step":1,"loss":6.5,"step_ms":250,"nested":{"loss":1},"list":[1,2],"flag":true,"gap":null})",
        R"({"step":2,"loss":6.25,"step_ms":250})", R"({"step":2,"event":"skipped","reason":"spike"})",
        R"({"step":3,"param":"w","grad_norm":2})", R"({"loss":1})", R"([{"step":9}])",
        R"({"step":4,"loss":1e999})", R"({"step":"5"})", "", "torn {", R"({"step":6,"loss":)"})
    store.add(line);
  EXPECT_EQ(store.lines(), 4);
  ASSERT_NE(store.find("loss"), nullptr);
  EXPECT_EQ(store.find("loss")->buckets().size(), 2u);
  EXPECT_EQ(store.find("loss")->last(), 6.25);
  EXPECT_EQ(store.find("train_time_s")->last(), 0.5);
  EXPECT_EQ(store.find("grad_norm/w")->last(), 2);
  EXPECT_EQ(store.find("gap"), nullptr);
  ASSERT_EQ(store.events().size(), 1u);
  EXPECT_EQ(store.events()[0].reason, "spike");
  EXPECT_EQ(store.last_step(), 3);
  const int64_t generation = store.generation();
  store.clear();
  EXPECT_NE(store.generation(), generation);
  EXPECT_TRUE(store.series().empty());
}

TEST(MetricsStore, MemoryIsBoundedForManyKeysAndDeepNesting) {
  MetricsStore store;
  std::string line = "{\"step\":1";
  for (int i = 0; i < 3000; ++i) line += fmt::format(",\"key{}\":1", i);
  for (int step = 1; step < 4; ++step) {
    std::string numbered = line;
    for (size_t at = numbered.find("key"); at != std::string::npos; at = numbered.find("key", at + 4))
      numbered[at] = static_cast<char>('a' + step);
    store.add(numbered + "}");
  }
  EXPECT_EQ(store.series().size(), MetricsStore::kMaxKeys);
  store.add(std::string(100'000, '[') + std::string(100'000, ']'));
  store.add("{\"step\":1,\"deep\":" + std::string(100'000, '{'));
  EXPECT_EQ(store.lines(), 3);
}

TEST(RunView, ACloserLookHasEveryStepOfTheRange) {
  const WrittenRun run("range");
  std::string text;
  for (int step = 1; step <= 20'000; ++step)
    text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, step * 0.25);
  run.append(text);
  RunView view(run.folder(), "range");
  while (view.refresh_metrics(size_t{1} << 16), view.is_behind()) continue;
  EXPECT_GT(view.metrics().find("loss")->points_per_bucket(), 1);
  const auto range = view.read_range(7'000, 7'099, 2000, size_t{1} << 20);
  ASSERT_TRUE(range);
  const auto& buckets = range->find("loss")->buckets();
  ASSERT_EQ(buckets.size(), 100u);
  EXPECT_EQ(buckets.front().x, 7'000);
  EXPECT_EQ(buckets.front().low, 7'000 * 0.25);
  EXPECT_EQ(buckets.back().x, 7'099);
  EXPECT_FALSE(view.read_range(1, 20'000, 2000, 10'000));
}

}  // namespace
}  // namespace ingot
