// Options that several rules have. A rule's table names them, and its Options has the default.
#pragma once

#include <array>

#include "ingot/optim/rule_options.h"

namespace ingot {

inline constexpr OptionInfo kBeta1{"beta1", "decay of the first moment", Limit::kFraction};
inline constexpr OptionInfo kBeta2{"beta2", "decay of the second moment", Limit::kFraction};
inline constexpr OptionInfo kEps{"eps", "epsilon added to the root of the second moment", Limit::kPositive};
inline constexpr OptionInfo kWeightDecay{"weight_decay", "weight decay of parameters with two dims",
                                         Limit::kNotNegative};
inline constexpr OptionInfo kMomentum{"momentum", "momentum of momentum and muon", Limit::kFraction};
inline constexpr OptionInfo kMomentumStart{"momentum_start", "initial momentum of the momentum warm-up",
                                           Limit::kFraction};
inline constexpr OptionInfo kMomentumWarmup{"momentum_warmup", "steps of linear momentum warm-up",
                                            Limit::kNotNegative};
inline constexpr OptionInfo kNesterov{"nesterov", "Nesterov momentum"};

// Configurations list them in this order, before the options that one rule has.
inline constexpr std::array kSharedOptions{kBeta1,         kBeta2,          kEps,     kWeightDecay, kMomentum,
                                           kMomentumStart, kMomentumWarmup, kNesterov};

}  // namespace ingot
