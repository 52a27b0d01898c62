#include "ingot/config/config_toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "ingot/config/config_keys.h"
#include "ingot/config/config_units.h"
#include "ingot/config/nearest.h"
#include "ingot/config/optimizer_keys.h"
#include "ingot/core/file.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/config/built_config.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string toml_refusal(const std::string& text) {
  return usage_error([&] {
    ConfigBuilder builder;
    builder.add_toml(text, "run.toml");
    builder.build();
  });
}

std::string set_refusal(const std::string& assignment) {
  return usage_error([&] { built_config("", {assignment}); });
}

RunConfig with(const std::string& assignment) { return built_config("", {assignment}); }

TEST(ConfigToml, ReadsEveryKindOfValue) {
  ConfigBuilder builder;
  builder.add_toml(R"(
[model]
layers = 1_000
norm = "layernorm"
bias = true
cap = "tanh"
cap_a = 30
[data]
train = ["a.txt", "b.txt"]
val = "c.txt"
[train]
steps = "512k"
max_time = "1h30m"
[optimizer]
lr = 2e-5
grad_clip = 1
[precision]
compute = "bf16"
)",
                   "run.toml");
  const RunConfig& config = builder.build();
  EXPECT_EQ(config.model.layers, 1000);
  EXPECT_EQ(config.model.norm, NormKind::kLayerNorm);
  EXPECT_TRUE(config.model.has_bias);
  EXPECT_EQ(config.model.cap.kind, LogitCap::kTanh);
  EXPECT_EQ(config.model.cap.a, 30);
  EXPECT_THAT(config.data.train, ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(config.data.val, ElementsAre("c.txt"));
  EXPECT_EQ(config.train.steps, 512'000);
  EXPECT_EQ(config.train.max_time_s, 5400);
  EXPECT_EQ(config.optimizer.lr, 2e-5);
  EXPECT_EQ(config.optimizer.grad_clip, 1);
  EXPECT_EQ(config.precision.compute, DType::bf16);
}

TEST(ConfigToml, ReadsListsOfNumbers) {
  ConfigBuilder builder;
  builder.add_toml("[data]\ntrain = [\"a\", \"b\", \"c\"]\nmix = [1, 0.5, 2e-1]\n", "file.toml");
  EXPECT_EQ(builder.build().data.mix, (std::vector<double>{1, 0.5, 0.2}));
  builder.add_override("data.mix=[3, 2, 1]");
  EXPECT_EQ(builder.build().data.mix, (std::vector<double>{3, 2, 1}));
  builder.add_override("data.mix=[]");
  EXPECT_TRUE(builder.build().data.mix.empty());
}

TEST(ConfigToml, MixturesThatCannotBeAreRefused) {
  const auto mix_error = [](const std::string& mix) {
    ConfigBuilder builder;
    builder.add_toml("[data]\ntrain = [\"a\", \"b\"]\n", "file.toml");
    return error_of([&] {
      builder.add_override("data.mix=" + mix);
      builder.build();
    });
  };
  EXPECT_THAT(mix_error("[1]"), HasSubstr("one weight for each entry of data.train, got 1 for 2"));
  EXPECT_THAT(mix_error("[1, 0]"),
              HasSubstr("data.mix: a weight of a mixture must be a number above 0, got 0"));
  EXPECT_THAT(mix_error("[1, -1]"), HasSubstr("got -1"));
  EXPECT_THAT(mix_error("[1, nan]"),
              HasSubstr("data.mix must be a list of numbers such as [0.7, 0.3], got nan"));
  EXPECT_THAT(mix_error("[1, \"x\"]"), HasSubstr("data.mix must be a list of numbers"));
  EXPECT_THAT(mix_error("[\"1\", \"2\"]"), HasSubstr("data.mix must be a list of numbers"));
  EXPECT_THAT(mix_error("0.5"), HasSubstr("got 0.5"));
  EXPECT_EQ(mix_error("[0.5, 2]"), "no error");
}

TEST(ConfigToml, LaterSourcesOverrideEarlierOnes) {
  ConfigBuilder builder;
  builder.add_toml("preset = \"tiny-llama\"\n[train]\nsteps = 7\n[schedule]\nwarmup_steps = 2", "run.toml");
  builder.add_override("optimizer.lr=0.5");
  builder.add_override("optimizer.lr=0.25");
  const RunConfig& config = builder.build();
  EXPECT_EQ(config.preset, "tiny-llama");
  EXPECT_EQ(config.model.width, 64);     // preset
  EXPECT_EQ(config.train.steps, 7);      // the file overrides the preset
  EXPECT_EQ(config.optimizer.lr, 0.25);  // the last --set wins
  EXPECT_EQ(config.optimizer.rule.options.get(&AdamW::Options::beta1),
            std::nullopt);  // unset: the rule's default applies
}

TEST(ConfigToml, OverridesTakeTomlOrBareText) {
  EXPECT_EQ(with("train.steps=2M").train.steps, 2'000'000);
  EXPECT_EQ(with("train.steps=4Ki").train.steps, 4096);
  EXPECT_EQ(with("train.steps=1_000").train.steps, 1000);
  EXPECT_EQ(with("train.max_time=90s").train.max_time_s, 90);
  EXPECT_EQ(with("precision.compute=bf16").precision.compute, DType::bf16);
  EXPECT_EQ(with("precision.compute=\"bf16\"").precision.compute, DType::bf16);
  EXPECT_EQ(with("data.tokenizer=2024").data.tokenizer, "2024");
  EXPECT_EQ(with("data.tokenizer=a = b").data.tokenizer, "a = b");
  EXPECT_THAT(with("data.train=x.txt").data.train, ElementsAre("x.txt"));
  EXPECT_THAT(with("sample.prompts=[\"a\", \"b\\n\"]").sample.prompts, ElementsAre("a", "b\n"));
  EXPECT_THAT(with("sample.prompts=x\n[train]\nsteps=3").sample.prompts, ElementsAre("x\n[train]\nsteps=3"));
}

TEST(ConfigToml, ErrorsNamePlaceRuleAndNearestKey) {
  EXPECT_EQ(toml_refusal("[optimizer]\n\nlrr = 1"),
            "run.toml:3: optimizer.lrr: unknown key; did you mean optimizer.lr?");
  EXPECT_EQ(toml_refusal("[optimzer]\nlr = 1"),
            "run.toml:1: [optimzer]: unknown section; did you mean optimizer?");
  EXPECT_EQ(toml_refusal("[train]\nlr = 1"), "run.toml:2: train.lr: unknown key; did you mean optimizer.lr?");
  EXPECT_EQ(toml_refusal("steps = 1"), "run.toml:1: steps: unknown key; did you mean train.steps?");
  EXPECT_THAT(toml_refusal("model = 1"), HasSubstr("run.toml:1: model is a section"));
  EXPECT_EQ(toml_refusal("[train]\nsteps = true"),
            "run.toml:2: train.steps must be a whole number, at least 1, got true");
  EXPECT_EQ(
      toml_refusal("[train]\nsteps = 0"),
      "run.toml:2: train.steps must be a whole number, at least 1, got 0; the nearest valid value is 1");
  EXPECT_THAT(toml_refusal("[train]\nsteps = 1.5"), HasSubstr("got 1.5"));
  EXPECT_THAT(toml_refusal("[train]\nsteps = 2020-01-01"),
              HasSubstr("run.toml:2: train.steps must be a whole"));
  EXPECT_THAT(toml_refusal("[optimizer]\nlr = nan"), HasSubstr("run.toml:2: optimizer.lr must be a number"));
  EXPECT_THAT(toml_refusal("[data]\ntrain = [1]"), HasSubstr("a text or a list of texts"));
  EXPECT_EQ(
      toml_refusal("[model]\nnorm = \"rmsnrm\""),
      "run.toml:2: model.norm must be one of layernorm, rmsnorm, rmsnorm_weightless, got \"rmsnrm\"; did "
      "you mean rmsnorm?");
  EXPECT_EQ(set_refusal("optimizer.lrr=1"), "--set: optimizer.lrr: unknown key; did you mean optimizer.lr?");
  EXPECT_THAT(set_refusal("train.steps=many"), HasSubstr("--set: train.steps must be a whole number"));
  EXPECT_THAT(set_refusal("train.steps"), HasSubstr("wanted key=value"));
  EXPECT_THAT(set_refusal("preset=demo"), HasSubstr("the command's argument"));
}

class FilesWithBases : public FolderTest {
 protected:
  FilesWithBases() { make_folders(folder_ / "more"); }
};

TEST_F(FilesWithBases, OverrideThem) {
  write("common.toml", "preset = \"tiny-llama\"\n[train]\nsteps = 7\nbatch_size = 3\n[optimizer]\nlr = 0.5");
  write("large.toml", "base = \"common.toml\"\n[train]\nbatch_size = 5\n[optimizer]\nlr = 0.25");
  const std::string file = write("more/run.toml", "base = \"../large.toml\"\n[optimizer]\nlr = 0.125");
  ConfigBuilder builder;
  builder.add_source(file);
  const RunConfig& config = builder.build();
  EXPECT_EQ(config.preset, "tiny-llama");
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.batch_size, 5);
  EXPECT_EQ(config.optimizer.lr, 0.125);
  EXPECT_EQ(builder.set_by_user("train.steps"), (folder_ / "more/../common.toml").string() + ":3");
}

