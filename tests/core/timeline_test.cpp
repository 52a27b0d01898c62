// Spans as listeners receive them, and the Chrome trace that is made from them.
#include "ingot/core/timeline.h"

#include <gmock/gmock.h>

namespace ingot {
namespace {

class Log : public SpanListener {
 public:
  void begin(std::string_view name) override { text += "(" + std::string(name); }
  void end() override { text += ")"; }
  std::string text;
};

TEST(Spans, AreReportedToAListener) {
  Trace trace;
  Log log;
  trace.set_listener(&log);
  {
    const Span forward(&trace, "forward");
    const NamedRange block(&trace, "block", 3);
    const Span norm(&trace, "norm");
  }
  trace.set_listener(nullptr);
  const Span untold(&trace, "optimizer");
  const NamedRange nobody(nullptr, "block", 1);
  EXPECT_EQ(log.text, "(forward(block 3(norm)))");
  EXPECT_EQ(trace.phases().size(), 2u);  // a range is not a phase
}

TEST(Timeline, NestsSpans) {
  Stream stream;
  Timeline timeline(stream);
  timeline.begin("forward");
  timeline.begin("norm");
  timeline.end();
  timeline.end();
  timeline.begin("backward");
  timeline.end();
  const std::vector<Timeline::Row> rows = timeline.rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].name, "norm");
  EXPECT_EQ(rows[0].depth, 0);
  EXPECT_EQ(rows[1].depth, 1);
  EXPECT_EQ(rows[2].depth, 0);
  EXPECT_GE(rows[1].begin_s, rows[0].begin_s);
  EXPECT_LE(rows[1].end_s, rows[0].end_s);
  EXPECT_LE(rows[0].end_s, rows[2].begin_s);
  const std::string trace = timeline.chrome_trace("step");
  EXPECT_THAT(trace, ::testing::StartsWith(R"([{"name": "thread_name")"));
  EXPECT_THAT(trace, ::testing::HasSubstr(R"({"name": "backward", "ph": "X")"));
  EXPECT_THAT(trace, ::testing::EndsWith("}]\n"));
}

}  // namespace
}  // namespace ingot
