// Seen: a config.toml nested 40,000 levels deep crashed `generate`; a config.json with 10^7 layers
// allocated 4 GB before it was compared with the safetensors header; deleting MANIFEST.json disabled
// verification; a folder renamed to another step was accepted; a token shard that shrank killed the
// process with SIGBUS and no message; a model full of NaN evaluated to "loss -nan" with exit code 0.
// Wanted: each of these is one clear error with the exit code of its kind.
#include <fcntl.h>

#include <cstring>
#include <limits>
#include <span>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/process/shrunken_file.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/hf_config.h"
#include "ingot/formats/jsonl.h"
#include "ingot/formats/manifest.h"
#include "ingot/formats/metrics_log.h"
#include "ingot/formats/safetensors.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"
#include "tests/regress/attack_fixture.h"
#include "tests/regress/sanitizer.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kHostileDepth = 200'000;

std::string hostile_repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Expects that f throws an error of the kind, and returns its message.
template <typename F>
std::string hostile_message(ErrorKind kind, F f) {
  std::string message = error_of(f, kind);
  EXPECT_NE(message, "no error");
  return message;
}

class HostileModel : public AttackTest {
 protected:
  void SetUp() override { make_run(); }
  // Copies the checkpoint as a plain Hugging Face folder, which has no manifest to verify it.
  fs::path plain_copy(bool has_config_toml) const {
    const fs::path copy = folder_ / "plain";
    fs::copy(checkpoint(), copy);
    for (const char* name : {"MANIFEST.json", "trainer.json", "optimizer.safetensors"})
      fs::remove(copy / name);
    if (!has_config_toml) fs::remove(copy / "config.toml");
    return copy;
  }
  fs::path checkpoint() const { return AttackTest::checkpoint(4); }
  // The limit lets a model allocate memory before it is refused, but less than 4 GB.
  Outcome generate(const fs::path& model) const {
    const std::string limit = kHasAddressSanitizer ? "" : "ulimit -v 4000000; ";
    return bash(limit + "timeout -s KILL 20 $ingot generate " + model.string() + " --prompt the --tokens 4");
  }
  Outcome eval(const fs::path& model) const {
    return bash("timeout -s KILL 20 $ingot eval " + model.string() + " --data text.txt");
  }
  // Overwrites up to `count` leading elements of the tensor with the given value.
  void spoil(const fs::path& file, const std::string& tensor, float value, size_t count) const {
    size_t offset = 0;
    {
      const MappedFile mapped(file);
      const SafetensorsFile tensors(mapped.bytes(), file.string());
      offset = static_cast<size_t>(tensors.get(tensor).bytes.data() - mapped.bytes().data());
      count = std::min(count, static_cast<size_t>(tensors.get(tensor).elements()));
    }
    const std::vector<float> values(count, value);
    const int fd = ::open(file.c_str(), O_WRONLY);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::pwrite(fd, values.data(), values.size() * sizeof(float), static_cast<off_t>(offset)),
              static_cast<ssize_t>(values.size() * sizeof(float)));
    ::close(fd);
  }
};

TEST(HostileNesting, TomlThatNestsTooDeepIsNamedWithItsLine) {
  const std::string dotted = hostile_repeated("a.", kHostileDepth) + "a";
  for (const std::string& text :
       {"# one\n[" + dotted + "]\n", "# one\n" + dotted + " = 1\n", "# one\nx = {" + dotted + " = 1}\n",
        "# one\nx = " + hostile_repeated("{a = ", kHostileDepth),
        "# one\nx = " + hostile_repeated("[", kHostileDepth),
        // Each of the two is allowed; their combined depth is not.
        "[" + hostile_repeated("a.", 200) + "a]\n" + hostile_repeated("b.", 200) + "b = 1\n"}) {
    const std::string message = hostile_message(ErrorKind::kUsage, [&] {
      ConfigBuilder builder;
      builder.add_toml(text, "config.toml");
    });
    EXPECT_THAT(message, HasSubstr("config.toml:2: is nested deeper than 256 levels"));
  }
}