TEST_F(FilesWithBases, AreRefusedWithTheirPlace) {
  const auto refused = [](const std::string& file) {
    return usage_error([&] { ConfigBuilder().add_source(file); });
  };
  const std::string a = write("a.toml", "base = \"b.toml\"\n[train]\nsteps = 1");
  write("b.toml", "[train]\nsteps = 2\n");
  EXPECT_EQ(refused(a), "no error");
  write("b.toml", "\nbase = \"./a.toml\"");
  EXPECT_THAT(refused(a), AllOf(HasSubstr("b.toml:2: "), HasSubstr("is its own base")));
  EXPECT_THAT(refused(write("c.toml", "base = \"none.toml\"")),
              AllOf(HasSubstr("c.toml:1: "), HasSubstr("none.toml")));
  EXPECT_THAT(refused(write("d.toml", "base = 1")), HasSubstr("d.toml:1: base must be the name of a file"));
  EXPECT_THAT(refused(write("e.toml", "preset = \"demo\"\nbase = \"b.toml\"")),
              HasSubstr("e.toml:2: a file has a base or a preset"));
  EXPECT_THAT(set_refusal("base=x.toml"), HasSubstr("the base is the command's argument"));
}

TEST(ConfigToml, FilesThatAreNotTomlAreNamedWithTheirLine) {
  EXPECT_THAT(toml_refusal("[train]\nsteps = 512k"),
              ::testing::AllOf(HasSubstr("run.toml:2: not TOML"), HasSubstr("stands in quotes: \"512k\"")));
  EXPECT_THAT(toml_refusal("[train]\nsteps = 1\nsteps = 2"), HasSubstr("run.toml:3: not TOML"));
  EXPECT_THAT(toml_refusal("[train\n"), HasSubstr("run.toml:1: not TOML"));
  EXPECT_THAT(usage_error([] { ConfigBuilder().add_source("no/such.toml"); }), HasSubstr("no/such.toml"));
  EXPECT_THAT(usage_error([] { ConfigBuilder().add_source("tiny-lama"); }),
              HasSubstr("did you mean tiny-llama?"));
  EXPECT_THAT(toml_refusal("preset = \"tiny-lama\""), HasSubstr("run.toml:1: no preset is called"));
}

