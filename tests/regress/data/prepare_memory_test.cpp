// Seen: `ingot data prepare` held 783 MB of memory for 300 MB of JSON Lines. Wanted: its memory does not
// grow with the size of the text.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {
namespace fs = std::filesystem;

class LongPrepareMemory : public FolderTest {
 protected:
  std::string write_text(const std::string& name, int64_t bytes, bool is_jsonl) const {
    std::ofstream file(folder_ / name);
    std::string line;
    for (int64_t written = 0, i = 0; written < bytes; written += static_cast<int64_t>(line.size()), ++i) {
      line = fmt::format("The {} cats sat on mat {}, and dog {} ran. ", i * 7919 % 10'007, i, i * 31 % 997);
      for (int copies = 0; copies < 4; ++copies) line += line;
      line = is_jsonl ? fmt::format("{{\"text\": \"{}\\n\"}}\n", line) : line + "\n";
      file << line;
    }
    return name;
  }
  // Returns the peak resident memory of the program, in MB.
  double peak_of_prepare(const std::string& data) const {
    std::vector<std::string> words = {INGOT_PROGRAM,
                                      "data",
                                      "prepare",
                                      "--tokenizer",
                                      "byte",
                                      "--data",
                                      (folder_ / data).string(),
                                      "--out",
                                      (folder_ / "out").string()};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    EXPECT_EQ(::posix_spawn(&child, INGOT_PROGRAM, nullptr, nullptr, arguments.data(), environ), 0);
    int status = 0;
    rusage use{};
    EXPECT_EQ(::wait4(child, &status, 0, &use), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << data;
    fs::remove_all(folder_ / "out");
    return static_cast<double>(use.ru_maxrss) / 1024;
  }
};

TEST_F(LongPrepareMemory, DoesNotGrowWithTheText) {
  for (const bool is_jsonl : {true, false}) {
    const std::string ending = is_jsonl ? ".jsonl" : ".txt", name = "big" + ending;
    // The small text already has several batches, so the buffers reach their full size.
    const double small = peak_of_prepare(write_text("small" + ending, int64_t{40} << 20, is_jsonl));
    const double big = peak_of_prepare(write_text(name, int64_t{150} << 20, is_jsonl));
    std::printf("%s of 150 MB: peak %.0f MB, of 40 MB: %.0f MB\n", name.c_str(), big, small);
    EXPECT_LT(big, small + 60) << name;
    fs::remove(folder_ / name);
    fs::remove(folder_ / ("small" + ending));
  }
}

}  // namespace
}  // namespace ingot
