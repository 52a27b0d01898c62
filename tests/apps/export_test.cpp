// `ingot export`, and the chat template on its way from a tokenizer's folder to the checkpoints of a run.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "ingot/formats/safetensors.h"
#include "tests/regress/run_program.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Returns the numbers of an f32 tensor.
std::vector<float> numbers(const SafetensorsFile& file, const std::string& name) {
  const std::span<const std::byte> bytes = file.get(name).bytes;
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class Export : public ProgramInFolder {
 protected:
  // Runs `ingot ARGUMENTS` in the folder.
  Outcome run_line(const std::string& arguments) const {
    return run_command("cd " + folder_.string() + " && OMP_WAIT_POLICY=passive " INGOT_PROGRAM " " +
                       arguments);
  }
  // Trains two steps and returns the name of the run's folder.
  std::string trained(const std::string& preset, const std::string& more = "") {
    const std::string name = "run" + std::to_string(runs_++);
    const Outcome ended =
        run_line("train " + preset + " --data text.txt --out " + name +
                 " --set train.steps=2 --set sample.count=0 --set data.tokenizer_vocab=300 " + more);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return name;
  }
  std::string checkpoint_of(const std::string& name) const {
    return (folder_ / name / "checkpoints" / "step-000000002").string();
  }

 private:
  int runs_ = 0;
};

TEST_F(Export, WritesGgufOfEveryType) {
  const std::string name = trained("tiny-llama", "--set model.qk_norm=true");
  size_t before_bytes = 0;
  for (const char* type : {"q8_0", "bf16", "f32"}) {
    const Outcome ended = run_line("export " + name + " --gguf m.gguf --type " + type);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    const std::string file = read_file(folder_ / "m.gguf");
    EXPECT_TRUE(file.starts_with("GGUF"));
    EXPECT_THAT(file, HasSubstr("qwen3.attention.head_count_kv"));
    EXPECT_THAT(file, HasSubstr("blk.0.attn_q_norm.weight"));
    EXPECT_GT(file.size(), before_bytes) << type;
    before_bytes = file.size();
  }
}

TEST_F(Export, AveragesTheLastCheckpointsOfARun) {
  const std::string run =
      trained("tiny-llama", "--set train.steps=6 --set checkpoint.every=2 --set checkpoint.keep=3");
  const Outcome ended = run_line("export " + run + " --hf mean --average 2");
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const fs::path checkpoints = folder_ / run / "checkpoints";
  const SafetensorsFile mean(folder_ / "mean/model.safetensors");
  const SafetensorsFile last(checkpoints / "step-000000006/model.safetensors");
  const SafetensorsFile before(checkpoints / "step-000000004/model.safetensors");
  ASSERT_EQ(mean.tensors().size(), last.tensors().size());
  int differ = 0;
  for (const SafetensorsEntry& tensor : mean.tensors()) {
    const std::vector<float> m = numbers(mean, tensor.name), a = numbers(last, tensor.name),
                             b = numbers(before, tensor.name);
    for (size_t i = 0; i < m.size(); ++i) {
      ASSERT_NEAR(m[i], (a[i] + b[i]) / 2, 1e-6 * (1 + std::abs(m[i]))) << tensor.name;
      differ += a[i] != b[i];
    }
  }
  EXPECT_GT(differ, 100);
  ASSERT_EQ(run_line("export " + run + " --gguf mean.gguf --type f32 --average 3").exit_code, 0);
  const Outcome refused = run_line("export " + run + " --hf more --average 4");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, testing::AllOf(HasSubstr("has 3 good checkpoints, and the mean of 4"),
                                             HasSubstr("checkpoint.keep")));
  EXPECT_FALSE(fs::exists(folder_ / "more"));
  // A damaged checkpoint is passed over.
  write_file(checkpoints / "step-000000006/model.safetensors", "damaged");
  const Outcome passed = run_line("export " + run + " --hf others --average 2");
  EXPECT_EQ(passed.exit_code, 0) << passed.output;
  EXPECT_THAT(passed.output, HasSubstr("step-000000006"));
}

