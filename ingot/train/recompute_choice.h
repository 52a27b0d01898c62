// Chooses which activations a trainer keeps, by its configured policy, and computes their size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ingot/comm/communicator.h"
#include "ingot/config/config.h"
#include "ingot/core/stream.h"
#include "ingot/nn/recompute.h"
#include "ingot/nn/transformer.h"

namespace ingot {

// Bytes of an arena for the activations of a micro-batch of B x T tokens.
size_t activation_bytes(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan,
                        Device device);

// True if the policy chooses by times of a block, under a budget.
bool needs_block_times(const RecomputeConfig& config);
// Relative times of a block, used if nothing can be measured: about its operations' fractions of the
// products' cost.
BlockTimes nominal_block_times();
// Returns the times of the slowest rank, so that all ranks choose by the same ones. Ranks that have measured
// nothing pass zeros.
BlockTimes agreed_block_times(BlockTimes times, Communicator& all);

// Returns the plan for the config's policy. For kAuto, this call measures the first block, and all ranks
// get the same plan; on a stream without memory it uses nominal times instead.
RecomputePlan choose_recompute(const RunConfig& config, Transformer& model, ParamStore& params, int64_t B,
                               Communicator& all, Stream& stream);

}  // namespace ingot
