// Folders of Hugging Face as transformers saved them (tests/golden/hf): evaluating them, starting runs from
// them, and writing checkpoints of the same family.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/checkpoint/hf_export.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/formats/safetensors_set.h"
#include "ingot/run/start_model.h"
#include "tests/nn/infer_one.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The loss is a mean of float32 losses near 5, which both programs round differently.
constexpr double kLossError = 1e-5;

fs::path golden_folder(const std::string& name) { return fs::path(INGOT_TEST_DATA) / "hf" / name; }

class HfFolder : public TrainingTest {
 protected:
  int said_by_ = 0;  // runs so far
  double loss(const fs::path& model, const fs::path& data) const {
    return evaluate_checkpoint(model, {.data = {data.string()}}).result.loss;
  }
  // Returns the configuration of a run that starts from `from` and leaves its weights almost as they are.
  RunConfig start_config(const fs::path& from, const std::vector<std::string>& overrides = {}) const {
    ConfigBuilder builder;
    for (const char* key : {"train.steps=1", "train.batch_size=1", "optimizer.lr=1e-30",
                            "schedule.warmup_steps=0", "sample.count=0"})
      builder.add_override(key);
    builder.add_override("train.init_from=" + from.string(), "--init");
    builder.add_texts("data.train", {text.string()}, "--data");
    for (const std::string& key : overrides) builder.add_override(key);
    complete_from_start(builder);
    return builder.build();
  }
  std::string start_refusal(ErrorKind kind, const fs::path& from,
                            const std::vector<std::string>& overrides = {}) {
    return error_of([&] { train(start_config(from, overrides), folder / "refused"); }, kind);
  }
  fs::path copy_of(const std::string& name) const {
    fs::remove_all(folder / name);
    fs::copy(golden_folder(name), folder / name);
    return folder / name;
  }
  void SetUp() override {
    TrainingTest::SetUp();
    write_file(text, golden_text("qwen3"));
  }
  static nlohmann::json golden(const std::string& name) {
    return nlohmann::json::parse(read_file(golden_folder(name) / "golden.json"));
  }
  static std::string golden_text(const std::string& name) { return golden(name)["text"]; }
};

class HfFamily : public HfFolder, public ::testing::WithParamInterface<const char*> {};

TEST_P(HfFamily, EvaluatesToTheLossOfTransformers) {
  const double want = golden(GetParam())["loss"];
  EXPECT_NEAR(loss(golden_folder(GetParam()), text), want, kLossError * want);
}

TEST_P(HfFamily, IsWhatARunStartsFromAndWritesBack) {
  const fs::path from = golden_folder(GetParam());
  const double want = golden(GetParam())["loss"];
  const TrainOutcome outcome = train(start_config(from), folder / "run");
  EXPECT_THAT(said, HasSubstr("started from " + from.string()));
  EXPECT_NEAR(loss(outcome.checkpoint, text), want, kLossError * want);
  const nlohmann::json config = nlohmann::json::parse(read_file(outcome.checkpoint / "config.json"));
  EXPECT_EQ(config["model_type"], golden(GetParam())["family"]);

  // Without config.toml the checkpoint is read as transformers would read it.
  fs::remove(outcome.checkpoint / "config.toml");
  fs::remove(outcome.checkpoint / "MANIFEST.json");
  fs::remove(outcome.checkpoint / "trainer.json");
  EXPECT_NEAR(loss(outcome.checkpoint, text), want, kLossError * want);
}

