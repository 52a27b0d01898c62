// ingot chat, as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/pty_run.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ChatCommand : public ProgramInFolder {
 protected:
  void SetUp() override {
    const Outcome trained =
        run(small_run("run", {"train.steps=30", "data.tokenizer=bpe", "data.tokenizer_vocab=300",
                              "model.context=8192", "train.batch_size=1", "model.window=64"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }
  std::string command(const std::string& more) const {
    return std::string(INGOT_PROGRAM) + " chat " + path("run") + " --temperature 0 " + more;
  }
  Outcome piped(const std::string& input, const std::string& more) const {
    return run_command("(printf '" + input + "' | " + command(more) + ")");
  }
};

TEST_F(ChatCommand, AnswersEveryLineOfAPipe) {
  const std::string saved = path("chats.jsonl");
  const Outcome ended =
      piped("line 4\\nline 9 \\\\\\nand more\\n/save " + saved + "\\n/reset\\nagain\\n/save " + saved + "\\n",
            "--chat-template zephyr --tokens 8 --system Brief.");
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, Not(HasSubstr("> ")));
  const std::string lines = read_file(saved);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
  EXPECT_TRUE(lines.starts_with(
      R"({"messages":[{"role":"system","content":"Brief."},{"role":"user","content":"line 4"},{"role":"assistant",)"))
      << lines;
  EXPECT_THAT(lines, HasSubstr(R"({"role":"user","content":"line 9 \nand more"})"));
  EXPECT_THAT(
      lines,
      HasSubstr(R"({"messages":[{"role":"system","content":"Brief."},{"role":"user","content":"again"})"));
}

// The questions of a chat are not predicted, so a loss per byte of it would say nothing.
TEST_F(ChatCommand, EvaluationOfChatsHasNoBitsPerByte) {
  std::string chats;
  for (int i = 0; i < 40; ++i)
    chats += fmt::format(R"({{"instruction": "line {}?", "input": "", "output": "{} of a text"}})"
                         "\n",
                         i, i * i);
  write_file(path("chats.jsonl"), chats);
  Outcome ended =
      run({"train", "sft", "--init", path("run"), "--data", path("chats.jsonl"), "--out", path("sft"),
           "--set", "train.steps=2", "--set", "data.chat_template=zephyr", "--set", "model.context=128"});
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  ended = run({"eval", path("sft"), "--data", path("chats.jsonl")});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, ::testing::ContainsRegex("loss [0-9.]+ . top-1 [0-9.]+%"));
  EXPECT_THAT(ended.output, Not(HasSubstr("bits/byte")));
  ended = run({"eval", path("run"), "--data", path("text.txt")});
  EXPECT_THAT(ended.output, HasSubstr(" bits/byte | top-1 "));
}

TEST_F(ChatCommand, ErrorsNameTheFix) {
  Outcome ended = piped("hello\\n", "");
  EXPECT_EQ(ended.exit_code, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("there is no chat template with this tokenizer"));
  ended = piped("/sing\\n", "--chat-template zephyr");
  EXPECT_EQ(ended.exit_code, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("/sing is no command; /help lists them"));
}

// Ctrl-C ends an answer of thousands of tokens. The program does not end, and Ctrl-D ends it.
TEST_F(ChatCommand, CtrlCStopsAnAnswerAndNotTheProgram) {
  PtyRun chat("exec " + command("--chat-template zephyr --tokens 6000"));
  if (!chat.is_started()) GTEST_SKIP() << "no pseudo-terminals here";
  ASSERT_TRUE(chat.read_until("/help lists the commands")) << chat.output();
  chat.wait_for_raw_mode();
  const size_t answer = chat.output().size();
  chat.type("line 4\r");
  // There is one Ctrl-C, within the answer: the terminal discards output at each, and a second one could
  // discard the line that the test awaits.
  ASSERT_TRUE(chat.read_until("\n", answer)) << chat.output();
  const size_t begin = chat.output().find('\n', answer);
  while (chat.output().size() < begin + 200) ASSERT_TRUE(chat.read_some()) << chat.output();
  chat.type("\x03");
  ASSERT_TRUE(chat.read_until("; stopped]", answer)) << chat.output();
  chat.wait_for_raw_mode();
  const size_t after = chat.output().size();
  chat.type("/sing\r");
  ASSERT_TRUE(chat.read_until("/sing is no command", after)) << chat.output();
  chat.wait_for_raw_mode();
  chat.type("\x04");
  EXPECT_EQ(chat.wait(), 0) << chat.output();
}

}  // namespace
}  // namespace ingot