// Errors that only the combination of all values shows name the place where the value was set.
TEST(ConfigToml, ImpossibleCombinationsNameThePlaceOfTheKey) {
  EXPECT_THAT(
      toml_refusal("[model]\nheads = 6\n\nkv_heads = 4\nwidth = 96"),
      ::testing::AllOf(HasSubstr("run.toml:4: model.kv_heads must divide"), HasSubstr("valid value is 3")));
  EXPECT_THAT(toml_refusal("[train]\nsteps = 10\n[schedule]\nwarmup_steps = 11"),
              ::testing::AllOf(HasSubstr("run.toml:4: "), HasSubstr("nearest valid value is 10")));
  EXPECT_THAT(set_refusal("optimizer.lr=-1"), HasSubstr("--set: optimizer.lr must be above 0"));
  EXPECT_THAT(set_refusal("train.stop_at=2000"), HasSubstr("--set: train.stop_at must be at most"));
  EXPECT_THAT(set_refusal("sample.top_p=0"), HasSubstr("--set: sample.top_p must lie in (0, 1]"));
}

// A key whose entry in the table is wrong would read back a different value, or the value of another key.
TEST(ConfigToml, ResolvedTextReadsBackUnchanged) {
  ConfigBuilder changed;
  const std::set<std::string> flags{"model.bias", "model.qk_norm", "data.document_mask"};
  int n = 0;
  for (const ConfigKey& key : config_keys()) {
    ++n;
    ConfigValue value = int64_t{300 + n};  // inside the bounds of every integer key
    if (key.rule.starts_with("a number")) value = 0.001 + n / 3.0 * 1e-3;
    if (key.rule.starts_with("a duration")) value = 90.25 + n;
    if (key.rule.starts_with("true or false")) value = flags.count(key.name) > 0;
    if (key.rule == "a text") value = fmt::format("quote \" slash \\ line\n tab\t é {}", n);
    if (key.name == "parallel.order") value = "tp pp fsdp dp";
    if (key.rule.starts_with("phases"))
      value = std::vector<std::string>{fmt::format("{} linear to 0.5", n), "12.5% constant"};
    if (key.rule.starts_with("stages")) value = std::vector<std::string>{fmt::format("2 until {}", n)};
    if (key.rule.starts_with("a list of"))
      value = std::vector<std::string>{key.rule.substr(key.rule.rfind(' ') + 1)};
    if (key.rule == "a list of numbers") value = std::vector<double>{1.0 / 3, 2, n + 0.5};
    if (key.rule == "a list of whole numbers") value = std::vector<double>{0, 2.0 + n};
    if (key.rule.starts_with("a text or")) value = std::vector<std::string>{key.name, "\x01\x7f", ""};
    if (key.rule.starts_with("one of")) value = key.rule.substr(key.rule.rfind(' ') + 1);  // the last value
    key.set(changed.config(), value);
  }
  const RunConfig defaults;
  const std::string text = config_toml(changed.config(), ConfigDocs::kNone);
  ConfigBuilder reread, reread_with_docs;
  reread.add_toml(text, "config.toml");
  reread_with_docs.add_toml(config_toml(changed.config(), ConfigDocs::kComments), "config.toml");
  EXPECT_EQ(config_toml(reread.config(), ConfigDocs::kNone), text);
  EXPECT_EQ(config_toml(reread_with_docs.config(), ConfigDocs::kNone), text);
  std::set<std::string> unlike;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(key.toml(reread.config()), key.toml(changed.config())) << key.name;
    if (key.toml(changed.config()) != key.toml(defaults)) unlike.insert(key.name);
  }
  EXPECT_GT(unlike.size(), config_keys().size() * 8 / 10);  // the test changed nearly all
}

