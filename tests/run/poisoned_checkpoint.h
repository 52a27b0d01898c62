// A checkpoint whose next steps are not finite where the text has a certain token.
#pragma once

#include <algorithm>
#include <filesystem>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/core/file.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/parallel/parallelize.h"

namespace ingot {

// Saves the checkpoint `from` once more in the run's folder, with an embedding of Z that is finite but so
// large that LayerNorm's sums overflow. `c` is the run's configuration.
inline void save_poisoned(RunConfig c, const std::filesystem::path& from, const std::filesystem::path& run) {
  const auto tokenizer = load_tokenizer(from / "tokenizer.json");
  c.model.vocab = tokenizer->vocab_size();
  Trainer trainer(c, parallelize(c));
  const TrainerState state = load_checkpoint(from, trainer);
  const int64_t z = encode(*tokenizer, "Z").front();
  std::fill_n(trainer.params().master(0).as<float>() + z * c.model.width, c.model.width, 3e38f);
  CheckpointStore store(run / "checkpoints");
  save_checkpoint(&store, trainer, *tokenizer, read_file(from / "config.toml"), state);
}

}  // namespace ingot
