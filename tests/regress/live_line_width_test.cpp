// Seen: the terminal width was read once at the start, so after the window was made narrower every step
// filled several rows; at 100 columns the remaining time was cut in the middle, at 80 it was missing.
// Wanted: the live line fits one row at any width, reads the width for each redraw, and shows the most
// important fields first and whole.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "ingot/console/console.h"
#include "ingot/console/live_line.h"
#include "tests/console/terminal_screen.h"

namespace ingot {
namespace {

constexpr char kLiveWidthMark = '\a';  // marks the end of what the console has written so far

class LiveLineWidth : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const char* term = std::getenv("TERM");
    if (term) term_ = term;
    setenv("TERM", "xterm", 1);
    emulator_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (emulator_ < 0 || ::grantpt(emulator_) != 0 || ::unlockpt(emulator_) != 0)
      GTEST_SKIP() << "no pseudo-terminals here";
    program_ = ::open(::ptsname(emulator_), O_WRONLY | O_NOCTTY);
    ASSERT_GE(program_, 0);
    resize(120);
    console_ = std::make_unique<Console>(std::make_unique<Terminal>(Terminal::Options{.fd = program_}));
    console_->line("data 1.0M tokens");
  }
  void TearDown() override {
    console_.reset();
    for (const int fd : {program_, emulator_})
      if (fd >= 0) ::close(fd);
    setenv("TERM", term_.c_str(), 1);
  }

  void resize(int columns) {
    const winsize size{
        .ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(emulator_, TIOCSWINSZ, &size), 0);
    screen_.resize(columns, GetParam());
  }
  // Reads everything that the console has written and feeds it to the screen.
  void refresh() {
    ASSERT_EQ(::write(program_, &kLiveWidthMark, 1), 1);
    for (bool is_marked = false; !is_marked;) {
      pollfd readable{.fd = emulator_, .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&readable, 1, 10'000), 1);
      char bytes[4096];
      const ssize_t n = ::read(emulator_, bytes, sizeof bytes);
      ASSERT_GT(n, 0);
      screen_.feed({bytes, static_cast<size_t>(n)});
      is_marked = bytes[n - 1] == kLiveWidthMark;
    }
  }
  StepReport step(int64_t number) const {
    return {.step = number,
            .steps = 20000,
            .progress = static_cast<double>(number) / 20000,
            .loss = 10.25,
            .grad_norm = 1.5,
            .lr = 3e-4,
            .step_ms = 118,
            .tokens_per_s = 1.5e6,
            .mfu = 0.4,
            .eta_s = 7500};
  }

  std::string term_;
  int emulator_ = -1, program_ = -1;
  TerminalScreen screen_{120};
  std::unique_ptr<Console> console_;
};

TEST_P(LiveLineWidth, OneRowAtEveryWidth) {
  for (int columns = 200; columns >= 20; --columns) {
    resize(columns);
    console_->step(step(columns), false);
    ASSERT_NO_FATAL_FAILURE(refresh());
    const std::string row = format_live_step(step(columns), columns - 1);
    ASSERT_LT(row.size(), static_cast<size_t>(columns));
    ASSERT_THAT(row, testing::HasSubstr("% | eta 2h05m")) << columns;
    ASSERT_EQ(screen_.text(), "data 1.0M tokens\n" + row) << columns;
    ASSERT_EQ(screen_.rows(), 1u) << columns;
  }
}

TEST_P(LiveLineWidth, ANarrowerWindowLeavesNothingBehind) {
  for (const auto& [wide, narrow] : {std::pair{200, 20}, {100, 60}, {120, 30}, {80, 79}, {60, 150}}) {
    resize(wide);
    console_->step(step(wide), false);
    ASSERT_NO_FATAL_FAILURE(refresh());
    resize(narrow);
    console_->live("saving");
    ASSERT_NO_FATAL_FAILURE(refresh());
    EXPECT_EQ(screen_.text(), "data 1.0M tokens\nsaving") << wide << " to " << narrow;
  }
  resize(100);
  console_->step(step(1), false);
  ASSERT_NO_FATAL_FAILURE(refresh());
  resize(40);
  console_->line("val step 1");
  ASSERT_NO_FATAL_FAILURE(refresh());
  EXPECT_EQ(screen_.text(), "data 1.0M tokens\nval step 1\n");
}

INSTANTIATE_TEST_SUITE_P(Terminals, LiveLineWidth, testing::Bool(),
                         [](const auto& info) { return info.param ? "ThatReflow" : "ThatCut"; });

}  // namespace
}  // namespace ingot
