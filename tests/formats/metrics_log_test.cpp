#include "ingot/formats/metrics_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "tests/reference/error_of.h"
#include "tests/reference/file_size_limit.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MetricsLogTest : public FolderTest {
 protected:
  void append_raw(const std::string& text) { std::ofstream(path_, std::ios::app | std::ios::binary) << text; }

  fs::path path_ = folder_ / "metrics.jsonl";
};

TEST_F(MetricsLogTest, WritesOneObjectPerLineInTheGivenOrder) {
  MetricsLog log(path_);
  log.write({{"step", int64_t{1}}, {"loss", 2.5}, {"is_best", true}, {"note", "a\"b\n"}});
  EXPECT_EQ(read_file(path_), R"({"step":1,"loss":2.5,"is_best":true,"note":"a\"b\n"})"
                              "\n");
  log.write({{"step", int64_t{2}}});
  EXPECT_THAT(read_file(path_), ::testing::EndsWith("\n{\"step\":2}\n"));
}

TEST_F(MetricsLogTest, NumbersComeBackExactly) {
  const std::vector<double> numbers{0.1, 1e-300, 5e-324, -1.7976931348623157e308, 1.0 / 3, 0.0};
  {
    MetricsLog log(path_);
    for (const double x : numbers) log.write({{"step", std::numeric_limits<int64_t>::max()}, {"x", x}});
  }
  const std::vector<MetricsRow> rows = read_metrics(path_);
  ASSERT_EQ(rows.size(), numbers.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].number("x"), numbers[i]);
    EXPECT_EQ(std::get<int64_t>(rows[i].fields[0].second), std::numeric_limits<int64_t>::max());
  }
}

