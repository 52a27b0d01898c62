// Defines the keys of [parallel].
#include <sstream>

#include "ingot/config/config_key_kinds.h"

namespace ingot::key_kinds {
namespace {

constexpr std::pair<const char*, MeshAxis> kAxes[] = {{"dp", MeshAxis::kReplicate},
                                                      {"fsdp", MeshAxis::kShard},
                                                      {"pp", MeshAxis::kStage},
                                                      {"tp", MeshAxis::kTensor}};

// Parses a text such as "dp fsdp pp tp". Returns nullopt unless it names every axis once.
std::optional<MeshOrder> parse_order(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  std::vector<MeshAxis> order;
  while (words >> word) {
    const auto* const axis = std::ranges::find(kAxes, word, [](const auto& entry) { return entry.first; });
    if (axis == std::end(kAxes) || std::ranges::count(order, axis->second) > 0) return std::nullopt;
    order.push_back(axis->second);
  }
  MeshOrder all;
  if (order.size() != all.size()) return std::nullopt;
  std::ranges::copy(order, all.begin());
  return all;
}

ConfigKey order_key() {
  const std::string name = "parallel.order",
                    rule = "dp, fsdp, pp and tp in any order, such as \"dp fsdp pp tp\"";
  return {name,
          kFree,
          rule,
          "axes of the mesh of ranks, the outermost first; ranks along the last one are neighbours",
          true,
          [=](RunConfig& config, const ConfigValue& value) {
            const auto* text = std::get_if<std::string>(&value);
            const auto order = text ? parse_order(*text) : std::nullopt;
            if (!order) refuse(name, rule, value);
            config.parallel.order = *order;
          },
          [](const RunConfig& config) {
            std::string text;
            for (const MeshAxis axis : config.parallel.order)
              for (const auto& [word, own] : kAxes)
                if (own == axis) text += (text.empty() ? "" : " ") + std::string(word);
            return toml_string(text);
          }};
}

}  // namespace

void add_parallel_keys(std::vector<ConfigKey>& keys) {
  using P = ParallelConfig;
  const auto parallel = &RunConfig::parallel;
  constexpr int64_t kMax = 1 << 20;
  keys.push_back(whole("parallel.dp", kFree, 1, kMax,
                       "data-parallel replicas; each computes its samples of every step", parallel, &P::dp));
  keys.push_back(whole("parallel.fsdp", kFree, 1, kMax,
                       "ranks that shard one replica's weights, gradients and optimizer state", parallel,
                       &P::fsdp));
  keys.push_back(whole("parallel.tp", kFree, 1, kMax,
                       "tensor-parallel ranks, which shard the heads, the MLP and the vocabulary", parallel,
                       &P::tp));
  keys.push_back(flag("parallel.sequence_parallel", kFree,
                      "tensor-parallel ranks also shard the tokens in norms and in the residual stream",
                      parallel, &P::splits_tokens));
  keys.push_back(whole("parallel.pp", kFree, 1, kMax,
                       "pipeline stages; each rank holds some of the model's units", parallel, &P::pp));
  keys.push_back(choice<PipelineKind>("parallel.schedule", kFree,
                                      {{"gpipe", PipelineKind::kGpipe},
                                       {"1f1b", PipelineKind::kOneFOneB},
                                       {"interleaved", PipelineKind::kInterleaved}},
                                      "pipeline schedule", parallel, &P::schedule));
  keys.push_back(
      whole("parallel.chunks", kFree, 1, kMax, "interleaved: stages per rank", parallel, &P::chunks));
  keys.push_back(
      choice<bool>("parallel.unit_costs", kFree, {{"measured", false}, {"counted", true}},
                   "what makes the stages equal: the times of the model's units, measured when the run "
                   "starts, or their multiply-adds, which are the same at every start",
                   parallel, &P::counts_costs));
  keys.push_back(order_key());
  keys.push_back(whole("parallel.bucket_mb", kFree, 1, 1 << 20,
                       "megabytes of gradients reduced in one collective", parallel, &P::bucket_mb));
  keys.push_back(choice<DType>(
      "parallel.payload", kFree, {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
      "dtype in which gradients are sent; they are summed in f32", parallel, &P::payload));
  keys.push_back(choice<std::optional<DType>>(
      "parallel.payload_ends", kFree,
      {{"same", std::nullopt}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
      "dtype in which the gradients of embedding and head are sent", parallel, &P::payload_ends));
  keys.push_back(flag("parallel.error_feedback", kFree,
                      "add the rounding error of a sent gradient to the next step's", parallel,
                      &P::has_error_feedback));
  keys.push_back(choice<bool>("parallel.fsdp_shards", kFree, {{"all", false}, {"gradients", true}},
                              "all: shard weights too and gather them again for backward; gradients: shard "
                              "gradients and optimizer state only",
                              parallel, &P::keeps_units));
  keys.push_back(choice<DType>("parallel.muon_payload", kFree, {{"bf16", DType::bf16}, {"f32", DType::f32}},
                               "dtype in which Muon's owners send the directions", parallel,
                               &P::muon_payload));
  keys.push_back(or_auto(
      duration("parallel.timeout", kFree,
               "how long a rank waits for another before the run ends; auto: 5 times the median step and at "
               "least 5 s; 10 minutes for the first step, and for the first evaluation, samples and "
               "checkpoint, later 5 times "
               "the longest and at least 1 minute",
               parallel, &P::timeout_s),
      parallel, &P::timeout_s));
  keys.push_back(duration("parallel.delay", kFree,
                          "minimum duration of each collective, to measure what overlap hides", parallel,
                          &P::delay_s));
  keys.push_back(flag("parallel.verify", kFree,
                      "compare kind, name and size across ranks before each collective", parallel,
                      &P::verifies));
}

}  // namespace ingot::key_kinds
