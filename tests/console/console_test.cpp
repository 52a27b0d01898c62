#include "ingot/console/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "ingot/console/colour.h"
#include "ingot/console/live_line.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "tests/console/terminal_screen.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepReport report(int64_t step) {
  return {.step = step,
          .steps = 2000,
          .progress = static_cast<double>(step) / 2000,
          .loss = 2.31454,
          .grad_norm = 0.908,
          .lr = 3e-4,
          .step_ms = 118.3,
          .tokens_per_s = 138'900,
          .mfu = 0.412,
          .eta_s = 221};
}

TEST(ConsoleFormat, StepLine) {
  EXPECT_EQ(
      format_step(report(120)),
      "step  120/2000   6.0% | loss 2.3145 | norm 0.91 | lr 3.0e-4 | 118 ms | 138.9k tok/s | mfu 41.2% | "
      "eta 3m41s");
  StepReport timed = report(120);
  timed.steps = 0;
  timed.mfu.reset();
  timed.eta_s.reset();
  timed.step_ms = 4.25;
  EXPECT_EQ(format_step(timed),
            "step    120   6.0% | loss 2.3145 | norm 0.91 | lr 3.0e-4 | 4.2 ms | 138.9k tok/s | mfu n/a");
}

TEST(ConsoleFormat, FirstColumnHasOneWidth) {
  const size_t width = format_step(report(1)).find('|');
  for (const int64_t step : {9, 10, 999, 1000, 2000}) EXPECT_EQ(format_step(report(step)).find('|'), width);
}

