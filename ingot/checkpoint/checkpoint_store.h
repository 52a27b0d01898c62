// The folder of a run's checkpoints. A checkpoint is either whole or not there, whatever kills the process or
// the machine:
//   tmp.<step>.<nonce>/ is filled -> MANIFEST.json -> every file and the folder flushed -> renamed to
//   step-<step>/
//   -> the parent flushed. Only then is it reported as saved.
// There is no pointer file: readers scan for step-* and believe a checkpoint only when its hashes match.
// One thread; one process writes a folder at a time (another one's unfinished tmp.* is left alone while it
// lives).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/formats/manifest.h"

namespace ingot {

// In the metadata of a manifest: 1 says that whoever wrote the checkpoint found all its numbers finite. Older
// checkpoints lack it.
inline constexpr std::string_view kFiniteFlag = "finite";

struct Checkpoint {
  int64_t step = 0;
  std::filesystem::path path;  // <folder>/step-000000100
};

// Told of every damaged file: the checkpoint's path, and "<file> <what is wrong>".
using DamageReport = std::function<void(const std::filesystem::path& checkpoint, const std::string& what)>;

// The committed checkpoints of a folder, newest (highest step) first; an absent folder has none. Nothing is
// verified.
std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& folder);

// What is wrong with a checkpoint's files (verify_manifest), or with its folder's name: one that is called
// step-N must have been saved at step N.
std::vector<ManifestProblem> verify_checkpoint(const std::filesystem::path& checkpoint);

// The newest checkpoint whose every byte matches its manifest; newer damaged ones are reported and passed
// over.
std::optional<Checkpoint> newest_good_checkpoint(const std::filesystem::path& folder,
                                                 const DamageReport& report);

// The same of a checkpoint whose numbers are all finite too, as read from its safetensors files: one that a
// training may go on from. Only those of steps below before_step are looked at.
std::optional<Checkpoint> newest_healthy_checkpoint(
    const std::filesystem::path& folder, const DamageReport& report,
    int64_t before_step = std::numeric_limits<int64_t>::max());

class CheckpointStore {
 public:
  // Makes the folder and removes what dead processes left unfinished. kDisk error if it cannot be made.
  explicit CheckpointStore(const std::filesystem::path& folder);
  ~CheckpointStore();  // removes a begun checkpoint that was not committed
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  // kDisk error naming the folder, the needed and the free bytes, unless `bytes` fit.
  void require_space(uint64_t bytes) const;

  // A new empty folder to put the checkpoint's files into (plain files, no folders); an uncommitted one is
  // abandoned. REQUIRES: step >= 0. kDisk error if it cannot be made.
  std::filesystem::path begin(int64_t step);

  // Makes the begun checkpoint durable and returns its final path. The metadata gets "step". An older
  // checkpoint of the same step is replaced in one atomic exchange. `known_hashes` as in write_manifest. On
  // an error nothing committed has changed, and the begun folder stays: commit again (after making room) or
  // abandon. REQUIRES: begin was called.
  std::filesystem::path commit(const ManifestMetadata& metadata = {},
                               const std::map<std::string, uint64_t>& known_hashes = {});

  void abandon() noexcept;

  std::vector<Checkpoint> list() const { return list_checkpoints(folder_); }
  std::optional<Checkpoint> newest_good(const DamageReport& report) const {
    return newest_good_checkpoint(folder_, report);
  }
  std::optional<Checkpoint> newest_healthy(const DamageReport& report,
                                           int64_t before_step = std::numeric_limits<int64_t>::max()) const {
    return newest_healthy_checkpoint(folder_, report, before_step);
  }

  // Deletes all but the newest `keep` (at least 1) checkpoints, after reading the newest back and finding it
  // good and all its numbers finite (by its flag, or by looking where it has none); otherwise reports what is
  // wrong and deletes nothing. Returns how many were deleted. A deletion cut
  // short leaves no half checkpoint: it is renamed to tmp.* first.
  int prune(int keep, const DamageReport& report);

 private:
  struct Unfinished {
    int64_t step = 0;
    std::filesystem::path path;
    int lock_fd = -1;  // held as long as the process lives: tells others that the folder is in use
  };

  std::filesystem::path folder_;
  std::optional<Unfinished> unfinished_;
};

}  // namespace ingot
