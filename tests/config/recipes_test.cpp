// Compares the presets of published runs with docs/recipes.md, which holds the published values, and each
// -tiny preset with the recipe that it scales down.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ingot/config/config_keys.h"
#include "ingot/config/presets.h"
#include "ingot/config/run_plan.h"
#include "ingot/core/file.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/train/small_training.h"

namespace ingot {
namespace {

int64_t full_batch_tokens(const RunConfig& c) {
  return c.train.batch_size * c.train.grad_accum * c.model.context;
}

// A row of the table in docs/recipes.md: a key, and for each preset the cell "PUBLISHED[, here VALUE]
// [[NOTE]]".
struct RecipesPage {
  std::vector<std::string> presets;
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  std::set<std::string> notes;  // the numbers of the notes below the table

  RecipesPage() {
    std::istringstream page(read_file(INGOT_SOURCE_DIR "/docs/recipes.md"));
    for (std::string line; std::getline(page, line);) {
      if (const size_t dot = line.find(". "); dot != std::string::npos && std::isdigit(line[0]))
        notes.insert(line.substr(0, dot));
      if (!line.starts_with("| ") || line.starts_with("|---")) continue;
      std::vector<std::string> cells;
      for (size_t begin = 2; begin < line.size();) {
        const size_t end = line.find(" |", begin);
        cells.push_back(line.substr(begin, end - begin));
        begin = end + 3;
      }
      const std::string key = cells[0];
      cells.erase(cells.begin());
      if (presets.empty())
        presets = cells;
      else
        rows.emplace_back(key, cells);
    }
  }
};

const RecipesPage& page() {
  static const RecipesPage read;
  return read;
}

std::optional<double> as_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 ? std::optional(value) : std::nullopt;
}

// Expects the preset's value of a key, as TOML, to be what the page says.
void expect_value(const std::string& key, const std::string& toml, const std::string& said,
                  double tolerance) {
  const auto want = as_number(said), got = as_number(toml);
  if (want && got)
    EXPECT_NEAR(*got, *want, tolerance * *want) << key;
  else if (toml.starts_with("["))  // The page does not repeat lists.
    EXPECT_EQ(toml == "[]", said == "none") << key;
  else
    EXPECT_EQ(toml, said == "true" || said == "false" ? said : toml_string(said)) << key;
}

// The keys that the text of a preset sets in the sections that make a recipe.
std::vector<std::string> recipe_keys(std::string_view preset_toml) {
  std::vector<std::string> keys;
  std::istringstream text{std::string(preset_toml)};
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[")) section = line.substr(1, line.find(']') - 1);
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos || line.starts_with("#") || line.starts_with(" ")) continue;
    const std::string key = section + "." + line.substr(0, equals);
    const bool is_run = section == "eval" || section == "checkpoint" || section == "sample";
    if (!is_run) keys.push_back(key);
  }
  return keys;
}

TEST(Recipes, AreThoseOfTheirPage) {
  ASSERT_EQ(page().presets.size(), 6u);
  for (size_t column = 0; column < page().presets.size(); ++column) {
    const std::string& name = page().presets[column];
    SCOPED_TRACE(name);
    RunConfig c = preset(name);
    c.model = c.model.resolved();
    for (const auto& [key, cells] : page().rows) {
      ASSERT_EQ(cells.size(), page().presets.size()) << key;
      std::string said = cells[column];
      const size_t note = said.find(" ["), here = said.find(", here ");
      if (note != std::string::npos) {
        const std::string number = said.substr(note + 2, said.find(']', note) - note - 2);
        EXPECT_TRUE(page().notes.contains(number)) << key << ": there is no note " << number;
        said.erase(note);
      }
      if (here != std::string::npos) {
        EXPECT_NE(note, std::string::npos) << key << " deviates without a note";
        said.erase(0, here + std::string(", here ").size());
      }
      if (key == "parameters") {
        expect_value(key, std::to_string(c.model.parameters()), said, name == "llama-1b" ? 0 : 0.01);
      } else if (key == "tokens per step") {
        // A number of whole sequences cannot always match the published batch.
        expect_value(key, std::to_string(full_batch_tokens(c)), said, name == "llama-1b" ? 0 : 0.05);
      } else {
        const ConfigKey* known = find_config_key(key);
        ASSERT_NE(known, nullptr) << key;
        expect_value(key, known->toml(c), said, 0);
      }
    }
    for (const std::string& key : recipe_keys(find_preset(name)->toml))
      EXPECT_TRUE(std::ranges::any_of(page().rows, [&](const auto& row) { return row.first == key; }))
          << "docs/recipes.md has no row for " << key;
  }
}

