// The reference of a run with pairs of answers (dpo.beta): the log-probability of each answer under the
// weights that the run starts from. It is computed once, before the first step, and written to the run's
// folder, so that a resumed run has the same. With LoRA it is that of the model without adapters.
#pragma once

#include <filesystem>

#include "ingot/data/token_source.h"
#include "ingot/train/trainer.h"

namespace ingot {

struct RunData;
struct RunSetup;

inline constexpr const char* kReferenceName = "reference.safetensors";

// Computes the references of the training and the validation data under the trainer's weights. All ranks call
// it. Does nothing for data without pairs.
void compute_references(const RunData& data, Trainer& trainer, const EvalProgress& should_continue = {});

// Writes them on rank 0, or reads them there for all ranks. A kData error names the file if it is not of
// these data.
void write_references(const RunSetup& setup);
void read_references(const RunSetup& setup);

}  // namespace ingot
