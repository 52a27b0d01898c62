// Seen: gpt2-124m, whose vocabulary has 50257 ids, failed while sampling if it was trained with the byte
// tokenizer: it drew ids above 255, of which the tokenizer knows no bytes. Wanted: samples have the
// tokenizer's ids only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

class SamplingSmallTokenizer : public ProgramInFolder {};

TEST_F(SamplingSmallTokenizer, ALargeVocabularyIsSampledFromTheTokenizersIds) {
  std::vector<std::string> line = small_run("run", {"train.steps=1", "train.grad_accum=1", "sample.count=1",
                                                    "sample.tokens=40", "eval.max_tokens=64"});
  line[1] = "gpt2-124m";
  const Outcome trained = run(line);
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(read_file(path("run") + "/config.toml"), ::testing::HasSubstr("\nvocab = 50257"));
  const Outcome generated = run({"generate", path("run"), "--prompt", "line", "--tokens", "40"});
  EXPECT_EQ(generated.exit_code, 0) << generated.output;
  EXPECT_GE(generated.output.size(), 40U);
}

}  // namespace
}  // namespace ingot
