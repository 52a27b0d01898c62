// Seen: samples, `generate` and file names in error messages sent raw escape sequences to the terminal, so
// a model or the name of a file could move the cursor, change the title or hide text. Wanted: they are
// shown as \x1b; `generate` into a pipe or file writes the text unchanged.
#include "ingot/console/console.h"
#include "ingot/core/visible_text.h"
#include "tests/apps/pty_run.h"
#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(TerminalEscapes, ControlSequencesAreShownAndTextIsUnchanged) {
  EXPECT_EQ(visible_text("a\x1b[2J\a\r\b\x7f\n\tz"), "a\\x1b[2J\\x07\\x0d\\x08\\x7f\n\tz");
  EXPECT_EQ(visible_text(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(visible_text("Grüße, 世界 🙂 e\u0301 \u200d"), "Grüße, 世界 🙂 e\u0301 \u200d");
  EXPECT_EQ(visible_text("\xc2\x9b"
                         "31m"),
            "\\u009b31m");
  EXPECT_EQ(visible_text("\xe2\x80\xae"
                         "txt\xe2\x81\xa6"),
            "\\u202etxt\\u2066");
  // Bytes that are not UTF-8: stray or truncated sequences, overlong forms, surrogates, and values beyond
  // the last code point.
  EXPECT_EQ(visible_text("\x9b"
                         "31m \xe4\xbd"),
            "\\x9b31m \\xe4\\xbd");
  EXPECT_EQ(visible_text("\xc0\x9b \xe0\x80\x9b \xed\xa0\x80 \xf4\x90\x80\x80"),
            "\\xc0\\x9b \\xe0\\x80\\x9b \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80");
  EXPECT_EQ(visible_text(""), "");
}

TEST(TerminalEscapes, TheConsoleShowsControlSequencesInSamplesAndNames) {
  std::string shown;
  Console console([&](std::string_view text) { shown += text; }, 80);
  console.stream("sample \x1b]0;title\a");
  console.line("resumed runs/\x1b[31m");
  console.warning("runs/\x1b[1A: damaged");
  EXPECT_THAT(shown,
              AllOf(Not(HasSubstr("\x1b")), HasSubstr("sample \\x1b]0;title\\x07\n"),
                    HasSubstr("resumed runs/\\x1b[31m\n"), HasSubstr("warning: runs/\\x1b[1A: damaged\n")));
}

class TerminalEscapesOfTheProgram : public AttackTest {};

TEST_F(TerminalEscapesOfTheProgram, ErrorsShowControlSequencesInNames) {
  for (const char* command :
       {"train $'\\e[31m.toml' --data x", "eval $'\\e[31mnone' --data x", "data inspect $'\\e[31mnone'",
        "train tiny-llama --set $'\\e[31mkey=1'", "$'\\e[31mtrian'", "eval x --data y $'--x\\e[31m'"}) {
    const Outcome outcome = bash("$ingot " + std::string(command));
    EXPECT_NE(outcome.exit_code, 0) << command;
    EXPECT_THAT(outcome.output, AllOf(Not(HasSubstr("\x1b")), HasSubstr("[31m"))) << command;
  }
}

TEST_F(TerminalEscapesOfTheProgram, GenerateShowsThemOnATerminalAndWritesThemToAPipe) {
  make_run();
  const std::string command = "$ingot generate run --tokens 1 --prompt $'the \\e[2J end'";
  const Outcome piped = bash(command);
  EXPECT_THAT(piped.output, HasSubstr("the \x1b[2J end"));
  PtyRun shown("exec bash " + write_script(folder_, command).string());
  if (!shown.is_started()) GTEST_SKIP() << "SKIPPED LOUDLY: there is no pseudo terminal here";
  EXPECT_EQ(shown.wait(), 0) << shown.output();
  EXPECT_THAT(shown.output(), AllOf(Not(HasSubstr("\x1b")), HasSubstr("the \\x1b[2J end")));
}

}  // namespace
}  // namespace ingot
