// end_seed() ends a simulated seed that violates an invariant.
#pragma once

#include <string>
#include <string_view>

namespace ingot::simulated {

// Reports that the invariant `kind` does not hold, and ends the process of the seed at once. Any task may
// call it.
[[noreturn]] void end_seed(std::string_view kind, const std::string& text);

}  // namespace ingot::simulated