// Generation reads the prompt in one piece and then token by token, with a cache of keys and values;
// evaluation reads whole windows. The likeliest tokens of both must agree.
TEST_P(HfFamily, GeneratesWhatItsLogitsOfWholeWindowsSay) {
  const LoadedModel loaded = load_model(golden_folder(GetParam()), DType::f32, LoadedWeights::kTrained,
                                        [](const fs::path&, const std::string&) {});
  const Transformer& model = *loaded.model;
  const std::vector<TokenId> ids = encode(*loaded.tokenizer, golden_text(GetParam()).substr(0, 24));
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  const int64_t T = std::ssize(tokens), V = model.config().vocab;
  Region region;
  Stream stream;
  Arena scratch("scratch", model.infer_scratch_bytes(T, {1, T})), memory("caches", size_t{1} << 20);
  LayerContext ctx{
      .params = *loaded.params, .region = region, .scratch = scratch, .stream = stream, .dropout = {}};
  const auto logits_after = [&](const std::vector<int64_t>& pieces) {
    memory.release_to(0);
    OneSequence sequence{model.make_caches(memory, 1, T)};
    std::vector<float> logits;
    int64_t begin = 0;
    for (const int64_t piece : pieces) {
      sequence.append(model, ctx, {tokens.data() + begin, static_cast<size_t>(piece)}, logits);
      begin += piece;
    }
    return logits;
  };
  const std::vector<float> whole = logits_after({T});
  for (const std::vector<int64_t>& pieces :
       {std::vector<int64_t>(static_cast<size_t>(T), 1), std::vector<int64_t>{T - 13, 12, 1}}) {
    const std::vector<float> got = logits_after(pieces);
    for (int64_t v = 0; v < V; ++v)
      ASSERT_NEAR(got[static_cast<size_t>(v)], whole[static_cast<size_t>(v)], 2e-4) << v;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, HfFamily,
                         ::testing::Values("gpt2", "llama3", "mistral", "qwen2", "qwen3", "smollm3", "olmo2",
                                           "yarn"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(HfFolder, AKeyThatContradictsTheFolderIsNamedWithBothValues) {
  EXPECT_THAT(start_refusal(ErrorKind::kUsage, golden_folder("qwen3"), {"model.layers=3"}),
              AllOf(HasSubstr("--set: model.layers = 3 contradicts"), HasSubstr("config.json, which has 2")));
  EXPECT_THAT(start_refusal(ErrorKind::kUsage, golden_folder("qwen3"), {"model.qk_norm=false"}),
              HasSubstr("model.qk_norm = false contradicts"));
  EXPECT_THAT(start_refusal(ErrorKind::kUsage, golden_folder("qwen3"), {"model.context=25"}),
              HasSubstr("model.context = 25 contradicts"));
  EXPECT_THAT(start_refusal(ErrorKind::kUsage, golden_folder("gpt2"), {"model.context=8"}),
              HasSubstr("model.context = 8 contradicts"));
  EXPECT_THAT(start_refusal(ErrorKind::kUsage, golden_folder("qwen3"), {"data.tokenizer=byte"}),
              AllOf(HasSubstr("model.vocab = 32"), HasSubstr("256 tokens")));
  const RunConfig config = start_config(
      golden_folder("qwen3"), {"model.layers=2", "model.ffn=0", "model.context=8", "model.dropout=0.1"});
  EXPECT_EQ(config.model.context, 8);
  EXPECT_EQ(config.model.ffn, 24);
  EXPECT_EQ(config.model.dropout, 0.1);
  EXPECT_EQ(config.data.tokenizer, (golden_folder("qwen3") / "tokenizer.json").string());
}

TEST_F(HfFolder, AResumedRunDoesNotReadItAgain) {
  const fs::path from = copy_of("qwen2");
  RunConfig config = start_config(from);
  const TrainOutcome first = train(config, folder / "run");
  const std::string start = nlohmann::json::parse(read_file(folder / "run/run.json"))["init_from"].dump();
  EXPECT_THAT(start, AllOf(HasSubstr(from.string()), HasSubstr("\"qwen2\"")));
  fs::remove_all(from);
  config.train.steps = 2;
  const TrainOutcome second = train(config, folder / "run", true);
  EXPECT_EQ(second.steps, 2);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "run/run.json"))["init_from"].dump(), start);

  // The same command line with --resume takes model and tokenizer from the run.
  ConfigBuilder builder;
  builder.add_override("train.init_from=" + from.string(), "--init");
  complete_from_start(builder, folder / "run/config.toml");
  EXPECT_EQ(builder.config().model.ffn, 24);
  EXPECT_EQ(builder.config().data.tokenizer, config.data.tokenizer);
}

TEST_F(HfFolder, ACheckpointOfIngotIsAStartToo) {
  RunConfig once = config(DType::f32);
  once.data.tokenizer = "char";
  once.train.steps = 2;
  once.schedule.warmup_steps = 0;
  const TrainOutcome first = train(once, folder / "first");
  const RunConfig second = start_config(folder / "first");
  EXPECT_EQ(second.model.width, 32);
  EXPECT_EQ(second.train.init_from, first.checkpoint.string());
  const TrainOutcome outcome = train(second, folder / "second");
  EXPECT_NEAR(loss(outcome.checkpoint, text), loss(first.checkpoint, text), 1e-6);
}

