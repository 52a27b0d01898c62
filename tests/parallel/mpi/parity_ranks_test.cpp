// Compares several ranks with one rank in the cases that matrix_ranks_test does not cover.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/nn/small_model.h"
#include "tests/parallel/mpi/one_rank_curve.h"
#include "tests/train/gradients.h"

namespace ingot {
namespace {

TEST(Parity, ReplicasWithoutF32MastersMatchOneRank) {
  for (const Masters masters : {Masters::kNone, Masters::kTail}) {
    RunConfig config = llama();
    config.precision = {.compute = DType::bf16, .master = masters};
    config.parallel = replicas();
    expect_one_rank_curve(config, kBf16);
  }
}

TEST(Parity, TensorParallelRanksAndStagesWithoutF32MastersMatchOneRank) {
  for (const Masters masters : {Masters::kNone, Masters::kTail})
    for (const ParallelConfig& layout :
         {sharing(2), stages(2, PipelineKind::kOneFOneB), stages(2, PipelineKind::kOneFOneB, 1, 2)}) {
      RunConfig config = for_stages(llama());
      config.precision = {.compute = DType::bf16, .master = masters};
      config.parallel = layout;
      expect_one_rank_curve(config, kBf16, masters == Masters::kNone ? "none" : "tail");
    }
}

// Scalars, value embeddings, values that stages hand on, and a block without attention.
TEST(Parity, TheWholeSpeedRunMatchesOneRank) {
  RunConfig config = llama();
  config.model.layers = 8;
  config.model.heads = config.model.kv_heads = 8;
  config.model = test::whole_speedrun_style(config.model);
  config.optimizer.groups = {{.roles = {ParamRole::kScalar}, .lr = 0.02}};
  std::vector<ParallelConfig> layouts{replicas(),        shards(),
                                      shards(true),      sharing(4),
                                      sharing(2, false), stages(world->size(), PipelineKind::kOneFOneB)};
  if (world->size() == 2) layouts.push_back(stages(2, PipelineKind::kInterleaved, 2));
  if (world->size() >= 4) {
    layouts.push_back(sharing_of_shards());
    layouts.push_back(stages(world->size() / 2, PipelineKind::kOneFOneB, 1, 2));
  }
  for (const ParallelConfig& layout : layouts) {
    config.parallel = layout;
    expect_one_rank_curve(config, kF32, "adamw");
    RunConfig muon = with_muon(config, DType::f32);
    muon.parallel.muon_payload = DType::f32;
    expect_one_rank_curve(muon, kF32, "muon");
  }
}

// Adapters of a frozen model: of all linears, and of some of the blocks, so that the first stages have none.
TEST(Parity, AdaptersMatchOneRank) {
  std::vector<ParallelConfig> layouts{replicas(),
                                      shards(),
                                      shards(true),
                                      replicas_of_shards(),
                                      sharing(4),
                                      sharing(2, false),
                                      stages(8, PipelineKind::kOneFOneB),
                                      stages(8, PipelineKind::kGpipe)};
  if (world->size() == 2) layouts.push_back(stages(2, PipelineKind::kInterleaved, 2));
  if (world->size() >= 4) {
    layouts.push_back(sharing_of_shards());
    layouts.push_back(stages(world->size() / 2, PipelineKind::kOneFOneB, 1, 2));
    ParallelConfig stages_of_shards = stages(2, PipelineKind::kOneFOneB);
    std::swap(stages_of_shards.dp, stages_of_shards.fsdp);
    layouts.push_back(stages_of_shards);
  }
  const std::vector<std::vector<std::string>> all_targets{{}, {"blocks.4.*", "blocks.5.mlp.down"}};
  for (const bool is_llama : {false, true})
    for (const std::vector<std::string>& targets : all_targets)
      for (const ParallelConfig& layout : layouts) {
        RunConfig config = for_stages(is_llama ? llama() : gpt2());
        config.model.dropout = 0;
        config.model.is_tied = is_llama;
        config.model.init_std = 0.1;  // the frozen table must tell tokens apart
        config.model.matrix_init_std = 0.05;
        config = with_adapters(config, targets);
        config.optimizer.lr = 3e-3;
        config.parallel = layout;
        expect_one_rank_curve(config, kF32, is_llama ? "LLaMA" : "GPT-2");
      }
}

TEST(Parity, AdaptersInOtherPrecisionsAndRulesMatchOneRank) {
  for (const ParallelConfig& layout :
       {replicas(), shards(), sharing(2), sharing_of_shards(), stages(2, PipelineKind::kOneFOneB, 1, 2)}) {
    RunConfig config = for_stages(llama());
    config.model.kv_heads = 1;  // tensor-parallel ranks share the keys and values, and their adapter's rows
    config.model.has_qkv_bias = true;
    config.model.init_std = 0.1;
    config.model.matrix_init_std = 0.05;
    config = with_adapters(config);
    config.activations.policy = RecomputePolicy::kSelective;
    config.optimizer.lr = 3e-3;
    config.parallel = layout;
    expect_one_rank_curve(config, kF32, "selective");
    RunConfig muon = with_muon(config, DType::f32);
    muon.parallel.muon_payload = DType::f32;
    expect_one_rank_curve(muon, kF32, "muon");
    config.precision.compute = DType::bf16;
    config.optimizer.ema = 0.9;
    expect_one_rank_curve(config, 2 * kBf16, "bf16");
    config.precision.master = Masters::kNone;
    expect_one_rank_curve(config, 2 * kBf16, "without f32 masters");
  }
}

// Fewer kv-heads than tensor-parallel ranks, and everything that the layers around them may have.
RunConfig with_shared_heads(int64_t kv_heads) {
  RunConfig config = llama();
  config.model.heads = 8;
  config.model.kv_heads = kv_heads;
  config.model.layers = 2;
  config.model.has_qkv_bias = config.model.has_qk_norm = config.model.has_qk_norm_gain = true;
  return config;
}

// The ranks of a kv-head sum its gradients and make the same updates; norms and checkpoints have it once.
TEST(Parity, TensorParallelRanksThatShareKvHeadsMatchOneRank) {
  for (const int64_t kv_heads : {1, 2})
    for (const ParallelConfig& layout :
         {sharing(8), sharing(4, false), sharing_of_shards(), stages(2, PipelineKind::kOneFOneB, 1, 4)}) {
      RunConfig config = with_shared_heads(kv_heads);
      config.parallel = layout;
      expect_one_rank_curve(config, kF32, fmt::format("{} kv-heads", kv_heads));
    }
}

TEST(Parity, EveryKindOfRuleGoesWithSharedKvHeads) {
  for (const ParallelConfig& layout : {sharing(8), sharing_of_shards()}) {
    RunConfig config = with_shared_heads(1);
    config.parallel = layout;
    expect_one_rank_curve(with_rule(config, "adafactor"), kF32, "adafactor");
    RunConfig muon = with_muon(config, DType::f32);
    muon.parallel.muon_payload = DType::f32;
    expect_one_rank_curve(muon, kF32, "muon");
    RunConfig eight_bit = with_8bit(config);
    eight_bit.model.width = 64;
    expect_one_rank_curve(eight_bit, kEdge, "8 bits");
    config.precision = {.compute = DType::bf16, .master = Masters::kNone};
    expect_one_rank_curve(config, 2 * kBf16, "stochastic rounding");
  }
}

TEST(Parity, StatisticsCountSharedKvHeadsOnce) {
  RunConfig config = with_shared_heads(1);
  const auto stats = [](Training& run) {
    run.trainer.step(run.loader, {.lr = run.config.optimizer.lr, .wants_stats = true});
    return run.trainer.stats();
  };
  Training alone(config);
  const std::vector<ParamStats> want = stats(alone);
  config.parallel = sharing(4);
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training together(config, mesh);
  const std::vector<ParamStats> got = stats(together);
  for (size_t p = 0; p < want.size(); ++p) {
    EXPECT_NEAR(got[p].weight_norm, want[p].weight_norm, 1e-5 * want[p].weight_norm) << want[p].name;
    EXPECT_NEAR(got[p].grad_norm, want[p].grad_norm, 1e-5 * want[p].grad_norm) << want[p].name;
    EXPECT_NEAR(got[p].update_norm, want[p].update_norm, 1e-3 * want[p].update_norm) << want[p].name;
  }
}

// Stochastic rounding of shards uses the random numbers of the whole parameter. The evaluation reads
// averages.
TEST(Parity, ShardsRoundedStochasticallyMatchOneRank) {
  for (const bool keeps_units : {false, true})
    for (const ParallelConfig& layout : {shards(keeps_units), replicas_of_shards(), sharing_of_shards()}) {
      RunConfig config = keeps_units ? gpt2() : llama();
      config.precision = {.compute = DType::bf16, .master = Masters::kNone};
      config.optimizer.ema = 0.9;
      config.parallel = layout;
      config.parallel.keeps_units = keeps_units;
      config.validate();
      expect_one_rank_curve(config, layout.tp > 1 ? 2 * kBf16 : kBf16);
    }
}

// Shards are f32, which are the numbers of bf16 weights with tails.
TEST(Parity, ShardsTakeThePlaceOfTails) {
  std::vector<std::vector<double>> losses;
  for (const Masters masters : {Masters::kF32, Masters::kTail}) {
    RunConfig config = llama();
    config.precision = {.compute = DType::bf16, .master = masters};
    config.parallel = shards();
    config.validate();
    Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
    Training shared(config, mesh);
    losses.push_back(shared.losses());
    if (masters == Masters::kTail) expect_one_rank_curve(config, kBf16);
  }
  if (world->size() > 1) {
    EXPECT_EQ(losses[0], losses[1]);
  }
}

// The head's unit is gathered in f32, and the embedding reads a copy of it in bf16.
TEST(Parity, AnF32HeadReadsTheMastersOfShards) {
  for (const bool is_tied : {true, false})
    for (const bool keeps_units : {false, true}) {
      SCOPED_TRACE(fmt::format("tied {}, keeps_units {}", is_tied, keeps_units));
      RunConfig config = is_tied ? gpt2() : llama();
      config.model.is_tied = is_tied;
      config.precision.compute = DType::bf16;
      config.head.precision = HeadPrecision::kF32;
      config.parallel = shards();
      config.parallel.keeps_units = keeps_units;
      config.validate();
      expect_one_rank_curve(config, kBf16);
      if (world->size() == 1) continue;
      Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
      Training shared(config, mesh);
      shared.trainer.step(shared.loader, {.lr = 1e-3});
      const std::vector<float> all = weights(shared.trainer);
      const ParamList& list = shared.trainer.layout().model->params();
      const int head = shared.trainer.layout().model->head_weight();
      int64_t first = 0;
      for (int id = 0; id < head; ++id) first += list[id].elements();
      shared.trainer.params().wait_weights(list[head].unit);
      const Tensor read = shared.trainer.params().best_weight(head);
      ASSERT_EQ(read.dtype, DType::f32);
      const std::span<const float> got(read.as<float>(), static_cast<size_t>(read.elements()));
      EXPECT_TRUE(std::ranges::equal(got, std::span(all).subspan(static_cast<size_t>(first), got.size())));
      const Tensor copy = shared.trainer.params().weight(head);
      ASSERT_EQ(copy.dtype, DType::bf16);
      EXPECT_TRUE(
          std::ranges::equal(got, std::span(copy.as<bf16>(), got.size()), [](float master, bf16 rounded) {
            return static_cast<float>(rounded) == static_cast<float>(bf16(master));
          }));
    }
}

TEST(Parity, CompressedGradientsWithFeedbackStayClose) {
  for (const DType payload : {DType::bf16, DType::f16}) {
    RunConfig config = gpt2();
    config.parallel = replicas();
    config.parallel.payload = payload;
    config.parallel.has_error_feedback = true;
    expect_one_rank_curve(config, kCompressed);
  }
}

TEST(Parity, CompressedGradientsOfShardsStayClose) {
  for (const DType payload : {DType::bf16, DType::f16})
    for (const bool has_feedback : {false, true})
      for (ParallelConfig layout : {shards(), replicas_of_shards()}) {
        if (layout.dp > 1 && world->size() < 4) continue;
        RunConfig config = gpt2();
        config.parallel = layout;
        config.parallel.payload = payload;
        config.parallel.has_error_feedback = has_feedback;
        expect_one_rank_curve(config, kCompressed, name(payload).data());
      }
}

// The gradients of this rank's shards, by unit, in the first step; the mean over `times` times that it is
// computed.
std::vector<std::vector<float>> shard_gradients(const RunConfig& config, int times = 1) {
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  Trainer& trainer = shared.trainer;
  std::vector<std::vector<float>> units(static_cast<size_t>(trainer.params().list().units()));
  for (int time = 0; time < times; ++time) {
    shared.loader.seek(0);
    trainer.submit(shared.loader, {.micros = config.train.grad_accum});
    trainer.collect(shared.loader);
    std::vector<size_t> place(units.size());
    for (const ParamShard& shard : trainer.params().shards()) {
      const auto unit = static_cast<size_t>(trainer.params().list()[shard.id].unit);
      units[unit].resize(std::max(units[unit].size(), place[unit] + static_cast<size_t>(shard.elements())));
      for (int64_t i = 0; i < shard.elements(); ++i)
        units[unit][place[unit]++] += shard.grad.as<float>()[i] / static_cast<float>(times);
    }
    trainer.discard();
  }
  return units;
}

RunConfig shards_with(DType payload, DType ends, bool has_feedback = false) {
  RunConfig config = gpt2();
  config.parallel = shards();
  config.parallel.payload = payload;
  config.parallel.payload_ends = ends;
  config.parallel.has_error_feedback = has_feedback;
  return config;
}

// payload applies to the blocks only: the gradients of embedding and head (their units are the first and the
// last) are those of f32, and those of each block are rounded.
TEST(Parity, EmbeddingAndHeadOfShardsMayHaveAnotherPayload) {
  const auto exact = shard_gradients(shards_with(DType::f32, DType::f32));
  const auto got = shard_gradients(shards_with(DType::bf16, DType::f32));
  for (size_t unit = 0; unit < exact.size(); ++unit) {
    const bool is_end = unit == 0 || unit + 1 == exact.size();
    const bool differs = world->is_any(got[unit] != exact[unit]);
    EXPECT_EQ(differs, !is_end && world->size() > 1) << "unit " << unit;
  }
}

// Over many steps with the same gradient, the mean of what was summed comes closer to it than one rounding
// allows.
TEST(Parity, ErrorFeedbackCorrectsTheRoundingOfShards) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  const auto exact = shard_gradients(shards_with(DType::f32, DType::f32));
  const auto error = [&](DType payload, bool has_feedback) {
    const auto mean = shard_gradients(shards_with(payload, payload, has_feedback), 16);
    double sum = 0;
    for (size_t unit = 0; unit < exact.size(); ++unit)
      for (size_t i = 0; i < exact[unit].size(); ++i)
        sum += std::pow(static_cast<double>(mean[unit][i]) - static_cast<double>(exact[unit][i]), 2);
    return std::sqrt(world->sum(sum));
  };
  for (const DType payload : {DType::bf16, DType::f16})
    EXPECT_LT(error(payload, true), 0.5 * error(payload, false)) << name(payload);
}

TEST(Parity, ShardsOfGradientsAloneMatchOneRank) {
  RunConfig relative = llama();
  relative.model.has_qkv_bias = relative.model.has_qk_norm = relative.model.has_qk_norm_gain = true;
  relative.model.window = 6;
  for (RunConfig config : {llama(), gpt2(), relative}) {
    config.parallel = shards(true);
    expect_one_rank_curve(config, kF32);
  }
}

// Backward gathers the weights of recomputed blocks again, in the order in which it needs them.
TEST(Parity, ShardsWithActivationCheckpointingAndAveragesMatchOneRank) {
  RunConfig config = llama();
  config.activations.policy = RecomputePolicy::kEveryK;
  config.activations.k = 2;
  config.optimizer.ema = 0.9;
  config.parallel = shards();
  expect_one_rank_curve(config, kF32);
}

// The masters, gradients and moments of each unit are cut into equal shards, one per rank; the shard of
// the last rank may be shorter.
TEST(Parity, ARankTakesTheBytesOfItsShard) {
  RunConfig config = llama();
  config.model.width = 256;
  config.parallel = shards();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  double elements = 0;
  for (const ParamSpec& spec : shared.trainer.layout().model->params().specs())
    elements += static_cast<double>(spec.elements());
  const auto expect_bytes = [&](const char* name, double bytes_per_parameter) {
    double used = 0;
    for (const Trainer::ArenaUse& use : shared.trainer.arenas())
      if (use.name == name) used = static_cast<double>(use.bytes);
    const double share = bytes_per_parameter * elements / world->size();
    EXPECT_LE(used, 1.01 * share) << name;
    std::vector<double> all{used};
    world->sum(all);
    EXPECT_NEAR(all[0], bytes_per_parameter * elements, 0.01 * bytes_per_parameter * elements) << name;
  };
  expect_bytes("parameters", 4);
  expect_bytes("gradients", 4);
  expect_bytes("optimizer", 8);
}

// Tensor-parallel ranks sum each product over the ranks, so activations differ in their last bits at
// every step.
TEST(Parity, TensorParallelUpToTheNumberOfHeadsMatchesOneRank) {
  for (RunConfig config : {with_many_heads(llama()), with_many_heads(gpt2())}) {
    config.parallel = sharing(8);
    expect_one_rank_curve(config, kF32);
  }
}

TEST(Parity, LayoutsThatCannotBeShardedAreRefused) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  RunConfig config = llama();
  config.parallel = sharing(2);
  config.model.ffn = 65;
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  EXPECT_THROW(Training(config, mesh), Error);
}