TEST(HostileNesting, TomlWithDotsAndBracketsInTextsAndCommentsIsRead) {
  const std::string dots = hostile_repeated(".[{", 1000);
  ConfigBuilder builder;
  builder.add_toml("# " + dots + "\n[data]\ntrain = [\"a" + dots + "\", 'b" + dots + "', \"\\\"" + dots +
                       "\"] # " + dots + "\ntokenizer = \"\"\"\n" + dots + "\"\"\"\n[optimizer]\nlr = 0.5\n",
                   "config.toml");
  EXPECT_EQ(builder.config().optimizer.lr, 0.5);
  EXPECT_EQ(builder.config().data.train.size(), 3u);
}

// With a million levels, recursion anywhere (also when the parsed value is freed) would overflow the stack.
TEST(HostileNesting, JsonThatNestsTooDeepIsRefusedOrPassedOver) {
  const std::string deep = hostile_repeated("[", 1'000'000), whole = deep + hostile_repeated("]", 1'000'000);
  for (const std::string& value : {deep, whole}) {
    const std::string object = "{\"model_type\": \"llama\", \"vocab_size\": " + value + "}";
    hostile_message(ErrorKind::kData, [&] { parse_hf_config(object, "config.json"); });
    hostile_message(ErrorKind::kData, [&] { parse_tokenizer(object, "tokenizer.json"); });
    hostile_message(ErrorKind::kData, [&] { parse_manifest(object, "MANIFEST.json"); });
    hostile_message(ErrorKind::kData, [&] { parse_jsonl_line(object, "text", "a.jsonl", 1); });
    std::string header = object;
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header.size();
    header.insert(0, reinterpret_cast<const char*>(&size), sizeof size);
    hostile_message(ErrorKind::kData, [&] {
      SafetensorsFile(std::as_bytes(std::span(header.data(), header.size())), "model.safetensors");
    });
  }
  EXPECT_THAT(
      hostile_message(ErrorKind::kData,
                      [&] { parse_hf_config("{\"a\": " + hostile_repeated("[", 300), "config.json"); }),
      HasSubstr("config.json: is nested deeper than 256 levels"));
}

TEST_F(HostileModel, DeeplyNestedFilesAreDataErrors) {
  const fs::path model = plain_copy(true);
  write_file(model / "config.toml", "[" + hostile_repeated("a.", 40'000) + "a]\n");
  const Outcome toml = generate(model);
  EXPECT_EQ(toml.exit_code, 3) << toml.output;
  EXPECT_THAT(toml.output, HasSubstr("config.toml:1: is nested deeper than 256 levels"));
  fs::remove(model / "config.toml");
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const std::string before = read_file(model / name);
    write_file(model / name, "{\"vocab_size\": " + hostile_repeated("[", 1'000'000) +
                                 hostile_repeated("]", 1'000'000) + ", \"model_type\": \"llama\"}");
    const Outcome outcome = generate(model);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr(name), HasSubstr("nested deeper than")));
    write_file(model / name, before);
  }
  fs::remove(model / "config.json");
}

TEST_F(HostileModel, ImpossibleSizesAreRefusedBeforeMemoryIsAllocated) {
  const fs::path model = plain_copy(false);
  const std::string config = read_file(model / "config.json");
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string changed = config;
    const size_t at = changed.find("\"" + key + "\": ") + key.size() + 4;
    changed.replace(at, changed.find_first_of(",\n", at) - at, value);
    write_file(model / "config.json", changed);
    return generate(model);
  };
  EXPECT_EQ(with("num_hidden_layers", "1").exit_code, 0);
  const Outcome layers = with("num_hidden_layers", "10000000");
  EXPECT_EQ(layers.exit_code, 3) << layers.output;
  EXPECT_THAT(layers.output,
              AllOf(HasSubstr("describes 10000000 layers"), HasSubstr("model.safetensors holds")));
  for (const auto& [key, words] :
       {std::pair("vocab_size", "describes a vocabulary of 2000000000"),
        std::pair("intermediate_size", "describes a feed-forward layer of 2000000000"),
        std::pair("head_dim", "describes queries, keys and values of")}) {
    const Outcome outcome = with(key, "2000000000");
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(words));
  }
  // This number of layers is plausible but wrong for the weights: the error names the missing tensor.
  const Outcome two = with("num_hidden_layers", "2");
  EXPECT_EQ(two.exit_code, 3) << two.output;
  EXPECT_THAT(two.output, HasSubstr("tensor \"model.layers.1.input_layernorm.weight\" is missing"));
  const Outcome context = with("max_position_embeddings", "2147483647");
  EXPECT_THAT(context.exit_code, testing::AnyOf(0, 4)) << context.output;
}