TEST_F(HfFolder, ARateAboveTheLastOneOfTheStartIsNoted) {
  RunConfig once = config(DType::f32);
  once.data.tokenizer = "char";
  once.train.steps = 4;
  once.schedule.warmup_steps = 0;
  once.schedule.kind = ScheduleKind::kLinear;
  once.schedule.floor = 0;
  once.optimizer.lr = 1e-3;
  train(once, folder / "first");  // the rate of its last step is a quarter of 1e-3
  const auto said_by = [&](const std::vector<std::string>& keys) {
    said.clear();
    const RunConfig next = start_config(folder / "first", keys);
    train(next, folder / fmt::format("next-{}", said_by_++));
    return said;
  };
  EXPECT_THAT(
      said_by({"optimizer.lr=3.1e-4"}),
      HasSubstr("the learning rate rises to 0.00031, and " + start_config(folder / "first").train.init_from +
                " was last trained with 0.00025 (step 4): it may lose some of what it has learned; "
                "optimizer.lr=0.00025 continues with that rate"));
  const auto is_silent = ::testing::Not(HasSubstr("the learning rate rises"));
  EXPECT_THAT(said_by({"optimizer.lr=2.6e-4"}), is_silent);
  EXPECT_THAT(said_by({"optimizer.lr=1e-2", "lora.rank=2"}), is_silent);
  EXPECT_THAT(said_by({"optimizer.lr=1e-2", "optimizer.kind=sgd"}), is_silent);
}

std::vector<std::string> with_adapters(int steps) {
  return {"lora.rank=4", "optimizer.lr=0.01", fmt::format("train.steps={}", steps), "optimizer.ema=0.5",
          "lora.targets=['blocks.*.mlp.*', 'blocks.1.attention.qkv']"};
}

// A checkpoint has the adapters alone. What reads it as a model gets them merged with the folder's weights.
TEST_F(HfFolder, AdaptersAreTrainedAndMerged) {
  for (const char* name : {"qwen3", "gpt2"}) {
    const fs::path from = golden_folder(name), to = folder / name;
    const TrainOutcome outcome = train(start_config(from, with_adapters(12)), to);
    EXPECT_THAT(said, HasSubstr("of adapters are trained"));
    EXPECT_FALSE(fs::exists(outcome.checkpoint / kSafetensorsName));
    const SafetensorsFile adapters(outcome.checkpoint / "adapter_model.safetensors");
    for (const SafetensorsEntry& tensor : adapters.tensors())
      EXPECT_THAT(tensor.name, AllOf(HasSubstr("base_model.model."), HasSubstr(".lora_"))) << name;
    const nlohmann::json peft = nlohmann::json::parse(read_file(outcome.checkpoint / "adapter_config.json"));
    EXPECT_EQ(peft["base_model_name_or_path"], fs::absolute(from).lexically_normal().string());
    EXPECT_EQ(peft["fan_in_fan_out"], name == std::string("gpt2"));
    const double before = loss(from, text), after = loss(outcome.checkpoint, text);
    EXPECT_LT(after, before - 0.1);
    for (const LoadedWeights weights : {LoadedWeights::kTrained, LoadedWeights::kAveraged}) {
      const fs::path whole = folder / fmt::format("{}-{}", name, static_cast<int>(weights));
      export_hf(to, whole, {.weights = weights}, [](const fs::path&, const std::string&) {});
      const double exported = loss(whole, text);
      if (weights == LoadedWeights::kTrained) {
        EXPECT_NEAR(exported, after, 1e-6);
      }
      EXPECT_LT(exported, before - 0.05);
      EXPECT_THAT(start_config(whole).model.lora.rank, 0);
    }
  }
}