TEST(ConsoleFormat, EvalAndRun) {
  EXPECT_EQ(
      format_eval({.step = 250, .loss = 2.10344, .bits_per_byte = 1.5124, .top1 = 0.381, .is_best = true}),
      "val step 250 | loss 2.1034 | 1.512 bits/byte | top-1 38.1% | best");
  EXPECT_EQ(format_eval({.step = 1, .loss = 4, .top1 = 0}), "val step 1 | loss 4.0000 | top-1 0.0%");
  EXPECT_EQ(format_eval({.step = 9, .loss = 4, .tokens = 20'480, .text_tokens = 1'100'000, .is_best = true}),
            "val step 9 | loss 4.0000 | top-1 0.0% | 20.5k of 1.10M tokens | best");
  EXPECT_EQ(format_eval({.step = 9, .loss = 4, .tokens = 20'480, .text_tokens = 20'480}),
            "val step 9 | loss 4.0000 | top-1 0.0%");
  const std::string run = format_run({.status = "completed",
                                      .steps = 2000,
                                      .tokens = 1'536'000,
                                      .val_loss = 1.8761,
                                      .val_bits_per_byte = 2.7066,
                                      .wall_s = 45,
                                      .train_s = 41,
                                      .peak_rss_bytes = 310'000'000});
  EXPECT_EQ(
      run,
      "completed after 2000 steps | 1.54M tokens | val loss 1.8761 | 2.707 bits/byte | 45s (training 41s) | "
      "peak memory 310 MB");
}

TEST(ConsoleFormat, Units) {
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.0k");
  EXPECT_EQ(format_count(999'960), "1.00M");
  EXPECT_EQ(format_count(1.5e9), "1.50G");
  EXPECT_EQ(format_time(0.44), "0.4s");
  EXPECT_EQ(format_time(9.96), "10s");
  EXPECT_EQ(format_time(59.6), "1m00s");
  EXPECT_EQ(format_time(3599.7), "1h00m");
  EXPECT_EQ(format_time(7500), "2h05m");
  EXPECT_EQ(format_time(86400 * 3), "3d00h");
  EXPECT_EQ(format_time(-1), "?");
  EXPECT_EQ(format_rate(3e-4), "3.0e-4");
  EXPECT_EQ(format_rate(1.25e-12), "1.2e-12");
  EXPECT_EQ(format_rate(0), "0");
  EXPECT_EQ(format_bytes(2.35e9), "2.4 GB");
}

class ConsoleTest : public ::testing::Test {
 protected:
  Console::Sink sink() {
    return [this](std::string_view text) { out_ += text; };
  }
  std::string out_;
};

TEST_F(ConsoleTest, PlainOutputHasLoggedStepsOnlyAndNoControls) {
  Console console(sink(), 0);
  console.step(report(1), false);
  console.live("evaluating");
  console.step(report(10), true);
  console.warning("slow");
  EXPECT_EQ(out_, format_step(report(10)) + "\nwarning: slow\n");
}

// Returns what a terminal with this many columns shows after `output`.
std::string screen(std::string_view output, int columns = 200) {
  TerminalScreen terminal(columns);
  terminal.feed(output);
  return terminal.text();
}

TEST_F(ConsoleTest, LiveLineIsRenewedAndGivesWayToLines) {
  Console console(sink(), 200);
  console.step(report(1), false);
  console.step(report(1000), true);
  EXPECT_EQ(
      screen(out_),
      "step 1000/2000  50.0% | eta 3m41s | loss 2.3145 | 138.9k tok/s | 118 ms | lr 3.0e-4 | norm 0.91 | "
      "mfu 41.2%");
  console.live("evaluating");
  EXPECT_EQ(screen(out_), "evaluating");
  console.eval({.step = 1000, .loss = 2});
  console.step(report(1001), false);
  EXPECT_EQ(screen(out_),
            format_eval({.step = 1000, .loss = 2}) + "\n" + format_live_step(report(1001), 199));
  EXPECT_THAT(out_, Not(HasSubstr("\x1b[3")));
}

TEST_F(ConsoleTest, LiveLineHasWholeFieldsOnly) {
  const std::pair<int, const char*> cases[] = {
      {20, "6.0% | eta 3m41s"},
      {30, "6.0% | eta 3m41s"},
      {31, "6.0% | eta 3m41s | loss 2.3145"},
      {40, "6.0% | eta 3m41s | loss 2.3145"},
      {48, "step  120/2000   6.0% | eta 3m41s | loss 2.3145"},
      {80, "step  120/2000   6.0% | eta 3m41s | loss 2.3145 | 138.9k tok/s | 118 ms"},
      {110,
       "step  120/2000   6.0% | eta 3m41s | loss 2.3145 | 138.9k tok/s | 118 ms | lr 3.0e-4 | norm 0.91 | "
       "mfu 41.2%"}};
  for (const auto& [columns, line] : cases) {
    out_.clear();
    Console(sink(), columns).step(report(120), true);
    EXPECT_EQ(screen(out_.substr(0, out_.find("\x1b[J")), columns), line) << columns;
  }
}

TEST_F(ConsoleTest, WidthIsInCellsOfTheTerminal) {
  EXPECT_EQ(display_cells("abc"), 3);
  EXPECT_EQ(display_cells("Stra\xC3\x9F"
                          "e"),
            6);
  EXPECT_EQ(display_cells("\xE6\xBC\xA2\xE5\xAD\x97"), 4) << "two wide characters";
  EXPECT_EQ(display_cells("e\xCC\x81"), 1) << "an accent that combines";
  EXPECT_EQ(display_cells("\xFF\xE6\xBC"), 3) << "no UTF-8";
  EXPECT_EQ(fit_fields("\xE6\xBC\xA2\xE5\xAD\x97 | 40%", 9), "\xE6\xBC\xA2\xE5\xAD\x97");
  EXPECT_EQ(fit_fields("\xE6\xBC\xA2\xE5\xAD\x97 | 40%", 10), "\xE6\xBC\xA2\xE5\xAD\x97 | 40%");
  EXPECT_EQ(fit_fields("evaluating  40% | eta 12s", 20), "evaluating  40%");
  EXPECT_EQ(fit_fields("evaluating the text", 15), "evaluating the");
  EXPECT_EQ(fit_fields("evaluating", 9), "");
}

// Regression: "saving" and the next message were once printed on the same line.
TEST_F(ConsoleTest, LiveTextNeverGluesToWhatFollows) {
  Console console(sink(), 80);
  console.live("saving");
  console.warning("the disk is full");
  console.live("saving");
  console.stream("once\n");
  console.live("saving");
  console.line("saved");
  EXPECT_EQ(screen(out_), "warning: the disk is full\nonce\nsaved\n");
  EXPECT_THAT(out_, Not(HasSubstr("savingwarning")));
}

TEST_F(ConsoleTest, ColoursAreForLabelsWarningsAndTheBest) {
  Console console(
      sink(), [] { return 80; }, true);
  console.warning("slow");
  console.eval({.step = 1000, .loss = 2, .is_best = true});
  console.step(report(120), false);
  EXPECT_THAT(out_, HasSubstr("\x1b[33mwarning:\x1b[0m slow\n"));
  EXPECT_THAT(out_, HasSubstr("\x1b[2mval step \x1b[0m1000\x1b[2m | loss \x1b[0m2.0000"));
  EXPECT_THAT(out_, HasSubstr("\x1b[32mbest\x1b[0m\n"));
  EXPECT_EQ(screen(out_, 80),
            "warning: slow\n" + format_eval({.step = 1000, .loss = 2, .is_best = true}) +
                "\nstep  120/2000   6.0% | eta 3m41s | loss 2.3145 | 138.9k tok/s | 118 ms");
}

TEST(ConsoleColour, FollowsTheEnvironment) {
  const auto wants = [](const char* no_color, const char* force_color, const char* term, bool is_terminal) {
    const std::pair<const char*, const char*> variables[] = {
        {"NO_COLOR", no_color}, {"FORCE_COLOR", force_color}, {"TERM", term}};
    std::vector<std::optional<std::string>> before;
    for (const auto& [name, value] : variables) {
      const char* old = std::getenv(name);
      before.push_back(old ? std::optional<std::string>(old) : std::nullopt);
      setenv(name, value, 1);
    }
    const bool result = wants_colour(is_terminal);
    for (size_t i = 0; i < before.size(); ++i)
      before[i] ? setenv(variables[i].first, before[i]->c_str(), 1) : unsetenv(variables[i].first);
    return result;
  };
  EXPECT_TRUE(wants("", "", "xterm", true));
  EXPECT_FALSE(wants("", "", "xterm", false));
  EXPECT_FALSE(wants("", "", "dumb", true));
  EXPECT_FALSE(wants("", "", "", true));
  EXPECT_FALSE(wants("1", "", "xterm", true));
  EXPECT_FALSE(wants("1", "1", "xterm", true));
  EXPECT_TRUE(wants("", "1", "dumb", false));
  EXPECT_FALSE(wants("", "0", "xterm", true));
}

TEST_F(ConsoleTest, StreamedTextIsFollowedByANewLine) {
  Console console(sink(), 80);
  console.live("sampling");
  console.stream("once");
  console.live("would overwrite the text");
  console.stream(" upon");
  console.line("next");
  EXPECT_EQ(screen(out_), "once upon\nnext\n");
}

TEST_F(ConsoleTest, LogFileHasEveryLineInPlainText) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "train.log";
  {
    Console console(
        sink(), [] { return 80; }, true);
    console.line("before");
    console.open_log(path);
    console.step(report(1), false);
    console.step(report(10), true);
    console.stream("a b");
    console.line("end");
  }
  EXPECT_EQ(read_file(path), format_step(report(10)) + "\na b\nend\n");
  Console console(sink(), 0);
  EXPECT_THROW(console.open_log("/proc/no-such/train.log"), Error);
}

}  // namespace
}  // namespace ingot
