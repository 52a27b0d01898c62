// Seen: a run that was asked to end while it read its text first read to the end, which takes minutes for a
// long text, and saved a checkpoint of step 0; `data prepare` left its unfinished folder. Wanted: exit code
// 75 at once, and nothing half-written.
#include <gmock/gmock.h>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SignalWhileReading : public ProgramInFolder {
 protected:
  // Several seconds for one thread that trains a tokenizer on it.
  SignalWhileReading() {
    setenv("OMP_NUM_THREADS", "1", 1);
    std::string text;
    text.reserve(48'000'000);
    for (uint32_t i = 1; text.size() < 40'000'000; i = i * 1'664'525 + 1'013'904'223)
      text += fmt::format("{:x} ", i >> 8);
    write_file(folder_ / "long.txt", text);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename());
    return found;
  }
  bool has_unfinished_folder() const {
    for (const std::string& name : names())
      if (name.starts_with("prepared.")) return true;
    return false;
  }
};

TEST_F(SignalWhileReading, ARunThatHasNotBegunLeavesNoFolder) {
  const pid_t pid = start({"train", "tiny-llama", "--data", path("long.txt"), "--out", path("run"), "--set",
                           "data.tokenizer=bpe"});
  ASSERT_TRUE(comes(folder_ / "run/config.toml"));
  kill(pid, SIGTERM);
  const Outcome ended = wait(pid);
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("interrupted while the text was read: nothing to save"));
  EXPECT_THAT(names(), testing::UnorderedElementsAre("text.txt", "long.txt", "output"));
}

TEST_F(SignalWhileReading, PreparingLeavesNoUnfinishedFolder) {
  const pid_t pid =
      start({"data", "prepare", "--data", path("long.txt"), "--tokenizer", "bpe", "--out", path("prepared")});
  for (int i = 0; i < 1000 && !has_unfinished_folder(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(has_unfinished_folder());
  kill(pid, SIGINT);
  EXPECT_EQ(wait(pid).exit_code, 75);
  EXPECT_THAT(names(), testing::UnorderedElementsAre("text.txt", "long.txt", "output"));
}

}  // namespace
}  // namespace ingot
