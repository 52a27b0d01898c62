// `ingot serve` and `ingot api` serve until a signal asks them to end.
#pragma once

#include <functional>

#include "ingot/core/process/stop_signals.h"

namespace ingot {

// Calls serve(), which returns after stop(). Another thread calls stop() once a signal has asked the program
// to end.
void serve_until_stopped(const StopSignals& signals, const std::function<void()>& serve,
                         const std::function<void()>& stop);

}  // namespace ingot
