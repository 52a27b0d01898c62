// ResumeCheck compares the configuration that a checkpoint was saved with and the one that resumes it, and
// decides whether the run can continue.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/config/config_keys.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/train/trainer.h"

namespace ingot {

struct ResumeChange {
  std::string key, before, now;  // the values as TOML
  ResumeClass what = ResumeClass::kFree;
};

// Returns every key whose value differs, in the order of the table. A value of 0 that stands for a default
// ("as many heads") equals that default. Other micro-batches with the same number of sequences per batch do
// not change the text.
std::vector<ResumeChange> resume_changes(const RunConfig& before, const RunConfig& now);

// Permission to continue a run on a text other than the one it began with.
enum class DataMismatch { kRefused, kAccepted };

// Hashes of the tokens of a run's streams (TokenSource::content_hash); older checkpoints have no val.
struct TextHashes {
  uint64_t train = 0;
  std::optional<uint64_t> val = {};
};

class ResumeCheck {
 public:
  // Compares `now` with the checkpoint's config.toml. Keys that the checkpoint leaves out (layout, device)
  // are compared with run_config, if it is given and readable. Throws a kUsage error that names every key
  // with its old and new value, for a change of the model or a change of the text that is not accepted.
  ResumeCheck(const std::filesystem::path& checkpoint, const std::optional<std::filesystem::path>& run_config,
              const RunConfig& now, DataMismatch data_mismatch);

  const RunConfig& before() const { return before_; }  // the checkpoint's configuration
  const std::vector<ResumeChange>& changes() const { return changes_; }
  // True if the run uses the checkpoint's tokenizer; false if another one was requested and accepted.
  bool keeps_tokenizer() const { return keeps_tokenizer_; }

  // Returns the configuration with the checkpoint's vocabulary size, if `now` sets none. Throws a kUsage
  // error if the tokenizer has more tokens than the model.
  RunConfig with_vocab(RunConfig now, const Tokenizer& tokenizer) const;
  // Throws a kUsage error that names the changed keys if the checkpoint's optimizer state or FP8 history
  // does not match the trainer's. Loads nothing.
  void require_state(Trainer& trainer) const;
  // Throws a kUsage error if the tokens differ and that is not accepted. An accepted difference is added to
  // changes().
  void require_text(const TextHashes& before, const TextHashes& now);

  // Returns one line per change, after a heading; empty if nothing has changed.
  std::string text() const;

 private:
  void refuse_model() const;
  void settle_text(const RunConfig& now);
  std::string list(ResumeClass what) const;

  std::filesystem::path checkpoint_;
  RunConfig before_;
  DataMismatch data_mismatch_;
  int64_t vocab_ = 0;  // vocabulary size of the checkpoint's model
  bool keeps_tokenizer_ = true;
  std::vector<ResumeChange> changes_;
};

}  // namespace ingot
