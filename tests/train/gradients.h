#pragma once

#include <atomic>

#include "ingot/train/trainer.h"

namespace ingot {

// Submits and collects a synchronous step; the test then calls update() or discard().
inline StepResult gradients(Trainer& trainer, Loader& loader, int64_t micros, const StepInputs& inputs = {},
                            const std::atomic<bool>* is_stop_requested = nullptr) {
  trainer.submit(loader, {.micros = micros, .inputs = inputs, .is_stop_requested = is_stop_requested});
  return trainer.collect(loader);
}

}  // namespace ingot