TEST(Recipes, EndAtATenthOfThePeak) {
  for (const std::string& name : page().presets) {
    SCOPED_TRACE(name);
    const RunConfig c = preset(name);
    const RunPlan plan(c);
    const auto lr = [&](int64_t step) {
      return plan.lr(plan.position(step, plan.ramp().tokens_before(step), 0));
    };
    const double peak = c.optimizer.lr;
    EXPECT_LT(lr(0), 0.02 * peak);
    EXPECT_NEAR(lr(plan.steps()), 0.1 * peak, 1e-12);
    EXPECT_GT(lr(plan.steps() / 10), 0.9 * peak);
    // GPT-3's rate reaches its floor after 260 of 300 billion tokens.
    if (name != "gpt3-175b") continue;
    EXPECT_NEAR(lr(plan.ramp().steps_for(261'000'000'000)), 0.1 * peak, 1e-12);
  }
}

TEST(Recipes, ChinchillaDoublesItsBatchHalfWay) {
  const RunPlan plan(preset("chinchilla-70b"));
  EXPECT_NEAR(static_cast<double>(plan.ramp().step_tokens(699'000'000'000)), 1.5e6, 0.01e6);
  EXPECT_NEAR(static_cast<double>(plan.ramp().step_tokens(701'000'000'000)), 3.0e6, 0.01e6);
}

// The values come from the hybrid-precision document and from record 19 of the speed run that it
// describes: Muon with 0.05 for the matrices, Adam with 0.6 for the embedding and 0.008 for the head, and
// 1395 steps of 8 x 65536 tokens.
TEST(Recipes, MatchTheHybridPrecisionRun) {
  for (const bool is_tiny : {false, true}) {
    const RunConfig c = preset(is_tiny ? "hybrid-124m-tiny" : "hybrid-124m");
    EXPECT_EQ(c.optimizer.rule.kind, "adam");
    EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::beta1), 0.8);
    EXPECT_EQ(c.optimizer.rule.options.get(&AdamW::Options::beta2), 0.95);
    EXPECT_EQ(c.optimizer.grad_clip, 0);
    ASSERT_EQ(c.optimizer.groups.size(), 4u);
    const GroupConfig &matrices = c.optimizer.groups[0], &embedding = c.optimizer.groups[1],
                      &head = c.optimizer.groups[2], &scalars = c.optimizer.groups[3];
    EXPECT_EQ(matrices.rule.kind, "muon");
    EXPECT_EQ(matrices.rule.options.get(&AdamW::Options::weight_decay), 0);
    EXPECT_EQ(c.optimizer.lr, 0.05);
    EXPECT_EQ(embedding.lr, 0.6);
    EXPECT_EQ(head.lr, 0.008);
    EXPECT_EQ(scalars.lr, 0.04);
    EXPECT_EQ(c.model.cap.kind, LogitCap::kSigmoid);
    EXPECT_EQ(c.model.cap.a, 30);
    EXPECT_EQ(c.model.cap.c, 7.5);
    EXPECT_EQ(c.head.precision, HeadPrecision::kFp8);
    EXPECT_EQ(c.head.fp8_scaling, Fp8HeadScaling::kStatic);
    EXPECT_EQ(c.head.fp8_x_scale, 2);
    EXPECT_EQ(c.head.fp8_w_scale, 32);
    EXPECT_TRUE(c.model.has_qk_norm);
    EXPECT_EQ(c.model.mlp, Activation::kRelu2);
    EXPECT_EQ(c.model.projection_init, ProjectionInit::kZero);
    EXPECT_EQ(c.model.init_std, 1);
    EXPECT_NEAR(c.model.matrix_init_std, 0.5 / std::sqrt(static_cast<double>(c.model.width)), 1e-6);
    EXPECT_TRUE(c.model.has_embedding_norm && c.model.has_input_mix && c.model.has_skips);
    EXPECT_EQ(c.model.rotated_dims(), c.model.resolved().head_dim / 2);
    EXPECT_TRUE(c.data.has_document_mask);
    const RunPlan plan(c);
    const double n = static_cast<double>(plan.steps());
    for (int64_t it = 0; it < plan.steps(); it += 7) {
      const double t = 1 - static_cast<double>(it) / n, w = std::min(t / 0.4, 1.0);
      EXPECT_NEAR(plan.lr(plan.position(it, 0, 0)), 0.05 * (w + (1 - w) * 0.1), 1e-12) << it;
    }
    EXPECT_NEAR(plan.momentum(plan.position(0, 0, 0)), 0.85, 1e-12);
    EXPECT_NEAR(plan.momentum(plan.position(plan.steps() - 1, 0, 0)), 0.95, 1e-12);
  }
  const RunConfig c = preset("hybrid-124m");
  EXPECT_EQ(c.train.steps, 1395);
  EXPECT_EQ(full_batch_tokens(c), 8 * 65536);
  EXPECT_EQ(c.model.resolved().vocab_padded(), 50304);
  EXPECT_EQ(c.model.resolved().head_dim, 128);
  EXPECT_EQ(c.train.batch_size * c.model.context, 65536);
  EXPECT_EQ(c.model.value_embeddings, 3);
  EXPECT_EQ(c.model.mlp_only_layers, std::vector<int64_t>{7});
  // The record's rates are 1024^(-i/31) for its 32 rotating pairs.
  for (int i = 0; i < 32; ++i)
    EXPECT_NEAR(std::pow(c.model.rope_theta, -i / 32.0), std::pow(1024, -i / 31.0), 1e-5) << i;
  // The record's tables and matrices, and 47 scalars: those of its 52 that its model uses.
  EXPECT_EQ(c.model.resolved().parameters(), 5 * 50257 * 768 + 11 * 4 * 768 * 768 + 12 * 8 * 768 * 768 + 47);
  const RunPlan plan(c);
  for (const auto& [step, window] : {std::pair(0, 128), {104, 256}, {697, 896}, {1394, 1792}})
    EXPECT_EQ(plan.inputs(plan.position(step, 0, 0)).window, window) << step;
  EXPECT_NEAR(plan.momentum(plan.position(150, 0, 0)), 0.90, 1e-12);
  EXPECT_NEAR(plan.momentum(plan.position(300, 0, 0)), 0.95, 1e-12);
}

// The log's own layout of the run, and its sweep with half of the blocks and of the batch.
TEST(Recipes, TheTrainingLogsRunAndSweepAreItsModel) {
  const RunConfig base = preset("llama-1b"), run = preset("llama-1b-h100"), sweep = preset("llama-1b-sweep");
  EXPECT_EQ(base.activations.policy, RecomputePolicy::kBlock);
  EXPECT_EQ(run.model.resolved().parameters(), 1'241'581'568);
  EXPECT_EQ(full_batch_tokens(run), 64 * 2048);
  const std::pair<const char*, const char*> as_logged[] = {{"train.device", "\"cuda\""},
                                                           {"train.graph", "true"},
                                                           {"precision.fp8", "\"tensorwise\""},
                                                           {"head.kind", "\"chunked\""},
                                                           {"activations.policy", "\"auto\""}};
  for (const auto& [key, value] : as_logged) EXPECT_EQ(find_config_key(key)->toml(run), value) << key;
  EXPECT_GT(run.eval.every, 0);
  EXPECT_GT(run.train.stats_every, 0);
  EXPECT_GT(run.head.raw_ce_every, 0);
  EXPECT_EQ(run.sample.tokens, 50);
  EXPECT_EQ(run.sample.prompts.at(0), "The meaning of life is ");
  EXPECT_EQ(sweep.model.layers, 8);
  EXPECT_EQ(full_batch_tokens(sweep), 32 * 2048);
  for (const RunConfig* c : {&run, &sweep}) {
    ModelConfig model = c->model;
    model.layers = base.model.layers;
    EXPECT_EQ(model.resolved().parameters(), base.model.resolved().parameters());
    EXPECT_EQ(c->optimizer.lr, base.optimizer.lr);
    EXPECT_EQ(c->schedule.floor, base.schedule.floor);
  }
}

// The -tiny presets differ only in sizes, data and lengths, and AdamW's peak rate grows as the width shrinks.
TEST(Recipes, TinyFormsHaveTheSameRecipe) {
  std::set<std::string> texts;
  for (const std::string& name : page().presets) {
    SCOPED_TRACE(name);
    const RunConfig big = preset(name), tiny = preset(name + "-tiny");
    const std::string_view text = find_preset(name + "-tiny")->toml;
    EXPECT_TRUE(texts.insert(std::string(text.substr(text.find('\n')))).second)
        << "another twin has the same text";
    const double ratio = static_cast<double>(big.model.width) / static_cast<double>(tiny.model.width);
    EXPECT_NEAR(tiny.optimizer.lr, big.optimizer.lr * ratio, 1e-9);
    for (const char* key :
         {"optimizer.kind", "optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.weight_decay",
          "optimizer.grad_clip", "schedule.kind", "schedule.floor", "activations.policy", "model.norm",
          "model.positions", "model.mlp", "model.bias", "model.tied", "model.norm_eps", "model.rope_theta",
          "precision.compute", "data.tokenizer_pattern"})
      EXPECT_EQ(find_config_key(key)->toml(tiny), find_config_key(key)->toml(big)) << key;
    const ModelConfig from = big.model.resolved(), to = tiny.model.resolved();
    // A twin of 70B has as many heads per key-value head as it.
    if (name == "llama2-70b") {
      EXPECT_EQ(to.heads / to.kv_heads, from.heads / from.kv_heads);
    }
    EXPECT_EQ(to.kv_heads < to.heads, from.kv_heads < from.heads);
    EXPECT_EQ(to.window > 0, from.window > 0);
    EXPECT_EQ(to.full_layers.empty(), from.full_layers.empty());
    // A window of every block sees the same part of the context; that of GPT-3's bands is not published.
    if (from.full_layers.empty()) {
      EXPECT_EQ(to.window * from.context, from.window * to.context);
    }
    // A batch is a thousandth of the run. Chinchilla's doubles half way, so it is two of them.
    EXPECT_EQ(full_batch_tokens(tiny), name == "chinchilla-70b" ? 4096 : 2048);
    EXPECT_EQ(tiny.train.max_tokens, 2'000'000);
    const RunPlan big_plan(big), tiny_plan(tiny);
    const auto batch_at = [](const RunPlan& plan, double part) {
      const int64_t run = plan.ramp().tokens_before(plan.steps());
      const auto tokens = static_cast<int64_t>(part * static_cast<double>(run));
      return static_cast<double>(plan.ramp().step_tokens(tokens)) /
             static_cast<double>(plan.ramp().step_tokens(run));
    };
    // GPT-3's twin has three stages for its five, which end at 3 % of the run for 4 %.
    for (const double part : {0.05, 0.3, 0.49, 0.51, 0.9})
      EXPECT_NEAR(batch_at(tiny_plan, part), batch_at(big_plan, part), 0.01) << part;
    if (!big.train.batch_ramp.empty()) {
      EXPECT_LE(batch_at(tiny_plan, 0), 0.5);
    }
    EXPECT_EQ(tiny.train.batch_ramp.empty(), big.train.batch_ramp.empty());
    // Warm-up takes 2 % of the twin's run, and half of that where the published one is half of LLaMA 2's.
    const double warmup =
        tiny.schedule.warmup_tokens > 0
            ? static_cast<double>(tiny.schedule.warmup_tokens)
            : static_cast<double>(tiny_plan.ramp().tokens_before(tiny.schedule.warmup_steps));
    EXPECT_NEAR(warmup / 2e6, name == "mistral-7b" ? 0.01 : 0.02, 0.001);
    EXPECT_EQ(tiny.schedule.warmup_tokens > 0, big.schedule.warmup_tokens > 0);
    EXPECT_NEAR(static_cast<double>(tiny.schedule.decay_tokens) / static_cast<double>(tiny.train.max_tokens),
                static_cast<double>(big.schedule.decay_tokens) / static_cast<double>(big.train.max_tokens),
                1e-3);
    EXPECT_EQ(tiny.data.tokenizer_vocab, 4096);
    ASSERT_EQ(tiny.data.train.size(), 1u);
    EXPECT_EQ(tiny.data.train[0], "builtin:cpp-headers");
    RunConfig sized = tiny;
    sized.model.vocab = tiny.data.tokenizer_vocab;
    EXPECT_LT(sized.model.resolved().parameters(), 10'000'000);
  }
}

}  // namespace
}  // namespace ingot
