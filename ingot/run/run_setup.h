// RunSetup holds the constant inputs of a run: what it was given, and what is read before its memory is
// allocated. Each rank has its own, and all ranks call each function of a run together. They first agree on
// whatever only one of them can know (a signal, the clock, the newest good checkpoint).
#pragma once

#include <atomic>
#include <optional>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/comm/communicator.h"
#include "ingot/config/run_plan.h"
#include "ingot/console/console.h"
#include "ingot/data/sampler.h"
#include "ingot/run/data/run_data.h"
#include "ingot/run/eval/run_tasks.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/resume_check.h"

namespace ingot {

// The checkpoint that a run resumes.
struct ResumePoint {
  Checkpoint checkpoint;
  ResumeCheck changes;  // keys of the configuration that differ from its own
};

struct RunSetup {
  RunFolder& folder;
  Console& console;
  const std::atomic<bool>& is_interrupted;
  Communicator& world;  // all ranks of the run
  std::optional<ResumePoint> resumed;
  RunData data;
  RunConfig config;  // its model.vocab is set
  TextHashes text;
  RunTasks tasks;
  Sampler sampler;
  RunPlan plan;

  bool is_lead() const { return world.rank() == 0; }
};

// Finds the newest healthy checkpoint and compares the configuration with its own. Throws a kUsage error if
// there is none, or if it does not fit the configuration.
ResumePoint find_resume_point(CheckpointStore& store, const RunConfig& given, const RunFolder& folder,
                              Console& console, Communicator& world, DataMismatch data_mismatch);

// Completes the tokenizer's side files from the folder of the checkpoint that a run resumes, or of the model
// that it starts from, if the tokenizer is the one in that folder.
void complete_side_files(Tokenizer& tokenizer, const std::filesystem::path& folder);

// Reads the text and completes the configuration. Borrows everything but the first two. Returns nullopt on
// all ranks if one of them is interrupted while its text is read.
std::optional<RunSetup> load_run(RunConfig config, std::optional<ResumePoint> resumed, RunFolder& folder,
                                 Console& console, const std::atomic<bool>& is_interrupted,
                                 Communicator& world);

}  // namespace ingot