constexpr const char* kGroups = R"(
[optimizer]
lr = 1e-3
kind = "adamw"
beta2 = 0.99
[[optimizer.group]]
roles = ["matrix"]
kind = "muon"
lr = 0.02
newton_schulz = "polar_express"
normuon = true
[[optimizer.group]]
roles = ["embedding", "head"]
match = "*.weight"
lr_scale = 0.5
beta1 = 0.8
)";

// The options of a group, with the defaults of its rule.
template <typename Options>
Options options_of(const OptimizerConfig& optimizer, size_t group) {
  return read_options<Options>(resolve_options(optimizer.groups[group].rule, optimizer.rule));
}

TEST(ConfigGroups, ReadBackAsTheyWereWritten) {
  ConfigBuilder builder;
  builder.add_toml(kGroups, "run.toml");
  const OptimizerConfig& optimizer = builder.build().optimizer;
  ASSERT_EQ(optimizer.groups.size(), 2u);
  EXPECT_EQ(optimizer.rule.options.get(&AdamW::Options::beta2), 0.99);
  EXPECT_THAT(optimizer.groups[0].roles, ElementsAre(ParamRole::kMatrix));
  EXPECT_EQ(optimizer.groups[0].rule.kind, "muon");
  EXPECT_EQ(optimizer.groups[0].lr, 0.02);
  EXPECT_EQ(optimizer.groups[0].rule.options.get(&Muon::Options::newton_schulz),
            NewtonSchulzKind::kPolarExpress);
  EXPECT_EQ(optimizer.groups[0].rule.options.get(&Muon::Options::normuon), true);
  EXPECT_EQ(optimizer.groups[0].rule.options.get(&AdamW::Options::beta2), std::nullopt);
  EXPECT_THAT(optimizer.groups[1].roles, ElementsAre(ParamRole::kEmbedding, ParamRole::kHead));
  EXPECT_THAT(optimizer.groups[1].match, ElementsAre("*.weight"));
  EXPECT_EQ(optimizer.groups[1].lr_scale, 0.5);
  // A group of another kind starts from that kind's defaults, one of the same kind from the base rule.
  EXPECT_EQ(options_of<Muon::Options>(optimizer, 0).beta2, 0.9);
  EXPECT_EQ(options_of<Muon::Options>(optimizer, 0).momentum, 0.95);
  EXPECT_EQ(options_of<AdamW::Options>(optimizer, 1).beta2, 0.99);
  EXPECT_EQ(options_of<AdamW::Options>(optimizer, 1).beta1, 0.8);

  const std::string text = config_toml(builder.config(), ConfigDocs::kNone);
  ConfigBuilder reread;
  reread.add_toml(text, "config.toml");
  EXPECT_EQ(config_toml(reread.build(), ConfigDocs::kNone), text);
  EXPECT_EQ(reread.config().optimizer.groups.size(), 2u);
  EXPECT_NE(config_hash(reread.config()), config_hash(RunConfig()));
}

