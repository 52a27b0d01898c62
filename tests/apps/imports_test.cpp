// Tests of data from other places and of what the program makes of it: texts and side files of models, bits
// per byte, samples.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/regress/run_program.h"

namespace ingot {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Imports : public ProgramInFolder {
 protected:
  // Trains the fixture's small model and returns its run's folder.
  std::string trained(const std::string& name, std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), "train.steps=2");
    const Outcome ended = run(small_run(name, settings));
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return path(name);
  }
  json read_json(const std::string& name) const { return json::parse(read_file(folder_ / name)); }
  void change(const std::string& name, const json& changes) const {
    json file = read_json(name);
    file.update(changes);
    write_file(folder_ / name, file.dump());
  }
};

// Generation stopped at the first id of one file, and the others were lost by training.
TEST_F(Imports, TokensThatEndTextsStopGenerationAndSurviveTraining) {
  const std::string base = trained("base");
  EXPECT_EQ(run({"export", base, "--hf", path("hf")}).exit_code, 0);
  // Every byte ends a text: the first in one file and the others in the other.
  std::vector<int> others;
  for (int id = 1; id < 256; ++id) others.push_back(id);
  change("hf/config.json", {{"eos_token_id", 0}, {"bos_token_id", 7}});
  change("hf/generation_config.json", {{"eos_token_id", others}});
  const Outcome ended = run({"generate", path("hf"), "--prompt", "a", "--tokens", "20"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("a\n"));

  change("hf/config.json", {{"eos_token_id", 10}});
  change("hf/generation_config.json", {{"eos_token_id", {32, 10}}, {"pad_token_id", 9}});
  change("hf/tokenizer_config.json", {{"eos_token", {{"content", " "}, {"special", true}}}});
  write_file(folder_ / "hf" / "chat_template.jinja", "{{ x }}");
  const auto expect_kept = [&](const std::string& folder) {
    for (const char* file : {"/config.json", "/generation_config.json"}) {
      EXPECT_EQ(read_json(folder + file)["eos_token_id"], json({10, 32})) << folder << file;
      EXPECT_EQ(read_json(folder + file)["bos_token_id"], 7) << folder << file;
      EXPECT_EQ(read_json(folder + file)["pad_token_id"], 9) << folder << file;
    }
    EXPECT_EQ(read_json(folder + "/tokenizer_config.json")["eos_token"], " ") << folder;
    EXPECT_EQ(read_file(folder_ / folder / "chat_template.jinja"), "{{ x }}") << folder;
  };
  const std::vector<std::string> init = {
      "train",         "--init", path("hf"),      "--data", path("text.txt"),          "--out",
      path("tuned"),   "--set",  "train.steps=1", "--set",  "schedule.warmup_steps=0", "--set",
      "sample.count=0"};
  const Outcome tuned = run(init);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.output;
  EXPECT_THAT(tuned.output,
              HasSubstr("generated text ends at token 10, 32; documents have no token between them"));
  expect_kept("tuned/checkpoints/step-000000001");
  std::filesystem::remove_all(folder_ / "hf");
  EXPECT_EQ(run({"train", "--resume", "--out", path("tuned"), "--set", "train.steps=2"}).exit_code, 0);
  expect_kept("tuned/checkpoints/step-000000002");
  EXPECT_EQ(run({"export", path("tuned"), "--hf", path("back")}).exit_code, 0);
  expect_kept("back");
  EXPECT_EQ(run({"export", path("tuned"), "--gguf", path("m.gguf")}).exit_code, 0);
  EXPECT_THAT(read_file(folder_ / "m.gguf"),
              AllOf(HasSubstr("tokenizer.ggml.eos_token_id"), HasSubstr("tokenizer.ggml.eot_token_id")));

  // A folder that was prepared without them, with the same tokenizer.
  EXPECT_EQ(run({"data", "prepare", "--data", path("text.txt"), "--tokenizer", path("back"), "--out",
                 path("prepared")})
                .exit_code,
            0);
  EXPECT_EQ(read_json("prepared/generation_config.json")["eos_token_id"], json({10, 32}));
  std::filesystem::remove(folder_ / "prepared" / "generation_config.json");
  std::filesystem::remove(folder_ / "prepared" / "tokenizer_config.json");
  std::filesystem::remove(folder_ / "prepared" / "chat_template.jinja");
  const Outcome of_prepared =
      run({"train", "--init", path("back"), "--data", path("prepared"), "--out", path("tuned2"), "--set",
           "train.steps=1", "--set", "schedule.warmup_steps=0", "--set", "sample.count=0"});
  EXPECT_EQ(of_prepared.exit_code, 0) << of_prepared.output;
  expect_kept("tuned2/checkpoints/step-000000001");
}

TEST_F(Imports, NamesOfTheHubAreSaidNotToBeFetched) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--init", "gpt2"},
                                                {"tiny-llama", "--set", "data.tokenizer=org/model-1.5B"}}) {
    std::vector<std::string> line = {"train"};
    line.insert(line.end(), words.begin(), words.end());
    line.insert(line.end(), {"--data", path("text.txt"), "--out", path("x")});
    const Outcome ended = run(line);
    EXPECT_EQ(ended.exit_code, 3);
    EXPECT_THAT(ended.output, AllOf(HasSubstr("Ingot does not fetch it"), HasSubstr("hf download")));
  }
  EXPECT_THAT(run({"eval", path("nothing"), "--data", path("text.txt")}).output,
              Not(HasSubstr("Hugging Face")));
}

