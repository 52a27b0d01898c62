// A program as text, for `ingot train --print-program`.
#pragma once

#include <string>

#include "ingot/nn/param_store.h"
#include "ingot/nn/program/program.h"

namespace ingot {

// Returns a line per operation: its inputs and weights, the outputs with their dtypes, shapes, placements and
// addresses, the operation for which backward keeps a value, and the parameters to whose gradients it adds.
// Consecutive blocks with the same operations are printed once. params: of the model.
std::string program_text(const Program& program, const ParamList& params);

}  // namespace ingot
