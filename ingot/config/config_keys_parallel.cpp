// The keys of [parallel].
#include "ingot/config/config_key_kinds.h"

namespace ingot::key_kinds {

void add_parallel_keys(std::vector<ConfigKey>& keys) {
  using P = ParallelConfig;
  const auto parallel = &RunConfig::parallel;
  constexpr int64_t kMost = 1 << 20;
  keys.push_back(whole("parallel.dp", 1, kMost, "replicas of the model, each with its share of every step",
                       parallel, &P::dp));
  keys.push_back(whole("parallel.fsdp", 1, kMost,
                       "ranks that share one replica's weights, gradients and optimizer state", parallel,
                       &P::fsdp));
  keys.push_back(whole("parallel.tp", 1, kMost, "ranks that share every product", parallel, &P::tp));
  keys.push_back(flag("parallel.sequence_parallel",
                      "these ranks split the tokens of norms and the residual stream too", parallel,
                      &P::splits_tokens));
  keys.push_back(whole("parallel.pp", 1, kMost,
                       "ranks that have the model's units in stages, which micro-batches pass in turn",
                       parallel, &P::pp));
  keys.push_back(choice<PipelineKind>("parallel.schedule",
                                      {{"gpipe", PipelineKind::kGpipe},
                                       {"1f1b", PipelineKind::kOneFOneB},
                                       {"interleaved", PipelineKind::kInterleaved}},
                                      "order of micro-batches in the stages", parallel, &P::schedule));
  keys.push_back(
      whole("parallel.chunks", 1, kMost, "interleaved: stages of each rank", parallel, &P::chunks));
  keys.push_back(whole("parallel.bucket_mb", 1, 1 << 20, "megabytes of gradients that travel together",
                       parallel, &P::bucket_mb));
  keys.push_back(
      choice<DType>("parallel.payload", {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
                    "dtype in which gradients travel; they are added in f32", parallel, &P::payload));
  keys.push_back(choice<std::optional<DType>>(
      "parallel.payload_ends",
      {{"same", std::nullopt}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
      "the same for the gradients of embedding and head", parallel, &P::payload_ends));
  keys.push_back(flag("parallel.error_feedback", "what rounding took from a gradient is sent a step later",
                      parallel, &P::has_error_feedback));
  keys.push_back(choice<bool>("parallel.fsdp_shards", {{"all", false}, {"gradients", true}},
                              "all: weights too, gathered again for backward; gradients: and optimizer state",
                              parallel, &P::keeps_units));
  keys.push_back(choice<DType>("parallel.muon_payload", {{"bf16", DType::bf16}, {"f32", DType::f32}},
                               "dtype in which Muon's directions travel from the ranks that make them",
                               parallel, &P::muon_payload));
  keys.push_back(or_auto(
      duration("parallel.timeout",
               "how long a rank waits for another before the run ends; auto: 5 times the median step and at "
               "least 5 s, 10 minutes and more for the first step, evaluations, samples and checkpoints",
               parallel, &P::timeout_s),
      parallel, &P::timeout_s));
  keys.push_back(duration("parallel.delay", "that each of them takes at least; shows what overlap hides",
                          parallel, &P::delay_s));
  keys.push_back(flag("parallel.verify", "before each of them, ranks compare its kind, name and size",
                      parallel, &P::verifies));
}

}  // namespace ingot::key_kinds