TEST_F(MetricsLogTest, NonFiniteNumbersBecomeNullAndInvalidUtf8IsReplaced) {
  MetricsLog log(path_);
  log.write(
      {{"loss", std::nan("")}, {"norm", std::numeric_limits<double>::infinity()}, {"text", "x\xff\xc3"}});
  const std::string line = read_file(path_);
  EXPECT_THAT(line, HasSubstr(R"({"loss":null,"norm":null,"text":"x)"));
  EXPECT_EQ(nlohmann::json::parse(line)["text"], "x\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(read_metrics(path_)[0].number("loss"), std::nullopt);
}

TEST_F(MetricsLogTest, AResumedRunHasNoStepTwice) {
  {
    MetricsLog log(path_);
    log.write({{"run", "first"}});
    for (int64_t step = 1; step <= 30; ++step)
      log.write({{"step", step}, {"loss", 1.0 / static_cast<double>(step)}});
  }
  MetricsLog log(path_);
  log.truncate_after(20);
  for (int64_t step = 21; step <= 40; ++step) log.write({{"step", step}, {"loss", 0.5}});
  const MetricsCurve curve = read_metrics_curve(path_, "step", "loss");
  ASSERT_EQ(curve.x.size(), 40u);
  for (size_t i = 0; i < curve.x.size(); ++i) EXPECT_EQ(curve.x[i], static_cast<double>(i + 1));
  EXPECT_EQ(curve.y[19], 0.05);
  EXPECT_EQ(curve.y[20], 0.5);
  EXPECT_THAT(read_file(path_), ::testing::StartsWith("{\"run\":\"first\"}\n"));
}

TEST_F(MetricsLogTest, ATornLastLineIsCutOffOnOpeningAndSkippedByTheReader) {
  append_raw("{\"step\":1}\n{\"step\":2,\"lo");
  EXPECT_EQ(read_metrics(path_).size(), 1u);
  MetricsLog(path_).write({{"step", int64_t{2}}});
  EXPECT_EQ(read_file(path_), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(MetricsLogTest, TruncationDropsLinesThatAreNotObjects) {
  append_raw("{\"step\":1}\nnot json\n[1]\n\n{\"step\":2}\n{\"step\":\"7\"}\n{\"step\":2.5}\n");
  MetricsLog(path_).truncate_after(2);
  EXPECT_EQ(read_file(path_), "{\"step\":1}\n{\"step\":2}\n{\"step\":\"7\"}\n");
}

// Lines of one step may be logged behind a line of the next one. A line that is not an object stays if a
// thousand lines in a row behind it stay: truncation does not read so far back.
TEST_F(MetricsLogTest, TruncationReadsFromTheEndUntilTheLinesAreInOrder) {
  std::string kept = "not json\n";
  for (int step = 1; step <= 1200; ++step) kept += "{\"step\":" + std::to_string(step) + "}\n";
  append_raw(kept + "{\"step\":1202}\n{\"step\":1200,\"val_loss\":2.5}\n[]\n{\"step\":1203}\n");
  MetricsLog log(path_);
  log.truncate_after(1200);
  EXPECT_EQ(read_file(path_), kept + "{\"step\":1200,\"val_loss\":2.5}\n");
  log.write({{"step", int64_t{1201}}});
  EXPECT_TRUE(read_file(path_).ends_with("2.5}\n{\"step\":1201}\n"));
  log.truncate_after(-1);
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(MetricsLogTest, NumbersAreFoundWithoutParsingTheLine) {
  MetricsLog(path_).write({{"step", int64_t{7}},
                           {"reason", "\"loss\":3,"},
                           {"val_loss", 2.5},
                           {"loss", -1.25e-3},
                           {"norm", std::nan("")}});
  const std::string line = read_file(path_);
  EXPECT_EQ(number_in_line(line, "step"), 7);
  EXPECT_EQ(number_in_line(line, "loss"), -1.25e-3);
  EXPECT_EQ(number_in_line(line, "val_loss"), 2.5);
  EXPECT_EQ(number_in_line(line, "norm"), std::nullopt);
  EXPECT_EQ(number_in_line(line, "reason"), std::nullopt);
  EXPECT_EQ(number_in_line(line, "absent"), std::nullopt);
}

TEST_F(MetricsLogTest, TheReaderSurvivesForeignLines) {
  append_raw(std::string(100'000, '[') + "\n\xff\xfe\n{\"a\":{\"b\":1},\"c\":null,\"step\":3}\n");
  append_raw("{\"step\":18446744073709551615}\n");
  const std::vector<MetricsRow> rows = read_metrics(path_);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0].fields, ElementsAre(MetricsField("step", int64_t{3})));
  EXPECT_EQ(rows[1].number("step"), 18446744073709551615.0);
  EXPECT_TRUE(read_metrics(folder_ / "absent.jsonl").empty());
  EXPECT_THROW(read_metrics(folder_), Error);
}

TEST_F(MetricsLogTest, AFailedWriteLeavesNoTornLine) {
  MetricsLog log(path_);
  log.write({{"step", int64_t{1}}});
  const std::string before = read_file(path_);
  {
    const FileSizeLimit full(before.size() + 5);
    EXPECT_THAT(error_of(
                    [&] {
                      log.write({{"step", int64_t{2}}});
                    },
                    ErrorKind::kDisk),
                HasSubstr(path_.string()));
  }
  EXPECT_EQ(read_file(path_), before);
  log.write({{"step", int64_t{2}}});
  EXPECT_EQ(read_metrics(path_).size(), 2u);
}

TEST_F(MetricsLogTest, AnUnwritablePathIsADiskErrorThatNamesIt) {
  for (const fs::path& path : {folder_ / "no" / "metrics.jsonl", folder_}) {
    EXPECT_THAT(error_of([&] { MetricsLog log(path); }, ErrorKind::kDisk), HasSubstr(path.string()));
  }
}

TEST_F(MetricsLogTest, AKilledProcessLosesNoLine) {
  const pid_t child = ::fork();
  if (child == 0) {
    MetricsLog log(path_);
    for (int64_t step = 1; step <= 5; ++step) log.write({{"step", step}});
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(read_metrics(path_).size(), 5u);
}

// A file that cannot be cut keeps a torn line. The next write must not append to it, which would spoil its
// own line.
TEST_F(MetricsLogTest, NothingIsAppendedToATornLineThatStays) {
  const int memory = ::memfd_create("log", MFD_ALLOW_SEALING);
  ASSERT_GE(memory, 0);
  const std::string name = fmt::format("/proc/self/fd/{}", memory);
  MetricsLog log(name);
  log.write({{"step", int64_t{1}}});
  const std::string before = read_file(name);
  ASSERT_EQ(::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  {
    const FileSizeLimit full(before.size() + 5);
    EXPECT_THROW(log.write({{"step", int64_t{2}}}), Error);
  }
  const std::string torn = read_file(name);
  EXPECT_EQ(torn.size(), before.size() + 5);
  EXPECT_THROW(log.write({{"step", int64_t{3}}}), Error);
  EXPECT_EQ(read_file(name), torn);
  ::close(memory);
}

}  // namespace
}  // namespace ingot
