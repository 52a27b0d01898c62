// Activation checkpointing (Chen et al. 2016, arXiv:1604.06174; selective: Korthikanti et al. 2022,
// arXiv:2205.05198): which results of forward are kept for backward, and which backward recomputes. The
// gradients are bitwise the same for every choice. The inputs of norms after attention and MLP are always
// kept for backward: they would need W_o and W_down again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ingot {

// kNone keeps everything. kSelective recomputes `parts` in every block. kBlock recomputes every block from
// its input; kEveryK does so for every k-th block and treats the others as kSelective; kSqrt forms
// ceil(sqrt(layers)) segments of blocks and recomputes each from its input. kAuto picks the fastest plan
// whose activations fit a budget, by measured times.
enum class RecomputePolicy { kNone, kSelective, kBlock, kEveryK, kSqrt, kAuto };

// kNorms: the normalised rows. kActivation: the output of the MLP's activation (for SwiGLU, the product).
// kMlp: the MLP up to W_down. kAttention: attention up to W_o. kEmbedding: the first block's input.
enum class RecomputePart { kNorms, kActivation, kMlp, kAttention, kEmbedding };

struct RecomputeConfig {
  RecomputePolicy policy = RecomputePolicy::kSelective;
  // Read by every policy but kNone and kAuto.
  std::vector<RecomputePart> parts = {RecomputePart::kNorms, RecomputePart::kActivation};
  int64_t k = 2;  // for kEveryK
  int64_t budget_bytes =
      0;  // for kAuto: limit for the activations of a micro-batch; 0: none, everything is kept

  // Throws a kUsage error that names the key, the value and the nearest valid one. needs_budget: kAuto
  // without a budget is an error.
  void validate(int64_t layers, bool needs_budget = true) const;
};

// The fate of a result of forward. kOwn: it is kept until backward. kShared: one of several blocks keeps it,
// the last in a slot; backward makes those of the others again for a whole segment of blocks. kNone: backward
// makes it again from the other results just before it reads it.
enum class Storage { kOwn, kShared, kNone };

struct AttentionStorage {
  Storage x = Storage::kOwn, h = Storage::kOwn;
  Storage heads = Storage::kOwn;  // qkv, qk_rstd, out and lse
  bool has_codes = true;          // the linears' FP8 codes are kept for backward, if they have any
  bool operator==(const AttentionStorage&) const = default;
};
struct MlpStorage {
  Storage x = Storage::kOwn, h = Storage::kOwn, pre = Storage::kOwn, act = Storage::kOwn;
  bool has_codes = true;  // as in AttentionStorage
  bool operator==(const MlpStorage&) const = default;
};
struct BlockPlan {
  AttentionStorage attention;
  MlpStorage mlp;
  int slot = 0;  // position in its segment: blocks with the same one share
  bool operator==(const BlockPlan&) const = default;
};

struct RecomputePlan {
  std::vector<BlockPlan> blocks;
  bool keeps_embedding = true;
  bool is_forward_only = false;  // nothing is kept, and backward must not be called

  // The segment of blocks [segment_begin(l), segment_end(l)) that contains block l. It runs from a block
  // whose input is kept to the next such block, and is recomputed as a whole.
  size_t segment_begin(size_t l) const;
  size_t segment_end(size_t l) const;
  // The results of block l that are to be made again when backward has finished the blocks above it.
  struct NeedsRecompute {
    bool heads, residual, pre;  // residual: the MLP's input
  };
  NeedsRecompute needs_recompute(size_t l) const;
  // A summary such as "12 x (norms, activation)".
  std::string summary() const;
};

// REQUIRES: validate(layers) passes; the policy is not kAuto.
RecomputePlan recompute_plan(const RecomputeConfig& config, int64_t layers);
// For evaluation and generation, which keep nothing.
RecomputePlan forward_only_plan(int64_t layers);

// Seconds of the ops of one block in a forward pass.
struct BlockTimes {
  double norm_s = 0, activation_s = 0;
  double heads_s = 0, proj_s = 0;  // attention up to W_o, with its norm; W_o
  double pre_s = 0, down_s = 0;    // the MLP's norm and first product; its second product
  double embedding_s = 0;
};
// The time that a plan adds to a backward pass.
double recompute_time_s(const RecomputePlan& plan, const BlockTimes& times);

// For kAuto: returns the fastest plan with bytes(plan) <= budget_bytes, and the smallest of equally fast
// ones. The candidates are all pairs of part choices, each for any number of consecutive blocks, and
// segments of all lengths. The search calls `bytes` for those that may win; the bytes of a pair rise or fall
// with the number of its blocks. Throws a kUsage error that names the smallest plan's bytes if none fits.
RecomputePlan fastest_plan(int64_t layers, const BlockTimes& times, size_t budget_bytes,
                           const std::function<size_t(const RecomputePlan&)>& bytes);

}  // namespace ingot