TEST(Parity, EverySampleIsSeenOnceInTheOrderOfOneRank) {
  RunConfig config = llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  const DataShard& share = shared.trainer.layout().data_shard;
  std::vector<int64_t> own;
  for (int64_t round = 0; round < 3 * share.micros(config.train.grad_accum); ++round) {
    const int64_t first = shared.loader.next().first_sample;
    for (int64_t row = 0; row < share.batch_size; ++row) own.push_back(first + row);
  }
  std::vector<int64_t> all(own.size() * static_cast<size_t>(world->size()));
  world->all_gather_into("samples", Tensor(all.data(), DType::i64, {std::ssize(all)}),
                         Tensor(own.data(), DType::i64, {std::ssize(own)}));
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i));
  EXPECT_EQ(all.size(), 48u);
}

// Only one rank reads a NaN weight, but all ranks end the step with its report.
TEST(Parity, ANonFiniteValueOnOneRankIsReportedByAll) {
  RunConfig config = llama();
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  shared.trainer.params().master(0).as<float>()[kRare * 32 + 5] = std::numeric_limits<float>::quiet_NaN();
  StepResult result;
  for (int step = 0; step < 200 && !result.non_finite; ++step) {
    result = gradients(shared.trainer, shared.loader, config.train.grad_accum);
    shared.trainer.discard();
  }
  ASSERT_TRUE(result.non_finite);
  std::string text = result.non_finite->text(), lead = text;
  world->broadcast_text(lead, 0);
  EXPECT_EQ(text, lead);
  EXPECT_NE(text.find("the loss is not finite in micro-batch"), std::string::npos) << text;
  EXPECT_NE(text.find("weight embedding.weight"), std::string::npos) << text;
}

// All ranks have the same history for delayed scaling, because they use the same scales in the next step.
TEST(Parity, DelayedScalesAreThoseOfAllRanks) {
  RunConfig config = gpt2();
  config.precision.compute = DType::bf16;
  config.precision.fp8 = {.recipe = Fp8Recipe::kDelayed, .amax_history = 4};
  config.parallel = replicas();
  Mesh mesh = Mesh::make(*world, mesh_shape(config.parallel));
  Training shared(config, mesh);
  for (int step = 0; step < 5; ++step) shared.trainer.step(shared.loader, {.lr = 1e-3});
  expect_equal_on_all_ranks(shared.trainer.state().fp8.amaxes());
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
