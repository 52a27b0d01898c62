// Which activations a trainer keeps, by the policy of its configuration, and what they take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ingot/config/config.h"
#include "ingot/core/stream.h"
#include "ingot/nn/recompute.h"
#include "ingot/nn/transformer.h"
#include "ingot/train/reduce.h"

namespace ingot {

// Bytes of an arena for the activations of a micro-batch of B x T tokens.
size_t activation_bytes(const Transformer& model, int64_t B, int64_t T, const RecomputePlan& plan,
                        Device device);

// By the config's policy. kAuto is decided by timing the first block here and now, alike on all ranks; on a
// stream without memory, by nominal times.
RecomputePlan choose_recompute(const RunConfig& config, Transformer& model, ParamStore& params, int64_t B,
                               Reducer& all, Stream& stream);

}  // namespace ingot
