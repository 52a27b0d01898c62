// What has changed between the configuration that a checkpoint was saved with and the one that resumes it,
// and what of it a run can go on with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/train/trainer.h"

namespace ingot {

// What it means that a key changes when a run is resumed.
enum class ResumeClass {
  kFree,    // where and how the run is computed, watched and saved
  kCourse,  // how it learns from now on, from the same text
  kSource,  // where the text comes from: only a change of the tokens themselves counts
  kText,    // which text comes next; it must be accepted (--resume-anyway)
  kState,  // cannot change where the optimizer's state or the history of FP8 in the checkpoint no longer fits
  kModel,  // what the weights are: cannot change
};

// nullopt: the key has no class. Every key of config_keys() has one, and "optimizer.group".
std::optional<ResumeClass> resume_class(std::string_view key);

struct ResumeChange {
  std::string key, before, now;  // the values as TOML
  ResumeClass what = ResumeClass::kFree;
};

// Every key whose value differs, in the order of the table. A value of 0 that stands for a default ("as many
// heads") equals what it stands for; batches of other micro-batches but as many sequences change no text.
std::vector<ResumeChange> resume_changes(const RunConfig& before, const RunConfig& now);

// Whether a run may go on with other text than it was begun with.
enum class OtherText { kRefused, kAccepted };

// The tokens of a run's streams (TokenSource::content_hash); val is absent in older checkpoints.
struct TextHashes {
  uint64_t train = 0;
  std::optional<uint64_t> val = {};
};

class ResumeCheck {
 public:
  // Compares `now` with the checkpoint's config.toml and, in what that leaves out (layout, device), with the
  // run's, if it is given and readable. kUsage error naming every key, its old and its new value: for a
  // change of the model, and for one of the text that is not accepted.
  ResumeCheck(const std::filesystem::path& checkpoint, const std::optional<std::filesystem::path>& run_config,
              const RunConfig& now, OtherText other_text);

  const std::vector<ResumeChange>& changes() const { return changes_; }
  // The checkpoint's tokenizer is the run's; false: another one was asked for and accepted.
  bool keeps_tokenizer() const { return keeps_tokenizer_; }

  // The configuration with the checkpoint's vocabulary, where it gives none of its own. kUsage error for a
  // tokenizer with more tokens than the model has.
  RunConfig with_vocab(RunConfig now, const Tokenizer& tokenizer) const;
  // kUsage error naming the keys that changed, where the optimizer's state or the history of FP8 in the
  // checkpoint is not what the trainer has; nothing is loaded.
  void require_state(Trainer& trainer) const;
  // kUsage error, unless the tokens are the same or others are accepted, which becomes a change to be listed.
  void require_text(const TextHashes& before, const TextHashes& now);

  // One line for each change, after a heading; empty: nothing has changed.
  std::string text() const;

 private:
  void refuse_model() const;
  void settle_text(const RunConfig& now);
  std::string list(ResumeClass what) const;

  std::filesystem::path checkpoint_;
  OtherText other_text_;
  int64_t vocab_ = 0;  // the checkpoint's model has so many tokens
  bool keeps_tokenizer_ = true;
  std::vector<ResumeChange> changes_;
};

}  // namespace ingot
