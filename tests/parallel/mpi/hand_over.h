// Compares a run that resumes from its checkpoints in other layouts with an uninterrupted run.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/checkpoint/hf_weights.h"
#include "ingot/core/file.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "tests/comm/mpi/shared_folder.h"
#include "tests/parallel/mpi/ranks_fixture.h"

namespace ingot {

namespace fs = std::filesystem;

inline constexpr int kPart = 10;  // number of steps in one layout

// Saves a checkpoint with all ranks of the layout. In a run on a single rank, rank 0 saves and the other
// ranks wait. Returns its path on every rank.
inline fs::path save(Training& run, const fs::path& folder, int64_t step) {
  std::string path;
  std::optional<CheckpointStore> store;
  if (world->rank() == 0) store.emplace(folder);
  if (store || run.trainer.layout().mesh->world->size() > 1) {
    TrainerState state;
    state.step = step;
    state.sample_position = run.loader.position();
    path =
        save_checkpoint(store ? &*store : nullptr, run.trainer, *make_byte_tokenizer(), "", state).string();
  }
  world->broadcast_text(path, 0);
  return path;
}

inline void resume(Training& run, const fs::path& checkpoint) {
  const TrainerState state = load_checkpoint(checkpoint, run.trainer);
  run.loader.seek(state.sample_position);
}

// Trains kPart steps in each layout, resuming from the checkpoint of the layout before, and compares the
// losses with an uninterrupted run. For a layout of a single rank, every rank trains the whole model.
inline void expect_undisturbed(const RunConfig& config, const std::vector<ParallelConfig>& layouts,
                               double tolerance = 1e-6) {
  const SharedFolder folder;
  Training undisturbed(config);
  std::vector<double> got;
  fs::path checkpoint;
  int64_t step = 0;
  for (const ParallelConfig& layout : layouts) {
    RunConfig here = config;
    here.parallel = layout;
    const bool is_alone = layout.ranks() == 1;
    Mesh mesh = Mesh::make(*world, is_alone ? mesh_shape(replicas()) : mesh_shape(layout));
    Training run(here, is_alone ? parallelize(here) : parallelize(here, mesh));
    if (step > 0) {
      resume(run, checkpoint);
      const fs::path again = save(run, folder.path / fmt::format("again-{}", step), step);
      for (const char* file :
           {weights_name(*run.trainer.layout().model), "optimizer.safetensors", "trainer.json"})
        EXPECT_EQ(read_file(again / file), read_file(checkpoint / file)) << file << " at step " << step;
    }
    for (const double loss : run.losses(kPart)) got.push_back(loss);
    step += kPart;
    checkpoint = save(run, folder.path / "checkpoints", step);
  }
  const std::vector<double> want = undisturbed.losses(static_cast<int>(step));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * want[i]) << "step " << i;
}

}  // namespace ingot
