#pragma once

#include <atomic>

#include "ingot/train/trainer.h"

namespace ingot {

// Submits and collects a synchronous step; the test then calls update() or discard().
inline StepResult gradients(Trainer& trainer, Loader& loader, int64_t micros, const StepInputs& inputs = {},
                            const std::atomic<bool>* is_told_to_end = nullptr) {
  trainer.submit(loader, {.micros = micros, .inputs = inputs, .is_told_to_end = is_told_to_end});
  return trainer.collect(loader);
}

}  // namespace ingot