TEST(ConfigGroups, EveryKeyReadsBack) {
  for (const ConfigKey& key : optimizer_group_keys()) {
    ConfigBuilder changed;
    changed.config().optimizer.groups.emplace_back();
    ConfigValue value = int64_t{300};
    if (key.rule.starts_with("a number")) value = 0.625;
    if (key.rule.starts_with("true or false")) value = true;
    if (key.rule.starts_with("a text")) value = "blocks.*";
    if (key.rule.starts_with("one of") || key.rule.starts_with("a list of"))
      value = key.rule.substr(key.rule.rfind(' ') + 1);
    key.set(changed.config(), value);
    const std::string text = config_toml(changed.config(), ConfigDocs::kNone);
    ConfigBuilder reread;
    reread.add_toml(text, "config.toml");
    EXPECT_EQ(config_toml(reread.config(), ConfigDocs::kNone), text) << key.name;
    EXPECT_THAT(text, HasSubstr(fmt::format("\n{} = ", key.name.substr(kOptimizerGroup.size() + 1))))
        << key.name;
  }
}

TEST(ConfigGroups, OverridesReplaceGroups) {
  ConfigBuilder builder;
  builder.add_toml(kGroups, "run.toml");
  builder.add_override("optimizer.group=[{roles = [\"norm\"], lr_scale = 2}]");
  ASSERT_EQ(builder.build().optimizer.groups.size(), 1u);
  EXPECT_EQ(builder.config().optimizer.groups[0].lr_scale, 2);
  builder.add_override("optimizer.group=[]");
  EXPECT_TRUE(builder.build().optimizer.groups.empty());
  EXPECT_EQ(with("optimizer.kind=lion").optimizer.rule.kind, "lion");
  EXPECT_EQ(with("optimizer.beta2=auto").optimizer.rule.options.get(&AdamW::Options::beta2), std::nullopt);
  EXPECT_EQ(with("optimizer.nesterov=true").optimizer.rule.options.get(&Muon::Options::nesterov), true);
}

TEST(ConfigGroups, ErrorsNamePlaceAndNearestKey) {
  EXPECT_EQ(toml_refusal("[[optimizer.group]]\nroles = [\"norm\"]\nlrr = 1"),
            "run.toml:3: optimizer.group.lrr: unknown key; did you mean optimizer.group.lr?");
  EXPECT_THAT(toml_refusal("[[optimizer.group]]\nroles = [\"norm\"]\nkind = \"moun\""),
              HasSubstr("run.toml:3: optimizer.group.kind must be one of"));
  EXPECT_THAT(toml_refusal("[[optimizer.group]]\nroles = [\"matrx\"]"),
              ::testing::AllOf(HasSubstr("run.toml:2: optimizer.group.roles must be a list of embedding"),
                               HasSubstr("did you mean matrix?")));
  EXPECT_THAT(toml_refusal("[optimizer]\ngroup = 3"), HasSubstr("run.toml:2: a group of the optimizer is"));
  EXPECT_THAT(toml_refusal("\n[[optimizer.group]]\nlr = 1"),
              HasSubstr("run.toml:2: optimizer.group 1: roles or match must say"));
  EXPECT_THAT(toml_refusal("\n\n[[optimizer.group]]\nroles = [\"norm\"]\nmomentum = 0.5"),
              HasSubstr("run.toml:3: optimizer.group 1: momentum is no key of adamw"));
  EXPECT_THAT(set_refusal("optimizer.kind=adamx"), HasSubstr("did you mean adam or adamw?"));
  EXPECT_THAT(set_refusal("optimizer.group=norm"), HasSubstr("--set"));
}

