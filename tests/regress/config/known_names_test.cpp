// Seen: users of nanoGPT, llm.c, Hugging Face or Megatron typed model.n_layer, block_size or learning_rate
// and got only the message "unknown key", and train.device=gpu was answered with "did you mean cpu?". Wanted:
// names of other trainers, with or without a section, are refused with a message that gives Ingot's name.
#include "ingot/config/known_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/config/config_keys.h"
#include "ingot/config/config_toml.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

std::string answer_to(const std::string& assignment) {
  return usage_error([&] { ConfigBuilder().add_override(assignment); });
}

TEST(KnownNames, NamesOfOtherTrainersAreAnsweredWithTheKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"n_layer", "model.layers"},
      {"n_head", "model.heads"},
      {"n_embd", "model.width"},
      {"block_size", "model.context"},
      {"learning_rate", "optimizer.lr"},
      {"lr", "optimizer.lr"},
      {"gradient_accumulation_steps", "train.grad_accum"},
      {"max_iters", "train.steps"},
      {"batch_size", "train.batch_size"},
      {"weight_decay", "optimizer.weight_decay"},
      {"warmup_iters", "schedule.warmup_steps"},
      {"vocab_size", "model.vocab"},
      {"hidden_size", "model.width"},
      {"num_hidden_layers", "model.layers"},
      {"num_attention_heads", "model.heads"},
      {"num_key_value_heads", "model.kv_heads"},
      {"intermediate_size", "model.ffn"},
      {"max_position_embeddings", "model.context"},
      {"rope_theta", "model.rope_theta"},
      {"seed", "train.seed"},
      {"num_train_epochs", "train.epochs"},
      {"out_dir", "--out"},
      {"Learning-Rate", "optimizer.lr"},
  };
  for (const auto& [name, key] : cases) {
    const std::string wanted = "unknown key; did you mean " + key;
    if (name.find('-') == std::string::npos) {
      EXPECT_THAT(answer_to(name + "=1"), HasSubstr(wanted)) << name;
      const std::string file = name + " = 1\n";
      EXPECT_THAT(usage_error([&] { ConfigBuilder().add_toml(file, "run.toml"); }), HasSubstr(wanted));
    }
    for (const char* section : {"model.", "train.", "training."}) {
      if (find_config_key(section + name) || name.find('-') != std::string::npos) continue;
      EXPECT_THAT(answer_to(section + name + "=1"), HasSubstr(wanted)) << section << name;
    }
  }
  EXPECT_THAT(nearest_config_keys("learning-rate"), testing::ElementsAre("optimizer.lr"));
}

// Seen: train.compile was answered with precision.compute, optimizer.type with parallel.tp, num_workers with
// train.threads, and early_stopping, wandb, lora and packing with "unknown key" alone.
TEST(KnownNames, WhatIngotDoesOtherwiseOrLacksIsSaid) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"optimizer.type", "did you mean optimizer.kind?"},
      {"schedule.type", "did you mean schedule.kind?"},
      {"resume", "did you mean --resume?"},
      {"train.compile", "nothing to turn on"},
      {"num_workers", "did you mean data.workers?"},
      {"prefetch_factor", "did you mean data.prefetch?"},
      {"pin_memory", "always go through pinned memory"},
      {"early_stopping", "eval.patience"},
      {"wandb.project", "ingot export-run RUN --wandb"},
      {"train.lora_r", "lora.rank"},
      {"train.lora_dropout", "have no dropout"},
      {"packing", "always packed"},
      {"num-experts", "no mixture of experts"},
      {"context_parallel_size", "no context parallelism"},
      {"parallel.cp", "no context parallelism"},
      {"parallel.ep", "no mixture of experts"},
      {"optimizer.groups", "did you mean optimizer.group?"},
  };
  for (const auto& [name, answer] : cases)
    if (name.find('-') == std::string::npos)
      EXPECT_THAT(answer_to(name + "=1"), HasSubstr(answer)) << name;
    else
      EXPECT_THAT(unknown_key_hint(name), HasSubstr(answer)) << name;
  EXPECT_THAT(usage_error([] { ConfigBuilder().add_toml("[peft]\nr = 8\n", "run.toml"); }),
              HasSubstr("[peft]: unknown section; lora.rank, lora.alpha and lora.targets train adapters"));
}

TEST(KnownNames, EveryAnswerIsAnExistingKey) {
  for (const std::string& name : names_of_other_trainers()) {
    const std::vector<std::string> keys = keys_known_as(name);
    ASSERT_FALSE(keys.empty()) << name;
    for (const std::string& key : keys)
      EXPECT_TRUE(key == "--out" || key == "--resume" || find_config_key(key)) << name << " -> " << key;
    if (name == "precision") continue;  // also the name of a section and of a key of [head]
    for (const ConfigKey& key : config_keys()) EXPECT_NE(key.leaf(), name) << "is Ingot's own name";
  }
}

TEST(KnownNames, ValuesOfOtherTrainersAreAnsweredWithOurs) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.device=gpu", "did you mean cuda?"},
      {"train.device=cuda:0", "did you mean cuda?"},
      {"train.device=CUDA", "did you mean cuda?"},
      {"precision.compute=float32", "did you mean f32?"},
      {"precision.compute=fp32", "did you mean f32?"},
      {"precision.compute=bfloat16", "did you mean bf16?"},
      {"precision.compute=float16", "did you mean f16?"},
      {"precision.compute=fp16", "did you mean f16?"},
      {"optimizer.kind=adam_w", "did you mean adamw?"},
      {"optimizer.kind=AdamW", "did you mean adamw?"},
      {"optimizer.kind=adamw_8bit", "did you mean adamw8bit?"},
      {"model.norm=rms_norm", "did you mean rmsnorm?"},
      {"model.mlp=silu", "did you mean swiglu?"},
      {"model.mlp=gelu", "did you mean gelu_tanh or gelu_exact?"},
      {"model.positions=rotary", "did you mean rope?"},
      {"schedule.kind=cosine_with_warmup", "did you mean cosine?"},
      {"activations.policy=full", "did you mean block?"},
      {"parallel.schedule=1F1B", "did you mean 1f1b?"},
  };
  for (const auto& [assignment, answer] : cases) EXPECT_THAT(answer_to(assignment), HasSubstr(answer));
}

TEST(KnownNames, SectionsAndGroupsAreAnsweredToo) {
  const auto file = [](const std::string& text) {
    return usage_error([&] { ConfigBuilder().add_toml(text, "run.toml"); });
  };
  EXPECT_THAT(file("[training]\nsteps = 1\n"), HasSubstr("[training]: unknown section; did you mean train?"));
  EXPECT_THAT(file("[optim]\nlr = 1\n"), HasSubstr("did you mean optimizer?"));
  EXPECT_THAT(file("[[optimizer.group]]\nroles = [\"matrix\"]\nlearning_rate = 1\n"),
              HasSubstr("did you mean optimizer.group.lr?"));
}

}  // namespace
}  // namespace ingot