TEST_F(Export, WritesTheScalingOfRotaryPositions) {
  const auto file_of = [&](const std::string& settings) {
    const Outcome ended = run_line("export " + trained("tiny-llama", settings) + " --gguf m.gguf");
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return read_file(folder_ / "m.gguf");
  };
  EXPECT_THAT(file_of("--set model.rope_scaling=llama3"), HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(file_of("--set model.rope_scaling=linear"), HasSubstr("llama.rope.scaling.factor"));
  EXPECT_THAT(file_of("--set model.rope_scaling=yarn --set model.norm_place=after --set model.qk_norm=true "
                      "--set model.qk_norm_over=width"),
              ::testing::AllOf(HasSubstr("olmo2.rope.scaling.yarn_beta_fast"),
                               HasSubstr("blk.0.post_ffw_norm.weight")));
}

// Seen: a model with these biases was written as llama, and readers of llama other than llama.cpp drop them.
TEST_F(Export, BiasesGoToAnArchitectureWhoseReadersReadThem) {
  const auto exported = [&](const std::string& settings) {
    const Outcome ended = run_line("export " + trained("tiny-llama", settings) + " --gguf m.gguf");
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return ended.output;
  };
  EXPECT_THAT(exported("--set model.qkv_bias=true"), ::testing::Not(HasSubstr("biases")));
  EXPECT_THAT(read_file(folder_ / "m.gguf"),
              ::testing::AllOf(HasSubstr("qwen2.attention.head_count_kv"), HasSubstr("blk.0.attn_q.bias")));
  EXPECT_THAT(exported("--set model.qkv_bias=true --set model.rope_scaling=llama3"),
              HasSubstr("llama.cpp reads the biases"));
  EXPECT_THAT(read_file(folder_ / "m.gguf"), HasSubstr("llama.attention.head_count_kv"));
  EXPECT_THAT(exported("--set model.bias=true"), HasSubstr("(transformers) drop"));
}

TEST_F(Export, RefusesWithAReasonAndLeavesTheFileThatWasThere) {
  const std::string name = trained("tiny-llama", "--set model.mlp=relu2");
  write_file(folder_ / "m.gguf", "before");
  const auto expect_refused = [&](const std::string& arguments, int exit_code, const std::string& text) {
    const Outcome ended = run_line("export " + arguments);
    EXPECT_EQ(ended.exit_code, exit_code) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(text));
    EXPECT_EQ(read_file(folder_ / "m.gguf"), "before");
  };
  expect_refused(name + " --gguf m.gguf", 3, "its activation is ReLU^2");
  expect_refused(name + " --gguf m.gguf --type q4_0", 2,
                 "--type must be f32, f16, bf16 or q8_0 with --gguf, got q4_0");
  expect_refused(name, 2, "say what to write: --hf DIR or --gguf FILE");
  for (const auto& [settings, what] :
       {std::pair{"--set model.window=16", "a window of attention (model.window = 16)"},
        {"--set model.nope_every=2", "blocks without rotary positions"},
        {"--set model.rope_scaling=llama3 --set model.qk_norm=true",
         "the RoPE of Llama 3 in the architecture qwen3"},
        {"--set model.norm_place=after", "one without the other"},
        {"--set model.rope_scaling=yarn --set model.rope_beta_fast=4", "YaRN with other limits"},
        {"--set model.qk_norm=true --set model.qkv_bias=true", "QK-norm with biases"}})
    expect_refused(trained("tiny-llama", settings) + " --gguf m.gguf", 3, what);
  const std::string characters = trained("tiny-llama", "--set data.tokenizer=char");
  expect_refused(characters + " --gguf m.gguf", 3, "its tokens are single characters");
}

TEST_F(Export, ChatTemplatesAreKeptInCheckpoints) {
  std::filesystem::create_directory(folder_ / "mine");
  EXPECT_EQ(run_line("tokenizer train --data text.txt --vocab-size 300 --out mine/tokenizer.json").exit_code,
            0);
  const std::string jinja = "{% for m in messages %}{{ m }}\n{% endfor %}";
  write_file(folder_ / "mine" / "chat_template.jinja", jinja);
  write_file(folder_ / "mine" / "tokenizer_config.json",
             R"({"chat_template": [{"name": "default", "template": "{{x}}"}], "eos_token": "</s>"})");
  const std::string name = trained("tiny-llama", "--set data.tokenizer=mine");
  const auto expect_kept = [&](const std::filesystem::path& folder) {
    EXPECT_EQ(read_file(folder / "chat_template.jinja"), jinja);
    EXPECT_THAT(read_file(folder / "tokenizer_config.json"), HasSubstr("\"template\""));
  };
  expect_kept(checkpoint_of(name));

  // A resumed run has only its checkpoint's files.
  std::filesystem::remove_all(folder_ / "mine" / "chat_template.jinja");
  const Outcome resumed = run_line("train --resume --out " + name + " --set train.steps=4");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  expect_kept(folder_ / name / "checkpoints" / "step-000000004");

  EXPECT_EQ(run_line("data prepare --data text.txt --tokenizer " + checkpoint_of(name) + " --out prepared")
                .exit_code,
            0);
  EXPECT_EQ(read_file(folder_ / "prepared" / "chat_template.jinja"), jinja);
  EXPECT_EQ(run_line("tokenizer export prepared/tokenizer.json --out folder --format folder").exit_code, 0);
  expect_kept(folder_ / "folder");
}

// Seen: `export --gguf /dev/null` wrote, and then ended with exit code 1 and "filesystem error: cannot get
// file size".
TEST_F(Export, AGgufMayGoToADevice) {
  const Outcome ended = run_line("export " + trained("tiny-llama") + " --gguf /dev/null --json");
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("\"bytes\":null"));
}

// /proc is a file system without a free byte.
TEST_F(Export, AGgufThatDoesNotFitIsRefusedBeforeItIsWritten) {
  if (!std::filesystem::is_directory("/proc/self")) GTEST_SKIP() << "there is no /proc";
  const Outcome ended = run_line("export " + trained("tiny-llama") + " --gguf /proc/ingot.gguf");
  EXPECT_EQ(ended.exit_code, 6) << ended.output;
  EXPECT_THAT(ended.output, ::testing::ContainsRegex("the file needs [0-9]+ bytes, 0 are free"));
}

}  // namespace
}  // namespace ingot