TEST(ConfigToml, HashDependsOnlyOnResolvedValues) {
  ConfigBuilder builder;
  const std::string defaults = config_hash(builder.config());
  EXPECT_EQ(defaults.size(), 16u);
  builder.config().preset = "demo";
  EXPECT_EQ(config_hash(builder.config()), defaults);
  builder.add_override("train.seed=1338");
  EXPECT_NE(config_hash(builder.config()), defaults);
}

// A key sets its own member only.
TEST(ConfigKeys, EachSetsItsOwnMember) {
  const RunConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    RunConfig config;
    ConfigValue value = int64_t{300};
    if (key.rule.starts_with("a number") || key.rule.starts_with("a duration")) value = 0.625;
    if (key.rule.starts_with("true or false")) value = key.toml(defaults) != "true";
    if (key.rule.starts_with("a text")) value = "other";
    if (key.name == "parallel.order") value = "tp pp fsdp dp";
    if (key.rule.starts_with("phases")) value = "30% linear to 0.5";
    if (key.rule.starts_with("stages")) value = "2 until 16M";
    if (key.rule.starts_with("a list of")) value = key.rule.substr(key.rule.rfind(' ') + 1);
    if (key.rule == "a list of numbers") value = std::vector<double>{0.5, 2};
    if (key.rule == "a list of whole numbers") value = std::vector<double>{0, 2};
    if (key.rule.starts_with("one of")) value = key.rule.substr(key.rule.rfind(' ') + 1);
    key.set(config, value);
    for (const ConfigKey& other : config_keys()) {
      if (other.name == key.name) continue;
      EXPECT_EQ(other.toml(config), other.toml(defaults)) << key.name;
    }
  }
}

TEST(ConfigParallel, AnOrderNamesEveryAxisOnce) {
  RunConfig config;
  const ConfigKey& key = *find_config_key("parallel.order");
  EXPECT_EQ(key.toml(config), "\"dp fsdp pp tp\"");
  key.set(config, "tp  dp pp fsdp");
  EXPECT_EQ(config.parallel.order,
            (MeshOrder{MeshAxis::kTensor, MeshAxis::kReplicate, MeshAxis::kStage, MeshAxis::kShard}));
  for (const char* wrong : {"", "dp", "dp fsdp pp", "dp fsdp pp pp", "dp fsdp pp ep", "dp fsdp pp tp tp"})
    EXPECT_THAT(toml_refusal("[parallel]\norder = \"" + std::string(wrong) + "\""),
                HasSubstr("run.toml:2: parallel.order must be dp, fsdp, pp and tp in any order"));
}

TEST(ConfigActivations, ReadsPoliciesAndParts) {
  const RecomputeConfig usual = with("model.layers=4").activations;
  EXPECT_EQ(usual.policy, RecomputePolicy::kSelective);
  EXPECT_THAT(usual.parts, ElementsAre(RecomputePart::kNorms, RecomputePart::kActivation));
  EXPECT_EQ(with("activations.policy=none").activations.policy, RecomputePolicy::kNone);
  EXPECT_THAT(with("activations.parts=mlp").activations.parts, ElementsAre(RecomputePart::kMlp));
  EXPECT_THAT(with("activations.parts=[\"embedding\", \"attention\"]").activations.parts,
              ElementsAre(RecomputePart::kEmbedding, RecomputePart::kAttention));
  const RunConfig c = built_config("", {"activations.policy=auto", "activations.budget=512MiB"});
  EXPECT_EQ(c.activations.budget_bytes, int64_t{512} << 20);
}

TEST(ConfigActivations, ErrorsNameTheRule) {
  EXPECT_THAT(set_refusal("activations.policy=blok"), HasSubstr("did you mean block?"));
  EXPECT_THAT(set_refusal("activations.parts=atention"), HasSubstr("did you mean attention?"));
  EXPECT_THAT(set_refusal("activations.parts=[]"), HasSubstr("the policy is \"none\""));
  EXPECT_THAT(set_refusal("activations.parts=3"), HasSubstr("must be a list of norms, activation, mlp"));
  EXPECT_THAT(set_refusal("activations.k=0"), HasSubstr("the nearest valid value is 1"));
  EXPECT_THAT(set_refusal("activations.policy=auto"), HasSubstr("needs activations.budget"));
  EXPECT_THAT(set_refusal("activations.budget=1GiB"), HasSubstr("set the policy, or the budget to 0"));
  ConfigBuilder builder;
  builder.add_toml("[model]\nlayers = 4\n[activations]\npolicy = \"every_k\"\nk = 5\n", "run.toml");
  EXPECT_THAT(usage_error([&] { builder.build(); }),
              ::testing::AllOf(HasSubstr("run.toml"), HasSubstr("at most model.layers = 4, got 5")));
}