TEST_F(HfFolder, ARunOfAdaptersResumesOnTheSameFolder) {
  const fs::path from = copy_of("qwen3");
  const TrainOutcome whole = train(start_config(from, with_adapters(6)), folder / "whole");
  RunConfig config = start_config(from, with_adapters(6));
  config.train.stop_at = 3;
  train(config, folder / "parts");
  config.train.stop_at = 0;
  const TrainOutcome parts = train(config, folder / "parts", true);
  for (const char* file : {"adapter_model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(parts.checkpoint / file), read_file(whole.checkpoint / file)) << file;
  EXPECT_THAT(start_refusal(ErrorKind::kUsage, whole.checkpoint, {"lora.rank=2"}),
              AllOf(HasSubstr("has the adapters alone"), HasSubstr("ingot export")));
  const auto expect_refused = [&](const char* why) {
    EXPECT_THAT(data_error([&] { loss(whole.checkpoint, text); }),
                AllOf(HasSubstr(whole.checkpoint.string()), HasSubstr(from.string()), HasSubstr(why)));
  };
  const fs::path moved = folder / "moved";
  fs::rename(from, moved);
  expect_refused("is not there");
  RunConfig retrained = start_config(moved);
  retrained.optimizer.lr = 0.01;
  const TrainOutcome next = train(retrained, folder / "retrained");
  export_hf(next.checkpoint, from, {}, [](const fs::path&, const std::string&) {});
  expect_refused("were trained on other weights");
  config.train.steps = 8;
  EXPECT_THROW(train(config, folder / "parts", true), Error);
}

TEST_F(HfFolder, AdaptersNeedAModelAndMatchingTargets) {
  const auto refused = [&](const std::vector<std::string>& keys) {
    return start_refusal(ErrorKind::kUsage, golden_folder("qwen3"), keys);
  };
  EXPECT_THAT(refused({"lora.rank=4", "lora.targets=blocks.2.*"}),
              AllOf(HasSubstr("lora.targets selects no linear"), HasSubstr("blocks.0.attention.qkv")));
  RunConfig alone = config(DType::f32);
  alone.model.lora.rank = 4;
  EXPECT_THAT(error_of([&] { alone.validate(); }), AllOf(HasSubstr("lora.rank = 4"), HasSubstr("--init")));
  ConfigBuilder builder;
  builder.add_override("lora.targets=blocks.*");
  EXPECT_THROW(builder.build(), Error);
}

TEST_F(HfFolder, AFolderThatIsNotAWholeModelIsRefused) {
  const fs::path model = copy_of("qwen3");
  fs::remove(model / "model-00002-of-00003.safetensors");
  EXPECT_THAT(start_refusal(ErrorKind::kData, model),
              HasSubstr("names model-00002-of-00003.safetensors, which is no file in its folder"));
  fs::remove(model / kSafetensorsIndexName);
  EXPECT_THAT(start_refusal(ErrorKind::kData, model), HasSubstr("there is neither model.safetensors nor"));
  fs::copy(golden_folder("qwen2") / kSafetensorsName, model / kSafetensorsName);
  EXPECT_THAT(start_refusal(ErrorKind::kData, model), HasSubstr("model.safetensors"));
  fs::remove(model / "tokenizer.json");
  EXPECT_THAT(start_refusal(ErrorKind::kData, model), HasSubstr("there is no tokenizer.json in it"));
}

TEST_F(HfFolder, SizesAreComparedWithTheWeightsBeforeMemoryIsPlanned) {
  const fs::path model = copy_of("qwen2");
  nlohmann::json json = nlohmann::json::parse(read_file(model / "config.json"));
  json["num_hidden_layers"] = 10'000'000;
  json.erase("layer_types");
  write_file(model / "config.json", json.dump());
  EXPECT_THAT(start_refusal(ErrorKind::kData, model), HasSubstr("describes 10000000 layers"));
}

TEST_F(HfFolder, QkNormWithoutGainsIsWrittenAsQwen3) {
  RunConfig with_qk_norm = config(DType::f32);
  with_qk_norm.model.has_qk_norm = true;
  with_qk_norm.data.tokenizer = "char";
  with_qk_norm.train.steps = 2;
  with_qk_norm.schedule.warmup_steps = 0;
  const TrainOutcome outcome = train(with_qk_norm, folder / "run");
  EXPECT_EQ(nlohmann::json::parse(read_file(outcome.checkpoint / "config.json"))["model_type"], "qwen3");
  const double own = loss(outcome.checkpoint, text);
  for (const char* name : {"config.toml", "MANIFEST.json", "trainer.json"})
    fs::remove(outcome.checkpoint / name);
  EXPECT_NEAR(loss(outcome.checkpoint, text), own, kLossError * own);
}

class HfExporting : public HfFolder {
 protected:
  HfExport write(const fs::path& from, const HfExportOptions& options = {}) const {
    return export_hf(from, folder / "out", options, [](const fs::path&, const std::string&) {});
  }
  std::string export_refusal(ErrorKind kind, const fs::path& from,
                             const HfExportOptions& options = {}) const {
    return error_of([&] { write(from, options); }, kind);
  }
  // Returns the names in the fixture's folder.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename().string());
    std::ranges::sort(all);
    return all;
  }
};

TEST_F(HfExporting, DividesTheWeightsAmongFilesAndIsReadBack) {
  const double want = golden("smollm3")["loss"];
  const HfExport written = write(golden_folder("smollm3"), {.dtype = DType::f16, .file_bytes = 6000});
  EXPECT_EQ(written.model_type, "smollm3");
  EXPECT_GT(written.files, 2u);
  EXPECT_TRUE(fs::exists(folder / "out" / kSafetensorsIndexName));
  EXPECT_NEAR(loss(folder / "out", text), want, kLossError * want);  // the golden weights are f16 already
  const SafetensorsSet set = SafetensorsSet::open(folder / "out");
  EXPECT_EQ(set.files().size(), written.files);
  uint64_t bytes = 0;
  for (const SafetensorsFile* file : set.files())
    for (const SafetensorsEntry& entry : file->tensors()) {
      EXPECT_EQ(entry.dtype, DType::f16) << entry.name;
      bytes += entry.bytes.size();
    }
  EXPECT_EQ(bytes, written.bytes);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "out/config.json"))["dtype"], "float16");
}

