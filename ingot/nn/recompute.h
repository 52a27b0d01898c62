// Activation checkpointing (Chen et al. 2016, arXiv:1604.06174; by parts: Korthikanti et al. 2022,
// arXiv:2205.05198): which results of forward are kept for backward, and which backward computes again. The
// gradients are the same bits for every choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ingot {

// kNone: everything is kept. kSelective: the parts are computed again in every block. kBlock: every block is
// computed again from its input; kEveryK: every k-th is, the others do as kSelective; kSqrt:
// ceil(sqrt(layers)) segments of blocks, each computed again from its input. kAuto: the fastest choice whose
// activations fit a budget, by measured times.
enum class RecomputePolicy { kNone, kSelective, kBlock, kEveryK, kSqrt, kAuto };

// kNorms: the normalised rows. kActivation: the result of the MLP's activation (SwiGLU's product). kMlp: the
// MLP up to W_down. kAttention: attention up to W_o. kEmbedding: the first block's input.
enum class RecomputePart { kNorms, kActivation, kMlp, kAttention, kEmbedding };

struct RecomputeConfig {
  RecomputePolicy policy = RecomputePolicy::kSelective;
  // Of every policy but kNone and kAuto.
  std::vector<RecomputePart> parts = {RecomputePart::kNorms, RecomputePart::kActivation};
  int64_t k = 2;             // of kEveryK
  int64_t budget_bytes = 0;  // of kAuto: for the activations of a micro-batch

  // Throws a kUsage error that names the key, the value and the nearest valid one.
  void validate(int64_t layers) const;
};

// Where a result lies. kOwn: in memory of its block, until backward. kShared: in memory that other blocks use
// too; backward computes it again where one has. kNone: in scratch; backward computes it again from the rest.
enum class Place { kOwn, kShared, kNone };

struct AttentionPlaces {
  Place x = Place::kOwn, h = Place::kOwn, heads = Place::kOwn;  // heads: qkv, their scales, result and lse
  bool operator==(const AttentionPlaces&) const = default;
};
struct MlpPlaces {
  Place x = Place::kOwn, h = Place::kOwn, pre = Place::kOwn, act = Place::kOwn;
  bool operator==(const MlpPlaces&) const = default;
};
struct BlockPlan {
  AttentionPlaces attention;
  MlpPlaces mlp;
  int slot = 0;  // which of the sets of shared memory is its own
  bool operator==(const BlockPlan&) const = default;
};

struct RecomputePlan {
  std::vector<BlockPlan> blocks;
  bool keeps_embedding = true;
  bool is_forward_only = false;  // nothing is kept, and backward must not be called

  // Blocks are computed again by segments [segment_begin(l), segment_end(l)) that hold l: from a block whose
  // input is kept to the next such.
  size_t segment_begin(size_t l) const;
  size_t segment_end(size_t l) const;
  // What of block l has been overwritten when backward comes to it, having undone the blocks above.
  struct Again {
    bool heads, residual, pre;  // residual: the MLP's input
  };
  Again again(size_t l) const;
  int slots() const;
  // "12 x (norms, activation)".
  std::string summary() const;
};

// REQUIRES: validate(layers) passes; the policy is not kAuto.
RecomputePlan recompute_plan(const RecomputeConfig& config, int64_t layers);
// For evaluation and generation: one set of memory serves all blocks.
RecomputePlan forward_only_plan(int64_t layers);

// Seconds that the parts of one block take, of a forward pass.
struct BlockTimes {
  double norm_s = 0, activation_s = 0;
  double heads_s = 0, proj_s = 0;  // attention up to W_o, with its norm; W_o
  double pre_s = 0, down_s = 0;    // the MLP's norm and first product; its second
  double embedding_s = 0;
};
// What a plan adds to a backward pass.
double recompute_time_s(const RecomputePlan& plan, const BlockTimes& times);

// kAuto: of all plans whose bytes(plan) <= budget_bytes the fastest, of equally fast ones the smallest.
// Candidates: two choices of parts side by side in any proportion, segments of any length. kUsage error that
// names the smallest plan's bytes if none fits.
RecomputePlan fastest_plan(int64_t layers, const BlockTimes& times, size_t budget_bytes,
                           const std::function<size_t(const RecomputePlan&)>& bytes);

}  // namespace ingot
