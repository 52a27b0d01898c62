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

// Returns the plan for the config's policy. For kAuto, this call measures the first block, and all ranks
// get the same plan; on a stream without memory it uses nominal times instead.
RecomputePlan choose_recompute(const RunConfig& config, Transformer& model, ParamStore& params, int64_t B,
                               Communicator& all, Stream& stream);

}  // namespace ingot