TEST_F(HfExporting, AModelOfNoFamilyBringsItsOwnCode) {
  RunConfig capped = config(DType::f32);
  capped.model.cap.kind = LogitCap::kTanh;
  capped.data.tokenizer = "char";
  capped.train.steps = 1;
  capped.schedule.warmup_steps = 0;
  const TrainOutcome outcome = train(capped, folder / "run");
  EXPECT_EQ(write(folder / "run").model_type, "ingot");
  const nlohmann::json written = nlohmann::json::parse(read_file(folder / "out/config.json"));
  EXPECT_EQ(written["auto_map"]["AutoModelForCausalLM"], "modeling_ingot.IngotForCausalLM");
  EXPECT_EQ(written["ingot"]["cap"], "tanh");
  EXPECT_THAT(read_file(folder / "out/modeling_ingot.py"), HasSubstr("class IngotForCausalLM"));
}

TEST_F(HfExporting, LeavesNothingBehindAndReplacesNothing) {
  make_folders(folder / "out");
  write_file(folder / "out/notes.txt", "mine");
  const std::vector<std::string> before = names();
  EXPECT_THAT(export_refusal(ErrorKind::kUsage, golden_folder("qwen3")), HasSubstr("is not an empty folder"));
  EXPECT_EQ(read_file(folder / "out/notes.txt"), "mine");
  fs::remove(folder / "out/notes.txt");

  const fs::path large = copy_of("gpt2");
  const SafetensorsSet set = SafetensorsSet::open(golden_folder("gpt2"));
  std::vector<SafetensorsSource> sources;
  const std::vector<float> huge(32, 1e6f);
  for (const SafetensorsEntry& entry : set.files().front()->tensors()) {
    SafetensorsSource source{
        .name = entry.name, .dtype = *entry.dtype, .shape = entry.shape, .bytes = entry.bytes, .stream = {}};
    if (entry.name == "transformer.ln_f.weight") {
      source.dtype = DType::f32;
      source.bytes = std::as_bytes(std::span(huge));
    }
    sources.push_back(source);
  }
  write_safetensors(large / kSafetensorsName, sources);
  EXPECT_THAT(export_refusal(ErrorKind::kNumerics, large, {.dtype = DType::f16}),
              HasSubstr("tensor transformer.ln_f.weight: 1000000 does not fit into f16"));
  EXPECT_TRUE(fs::is_empty(folder / "out"));
  std::vector<std::string> after = names();
  std::erase(after, "gpt2");
  EXPECT_EQ(after, before);
  EXPECT_EQ(write(large, {.dtype = DType::bf16}).model_type, "gpt2");
}

}  // namespace
}  // namespace ingot