std::vector<std::string> one_edit_mutations(const std::string& name) {
  std::vector<std::string> all;
  for (size_t i = 0; i < name.size(); ++i) {
    all.push_back(name.substr(0, i) + name.substr(i + 1));
    if (i + 1 < name.size() && name[i] != name[i + 1]) {
      all.push_back(name);
      std::swap(all.back()[i], all.back()[i + 1]);
    }
  }
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz_0129.")) {
    for (size_t i = 0; i <= name.size(); ++i) {
      all.push_back(name.substr(0, i) + c + name.substr(i));
      if (i == name.size() || name[i] == c) continue;
      all.push_back(name);
      all.back()[i] = c;
    }
  }
  return all;
}

TEST(LongConfigKeys, EveryOneCharacterTypoIsRefusedAndTheKeyNamed) {
  int64_t slips = 0, named_first = 0, named = 0;
  for (const ConfigKey& key : config_keys()) {
    for (const std::string& slip : one_edit_mutations(key.name)) {
      if (find_config_key(slip)) continue;  // the slip is another key, such as cap_a for cap_b
      const std::string message = usage_error([&] { ConfigBuilder().add_override(slip + "=1"); });
      const std::string refused = "--set: " + slip + ": unknown key; did you mean ";
      ASSERT_EQ(message.substr(0, refused.size()), refused);
      const std::string nearest = message.substr(refused.size());  // "a, b or c?"
      const size_t at = nearest.find(key.name);
      const bool is_named =
          at != std::string::npos &&
          std::string_view(", ?").find(nearest[at + key.name.size()]) != std::string_view::npos;
      ++slips;
      named += is_named;
      named_first += is_named && at == 0;
    }
  }
  EXPECT_GE(slips, 10'000);
  EXPECT_GE(static_cast<double>(named), 0.99 * static_cast<double>(slips));
  EXPECT_GE(static_cast<double>(named_first), 0.95 * static_cast<double>(slips));
}

TEST(ConfigUnits, ReadsCounts) {
  EXPECT_EQ(parse_count("512k"), 512'000);
  EXPECT_EQ(parse_count("0.5M"), 500'000);
  EXPECT_EQ(parse_count("0.3M"), 300'000);
  EXPECT_EQ(parse_count("2G"), 2'000'000'000);
  EXPECT_EQ(parse_count("64KiB"), 65536);
  EXPECT_EQ(parse_count("1_000"), 1000);
  EXPECT_EQ(parse_count("7kB"), 7000);
  EXPECT_EQ(parse_count("2T"), 2'000'000'000'000);
  for (const char* bad : {"", "k", "7B", "-1", "1.5", "0.0001k", "1kk", "1 k", "_1", "1__0", "1_", "1e3",
                          "1.2.3k", "10000000000G"})
    EXPECT_EQ(parse_count(bad), std::nullopt) << bad;
}

TEST(ConfigUnits, ReadsDurations) {
  EXPECT_EQ(parse_duration_s("2m"), 120);
  EXPECT_EQ(parse_duration_s("90s"), 90);
  EXPECT_EQ(parse_duration_s("1h30m"), 5400);
  EXPECT_EQ(parse_duration_s("1.5m"), 90);
  EXPECT_EQ(parse_duration_s("250ms"), 0.25);
  EXPECT_EQ(parse_duration_s("1m500ms"), 60.5);
  EXPECT_EQ(parse_duration_s("45"), 45);
  for (const char* bad : {"", "m", "-2m", "2x", "2m1h", "2m2m", "2 m", "1.2.3s"})
    EXPECT_EQ(parse_duration_s(bad), std::nullopt) << bad;
  for (const double seconds : {0.0, 1.0, 59.0, 60.0, 3600.0, 5400.0, 86400.0 + 61, 0.25, 90.5})
    EXPECT_EQ(parse_duration_s(duration_text(seconds)), seconds);
}

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("lr", "rl"), 1);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // the distance never edits a position twice
  EXPECT_THAT(nearest_names("x", std::vector<std::string>{"steps"}), ElementsAre());
}

}  // namespace
}  // namespace ingot