// The first token of a text, which is not predicted, was among the bytes, and a part of a text had the mean
// bytes of the whole.
TEST_F(Imports, BitsPerByteAreThoseOfThePredictedTokens) {
  const std::string of_bytes = trained("bytes");
  const auto eval = [&](const std::string& model, const std::string& file, const std::string& max_tokens) {
    const Outcome ended = run({"eval", model, "--data", path(file), "--json", "--quiet", "--batch-size", "1",
                               "--max-tokens", max_tokens});
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    return json::parse(ended.output.substr(ended.output.find('{')));  // after the warning of trained text
  };
  for (const std::string text : {"ab", "abcdefghij"}) {
    write_file(folder_ / "short.txt", text);
    const json result = eval(of_bytes, "short.txt", "0");
    EXPECT_NEAR(result["bits_per_byte"], result["loss"].get<double>() / std::log(2), 1e-12) << text;
  }
  // A tokenizer with a token of 6 bytes, which is in the second half of the text only.
  std::string half, whole;
  for (int i = 0; i < 32; ++i) half += "xy";
  whole = half;
  for (int i = 0; i < 64; ++i) whole += "abcdef";
  write_file(folder_ / "halves.txt", whole);
  json vocab, merges = json::array();
  int id = 0, other = 256;
  for (int byte = 0; byte < 256; ++byte) {  // GPT-2's characters for bytes
    const bool is_itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int c = is_itself ? byte : other++;
    const std::string two{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    vocab[c < 128 ? std::string(1, static_cast<char>(c)) : two] = id++;
  }
  for (const char* token : {"ab", "cd", "abcd", "ef", "abcdef"}) vocab[token] = id++;
  for (const auto& pair : {std::array{"a", "b"}, {"c", "d"}, {"ab", "cd"}, {"e", "f"}, {"abcd", "ef"}})
    merges.push_back(pair);
  write_file(
      folder_ / "tokenizer.json",
      json{{"added_tokens", json::array()},
           {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
           {"decoder", {{"type", "ByteLevel"}}},
           {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}}
          .dump());
  std::vector<std::string> line =
      small_run("merged", {"train.steps=2", "data.tokenizer=" + path("tokenizer.json")});
  line[3] = path("halves.txt");
  const Outcome ended = run(line);
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  const json part = eval(path("merged"), "halves.txt", "32"), all = eval(path("merged"), "halves.txt", "0");
  EXPECT_EQ(part["tokens"], 32);
  EXPECT_NEAR(part["bits_per_byte"], part["loss"].get<double>() / std::log(2), 1e-12);  // tokens of one byte
  EXPECT_EQ(all["tokens"], 127);
  EXPECT_NEAR(all["bits_per_byte"], all["loss"].get<double>() * 127 / std::log(2) / (63 + 64 * 6), 1e-12);
}

// The run ended with exit code 3 after its last step.
TEST_F(Imports, ASampleThatCannotBeMadeIsAWarning) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\":\"ab ab ba \"}\n";
  write_file(folder_ / "lines.jsonl", lines);
  std::vector<std::string> line =
      small_run("chars", {"train.steps=2", "data.tokenizer=char", "sample.count=1", "sample.tokens=8"});
  line[3] = path("lines.jsonl");
  const Outcome ended = run(line);
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "chars" / "samples" / "step-000000002.txt"));
  EXPECT_EQ(run({"generate", path("chars"), "--tokens", "4"}).exit_code, 0);

  line = small_run("prompt", {"train.steps=4", "data.tokenizer=char", "sample.count=1", "sample.every=2",
                              "sample.prompts=[\"z\"]"});
  line[3] = path("lines.jsonl");
  const Outcome warned = run(line);
  EXPECT_EQ(warned.exit_code, 0) << warned.output;
  EXPECT_THAT(warned.output,
              AllOf(HasSubstr("no sample at step 2"), HasSubstr("U+007A"), HasSubstr("no sample at step 4")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "prompt" / "checkpoints" / "step-000000004"));
}

TEST_F(Imports, TemperaturesAreCheckedAsTheTypeThatUsesThem) {
  for (const auto& [setting, message] :
       {std::pair{"sample.temperature=1e39", "sample.temperature must be from 0 to 3.4e38"},
        {"sample.top_p=1e-46", "sample.top_p must lie in (0, 1]"}}) {
    const Outcome ended = run(small_run("x", {"train.steps=1", setting}));
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.output, HasSubstr(message));
  }
}

}  // namespace
}  // namespace ingot
