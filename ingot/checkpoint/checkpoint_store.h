// CheckpointStore manages the folder of a run's checkpoints. A checkpoint either exists completely or not
// at all, even if the process or the machine dies at any moment:
//   tmp.<step>.<nonce>/ is filled -> MANIFEST.json -> every file and the folder are flushed
//   -> renamed to step-<step>/ -> the parent is flushed. Only then is it reported as saved.
// No pointer file says which checkpoint is the newest: readers look for step-* and trust a checkpoint only if
// its hashes match. `best` is a link to the checkpoint with the lowest validation loss, which prune() spares.
// A store is used by one thread, and one process at a time writes to a folder; unfinished tmp.* folders of
// another live process are not touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/formats/manifest.h"

namespace ingot {

// A key of the manifest's metadata: 1 says that the writer found all numbers of the checkpoint finite.
// Older checkpoints do not have it.
inline constexpr std::string_view kFiniteFlag = "finite";

// The link to the best checkpoint. It is relative, so it stays right if the run's folder is moved.
inline constexpr std::string_view kBestName = "best";

struct Checkpoint {
  int64_t step = 0;
  std::filesystem::path path;  // <folder>/step-000000100
};

// Called for every damaged file with the checkpoint's path and "<file> <what is wrong>".
using DamageReport = std::function<void(const std::filesystem::path& checkpoint, const std::string& what)>;

// Returns the committed checkpoints of a folder, the highest step first; empty if there is no folder.
// Nothing is verified.
std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& folder);

// Returns the checkpoint that the link `best` names; nullopt if there is no link, or if the link names no
// checkpoint in this folder. The checkpoint is not verified.
std::optional<Checkpoint> best_checkpoint(const std::filesystem::path& folder);

// Returns what is wrong with a checkpoint's files (verify_manifest) or with its folder's name: step-N
// must have been saved at step N.
std::vector<ManifestProblem> verify_checkpoint(const std::filesystem::path& checkpoint);
// As verify_checkpoint for a caller that reads only the files named in `read` (verify_manifest_of).
std::vector<ManifestProblem> verify_checkpoint_files(const std::filesystem::path& checkpoint,
                                                     std::span<const std::string_view> read);

// Throws a kData error if a newer program than this one made the checkpoint (newer_format).
void require_known_format(const std::filesystem::path& checkpoint);
// Does so for every checkpoint of a folder.
void require_known_formats(const std::filesystem::path& folder);

// Returns the newest checkpoint in which every byte of the files named in `read`, which the caller reads,
// matches the manifest. Newer damaged ones are reported and skipped. This and the next function throw a kData
// error at a checkpoint of a newer format, which only the program that made it can judge.
std::optional<Checkpoint> newest_usable_checkpoint(const std::filesystem::path& folder,
                                                   const DamageReport& report,
                                                   std::span<const std::string_view> read);

// Returns the newest checkpoint in which every byte matches the manifest and whose safetensors files, which
// are read, hold only finite numbers, so that training may continue from it. Only steps below before_step are
// considered.
std::optional<Checkpoint> newest_healthy_checkpoint(
    const std::filesystem::path& folder, const DamageReport& report,
    int64_t before_step = std::numeric_limits<int64_t>::max());

class CheckpointStore {
 public:
  // Creates the folder and removes unfinished checkpoints of dead processes. kDisk error if it
  // cannot be created; kData error, before anything is changed, if it holds a checkpoint of a newer format.
  explicit CheckpointStore(const std::filesystem::path& folder);
  ~CheckpointStore();  // removes an uncommitted checkpoint
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  // kDisk error, naming the folder, the needed bytes and the free bytes, if `bytes` do not fit.
  void require_space(uint64_t bytes) const;

  // Creates and returns an empty folder for the checkpoint's files (plain files, no folders). An uncommitted
  // checkpoint is abandoned first. REQUIRES: step >= 0. kDisk error if the folder cannot be created.
  std::filesystem::path begin(int64_t step);

  // Makes the begun checkpoint durable and returns its final path. "step" is added to the metadata. An
  // older checkpoint of the same step is replaced atomically where the file system can exchange names. A
  // folder of that name that is none, because its manifest cannot be read or because it holds other files
  // too, is renamed to step-N.kept-1. kData error if a newer program made it. `known_hashes` are those of
  // write_manifest. On an error, committed checkpoints are unchanged and the begun folder stays: the caller
  // may call commit again (after making room) or abandon. REQUIRES: begin was called.
  std::filesystem::path commit(const ManifestMetadata& metadata = {},
                               const std::map<std::string, uint64_t>& known_hashes = {});

  void abandon() noexcept;

  // Makes `best` name the checkpoint of this step. The link changes in one rename, so it always names a
  // committed checkpoint. kDisk error if there is no such checkpoint, if the file system refuses the link, or
  // if `best` is something else than a link, which is not touched.
  void set_best(int64_t step);
  // Removes the link `best` if there is one. kDisk error if that fails.
  void clear_best();

  // Returns true if every byte of the step's checkpoint matches the manifest; what does not is reported.
  bool is_good(int64_t step, const DamageReport& report) const;

  std::vector<Checkpoint> list() const { return list_checkpoints(folder_); }
  std::optional<Checkpoint> newest_healthy(const DamageReport& report,
                                           int64_t before_step = std::numeric_limits<int64_t>::max()) const {
    return newest_healthy_checkpoint(folder_, report, before_step);
  }

  // Deletes all but the newest `keep` (at least 1) checkpoints and the best one, and returns how many were
  // deleted. A folder whose manifest cannot be read, or that holds files that its manifest does not list, is
  // not counted and stays. First it reads the newest one back; unless that is good and all its numbers are
  // finite (according to its flag, or by reading them if it has no flag), it reports what is wrong and
  // deletes nothing. An interrupted deletion leaves no partial checkpoint, because the folder is renamed to
  // tmp.* first.
  int prune(int keep, const DamageReport& report);

 private:
  struct Unfinished {
    int64_t step = 0;
    std::filesystem::path path;
    int lock_fd = -1;  // lock that tells other processes that the folder is in use
  };

  std::filesystem::path folder_;
  std::optional<Unfinished> unfinished_;
};

}  // namespace ingot