TEST_F(HostileModel, AMissingManifestBesideATrainerStateIsRefused) {
  fs::remove(checkpoint() / "MANIFEST.json");
  for (const Outcome& outcome : {eval(checkpoint()), generate(checkpoint())}) {
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_THAT(outcome.output,
                HasSubstr("MANIFEST.json is missing, which a checkpoint with a trainer.json has"));
  }
  EXPECT_EQ(eval(plain_copy(false)).exit_code, 0) << "a folder of transformers' has neither";
}

TEST_F(HostileModel, ARenamedCheckpointIsRefused) {
  const fs::path renamed = folder_ / "run/checkpoints/step-000000060";
  fs::rename(checkpoint(), renamed);
  const std::string words = "was saved at step 4, which the folder's name step-000000060 contradicts";
  const Outcome direct = eval(renamed.string() + "/");
  EXPECT_EQ(direct.exit_code, 3) << direct.output;
  EXPECT_THAT(direct.output, HasSubstr(words));
  const Outcome resumed = bash("$ingot train --resume --out run --set train.steps=5");
  EXPECT_NE(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr(words));
  fs::copy(renamed, folder_ / "best");
  EXPECT_EQ(eval(folder_ / "best").exit_code, 0) << "a name without a step says nothing false";
}

TEST_F(HostileModel, WeightsThatAreNotFiniteEndEvalAndGenerateWith5) {
  const fs::path model = plain_copy(true);
  spoil(model / "model.safetensors", "model.norm.weight", std::numeric_limits<float>::quiet_NaN(), 1);
  for (const Outcome& outcome : {eval(model), generate(model)}) {
    EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("model.safetensors: tensor model.norm.weight"), HasSubstr("nan")));
  }
}

TEST_F(HostileModel, ALossThatIsNotFiniteEndsEvalWith5) {
  const fs::path model = plain_copy(true);
  spoil(model / "model.safetensors", "model.norm.weight", 3e38f, 100'000);
  spoil(model / "model.safetensors", "lm_head.weight", 10.0f, 1'000'000);
  const Outcome outcome = eval(model);
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("the loss on the text is"));
  EXPECT_EQ(generate(model).exit_code, 5);
}

TEST(HostileShrinking, AMappedFileThatShrinksIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "shrinking\x1b";
  write_file(path, std::string(100'000, 'x'));
  EXPECT_EXIT(
      {
        explain_shrunken_files();
        MappedFile first(path);
        const MappedFile file = std::move(first);
        fs::resize_file(path, 0);
        volatile char sum = 0;
        for (const char c : file.text()) sum = static_cast<char>(sum + c);
      },
      testing::ExitedWithCode(3), "shrinking.x1b: a mapped file shrank");
  EXPECT_EXIT(
      {
        explain_shrunken_files();
        ::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

// Token shards stay mapped for the whole run, so one can shrink under it.
TEST_F(AttackTest, ATrainingWhoseShardShrinksNamesIt) {
  write_file(path("tokens.bin"), hostile_repeated(std::string("a\0b\0c\0", 6), 100'000));
  std::string arguments = train("run", "--set data.val=nanogpt:val.bin --set train.steps=100000000");
  arguments.replace(arguments.find("text.txt"), 8, "nanogpt:tokens.bin");
  const Outcome outcome = bash(
      "cp tokens.bin val.bin; $ingot " + arguments +
      " > log 2>&1 & job=$!\n"
      "for i in $(seq 200); do grep -q '\"loss\"' run/metrics.jsonl 2>/dev/null && break; sleep 0.1; done\n"
      "truncate -s 4096 tokens.bin\n"
      "for i in $(seq 300); do kill -0 $job 2>/dev/null || break; sleep 0.1; done; kill -KILL $job "
      "2>/dev/null\n"
      "wait $job; code=$?; cat log; exit $code");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("tokens.bin: a mapped file shrank"));
}

}  // namespace
}  // namespace ingot
