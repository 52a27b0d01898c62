// Seen: a run that needs more memory than the machine has started, printed the sum, and filled
// the memory until the kernel killed it. Wanted: it ends with 4 before it allocates memory, and
// names a setting that fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "ingot/core/file.h"
#include "ingot/memory/memory_limit.h"
#include "tests/regress/run_script.h"
#include "tests/regress/sanitizer.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class MemoryIsComparedFirst : public ScriptTest {
 protected:
  MemoryIsComparedFirst() {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "the cat sat on the mat. ";
    write_file(folder_ / "text.txt", text);
  }

  // Runs `ingot train ARGUMENTS` on the text and returns its exit code; the output goes to said_.
  int train(const std::string& arguments) {
    const Outcome outcome = run_command(INGOT_PROGRAM " train " + arguments + " --data " + path("text.txt") +
                                        " --out " + path("run") + " --set data.tokenizer=byte");
    said_ = outcome.output;
    return outcome.exit_code;
  }
  static int64_t peak_of_children() {
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    return usage.ru_maxrss * 1024;
  }
};

TEST_F(MemoryIsComparedFirst, ABatchThatDoesNotFitIsRefusedWithOneThatDoes) {
  if (host_memory_limit().bytes < (uint64_t{300} << 20))
    GTEST_SKIP() << "too little memory is available here";
  EXPECT_EQ(train("tiny-llama --set train.batch_size=1048576 --set train.grad_accum=1 --set train.steps=20"),
            4);
  EXPECT_THAT(said_, AllOf(HasSubstr("the largest: activations "), HasSubstr("What fits"),
                           ContainsRegex("--set train.batch_size=[0-9]+ --set train.grad_accum=[0-9]+")));
  if (!kHasAddressSanitizer) {
    EXPECT_LT(peak_of_children(), int64_t{300} << 20);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(MemoryIsComparedFirst, AModelThatNoChangeMakesFitIsRefused) {
  if (host_memory_limit().bytes > (uint64_t{400} << 30)) GTEST_SKIP() << "70 billion parameters fit here";
  EXPECT_EQ(train("llama2-70b"), 4);
  EXPECT_THAT(said_, AllOf(HasSubstr("are available by "), HasSubstr("No change of batch")));
  if (!kHasAddressSanitizer) {
    EXPECT_LT(peak_of_children(), int64_t{300} << 20);
  }
}

TEST_F(MemoryIsComparedFirst, ARunThatFitsIsUnchanged) {
  EXPECT_EQ(train("tiny-llama --set train.steps=2 --set sample.count=0 --set schedule.warmup_steps=0"), 0)
      << said_;
  EXPECT_EQ(said_.find("available by"), std::string::npos) << said_;
}

}  // namespace
}  // namespace ingot
