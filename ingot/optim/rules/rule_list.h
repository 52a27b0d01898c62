// The list of all update rules, in the order in which texts name them. It is all that names every rule: the
// table of rules (optim/rules/all_rules.h), the configuration's keys, the kernels of a device and the tests
// of every rule come from it. To add a rule, include its header and name it here.
#pragma once

#include "ingot/optim/rules/adafactor.h"
#include "ingot/optim/rules/adam.h"
#include "ingot/optim/rules/adamw.h"
#include "ingot/optim/rules/adamw_8bit.h"
#include "ingot/optim/rules/adan.h"
#include "ingot/optim/rules/elementwise_rule.h"
#include "ingot/optim/rules/lion.h"
#include "ingot/optim/rules/momentum.h"
#include "ingot/optim/rules/muon.h"
#include "ingot/optim/rules/sgd.h"
#include "ingot/optim/type_list.h"

namespace ingot {

using AllRules = TypeList<Sgd, Momentum, Adam, AdamW, Adafactor, Lion, AdamW8bit, Muon, Adan>;

using ElementwiseRules = ElementwiseOf<AllRules>::type;

}  // namespace ingot
