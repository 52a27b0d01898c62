#include "ingot/checkpoint/checkpoint_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/finite.h"
#include "ingot/formats/safetensors.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNewBestName = "tmp.best";  // the link before it is renamed to kBestName
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kNonceCharacters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

std::string step_name(int64_t step) { return fmt::format("step-{:09}", step); }

bool is_only(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

// Returns the step of "step-000000100", or nullopt for any other name.
std::optional<int64_t> parse_step_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.size() > 18 || !is_only(digits, kDigits)) return std::nullopt;
  const int64_t step = std::stoll(std::string(digits));
  return step_name(step) == name ? std::optional(step) : std::nullopt;
}

// Returns true for names that make_unfinished creates: tmp.<step>.<six characters>.
bool is_unfinished_name(std::string_view name) {
  constexpr std::string_view kPrefix = "tmp.";
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  const size_t dot = name.find('.');
  return dot != name.npos && is_only(name.substr(0, dot), kDigits) && name.size() == dot + 7 &&
         is_only(name.substr(dot + 1), kNonceCharacters);
}

std::vector<fs::path> subfolders(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  if (!fs::exists(folder, error)) return out;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->symlink_status(gone).type() == fs::file_type::directory) out.push_back(it->path());
  }
  if (error) fail(ErrorKind::kData, "{}: the folder cannot be read: {}", folder.string(), error.message());
  return out;
}

// Opens and locks a folder. Returns -1 if another process holds the lock or the folder does not exist.
int lock_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::symlink;
}

void remove_stale(const fs::path& folder) {
  if (is_link(folder / kNewBestName)) ::unlink((folder / kNewBestName).c_str());
  for (const fs::path& path : subfolders(folder)) {
    if (!is_unfinished_name(path.filename().string())) continue;
    const int fd = lock_folder(path);
    if (fd < 0) continue;
    std::error_code error;  // a folder that cannot be removed stays; it is never read
    fs::remove_all(path, error);
    ::close(fd);
  }
}

// Creates an empty folder tmp.<step>.<nonce>.
fs::path make_unfinished(const fs::path& folder, int64_t step) {
  std::string path = (folder / fmt::format("tmp.{:09}.XXXXXX", step)).string();
  if (::mkdtemp(path.data()) == nullptr || ::chmod(path.c_str(), 0755) != 0)
    fail(ErrorKind::kDisk,
         "{}: the folder of a checkpoint cannot be made: {}; choose a folder you may write to", path,
         std::strerror(errno));
  return path;
}

void sync_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) fail(ErrorKind::kDisk, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
  const bool is_synced = ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (!is_synced)
    fail(ErrorKind::kDisk, "{}: flushing to disk failed: {}; free some space and try again", path.string(),
         std::strerror(error));
}

// Renames `from` to `to`. If `to` exists, the two exchange their names, so that `to` exists at every
// moment; if the file system cannot do that, `to` is moved away first. Returns true if the old folder is
// now at `from`.
bool rename_into_place(const fs::path& from, const fs::path& to) {
  const auto refuse = [&](const fs::path& path) {
    fail(ErrorKind::kDisk, "{}: cannot be renamed: {}; the checkpoint is not saved", path.string(),
         std::strerror(errno));
  };
  struct stat info {};
  if (::lstat(to.c_str(), &info) != 0) {
    if (::rename(from.c_str(), to.c_str()) != 0) refuse(from);
    return false;
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) refuse(from);
  const fs::path aside = make_unfinished(to.parent_path(), 0);
  if (::rename(to.c_str(), aside.c_str()) != 0) refuse(to);
  if (::rename(from.c_str(), to.c_str()) != 0) refuse(from);
  if (::rename(aside.c_str(), from.c_str()) != 0) refuse(aside);
  return true;
}

// Returns true if the checkpoint has no damage; otherwise reports each problem, such as "FILE is missing".
bool is_good(const Checkpoint& checkpoint, const std::vector<ManifestProblem>& problems,
             const DamageReport& report) {
  for (const ManifestProblem& problem : problems)
    if (report) report(checkpoint.path, fmt::format("{} {}", problem.file, problem.what));
  return problems.empty();
}

bool has_good_files(const Checkpoint& checkpoint, const DamageReport& report) {
  return is_good(checkpoint, verify_checkpoint(checkpoint.path), report);
}

// Returns true if all numbers of the safetensors files are finite; otherwise reports the first that is not.
bool is_finite(const Checkpoint& checkpoint, const DamageReport& report) {
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint.path)) {
      if (entry.path().extension() != ".safetensors") continue;
      const SafetensorsFile file(entry.path());
      for (const SafetensorsEntry& tensor : file.tensors())
        if (tensor.dtype)
          require_finite(entry.path().filename().string(), tensor.name, *tensor.dtype, 0, tensor.bytes);
    }
    return true;
  } catch (const Error& error) {
    if (report) report(checkpoint.path, error.what());
  } catch (const fs::filesystem_error& error) {
    if (report) report(checkpoint.path, "cannot be read: " + error.code().message());
  }
  return false;
}

// Returns true if a checkpoint was written by a store and holds nothing else, so that it may be deleted. Its
// files may be damaged or missing.
bool is_own(const fs::path& checkpoint) {
  try {
    const Manifest manifest = read_manifest(checkpoint);
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
      const std::string name = entry.path().filename().string();
      if (name != kManifestName && !std::ranges::binary_search(manifest.files, name, {}, &ManifestFile::name))
        return false;
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Renames a folder that stands where a checkpoint is to be, so that its files stay.
void set_aside(const fs::path& path) {
  std::error_code error;
  fs::path aside;
  for (int n = 1; aside.empty() || fs::exists(fs::symlink_status(aside, error)); ++n)
    aside = fmt::format("{}.kept-{}", path.string(), n);
  if (::rename(path.c_str(), aside.c_str()) != 0)
    fail(ErrorKind::kDisk, "{}: cannot be renamed to {}: {}; the checkpoint is not saved", path.string(),
         aside.string(), std::strerror(errno));
}

// Trusts the checkpoint's flag if it has one, otherwise calls is_finite. REQUIRES: has_good_files.
bool is_known_finite(const Checkpoint& checkpoint, const DamageReport& report) {
  const Manifest manifest = read_manifest(checkpoint.path);
  const auto flag = manifest.metadata.find(std::string(kFiniteFlag));
  const bool says_so = flag != manifest.metadata.end() && flag->second == ManifestValue(int64_t{1});
  return says_so || is_finite(checkpoint, report);
}

std::string with_unit(uint64_t bytes) {
  return fmt::format("{:.2f} MB ({} bytes)", static_cast<double>(bytes) / 1e6, bytes);
}

}  // namespace

std::vector<Checkpoint> list_checkpoints(const fs::path& folder) {
  std::vector<Checkpoint> out;
  for (const fs::path& path : subfolders(folder))
    if (const std::optional<int64_t> step = parse_step_name(path.filename().string()))
      out.push_back({*step, path});
  std::ranges::sort(out, std::greater<>(), &Checkpoint::step);
  return out;
}

std::optional<Checkpoint> best_checkpoint(const fs::path& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(folder / kBestName, error);
  if (error) return std::nullopt;
  const std::optional<int64_t> step = parse_step_name(target.native());
  if (!step || fs::symlink_status(folder / target, error).type() != fs::file_type::directory)
    return std::nullopt;
  return Checkpoint{*step, folder / target};
}

namespace {

// Adds a problem to an empty list if the folder's name contradicts the step at which it was saved.
std::vector<ManifestProblem> with_name_checked(const fs::path& checkpoint,
                                               std::vector<ManifestProblem> problems) {
  if (!problems.empty()) return problems;
  std::error_code error;
  const fs::path real = fs::canonical(checkpoint, error);
  const std::optional<int64_t> named = parse_step_name(real.filename().string());
  const ManifestMetadata metadata = read_manifest(checkpoint).metadata;
  const auto saved = metadata.find("step");
  const int64_t* step = saved == metadata.end() ? nullptr : std::get_if<int64_t>(&saved->second);
  if (named && step && *step != *named)
    problems.push_back(
        {std::string(kManifestName),
         fmt::format("was saved at step {}, which the folder's name {} contradicts: rename the "
                     "folder to {}",
                     *step, step_name(*named), step_name(*step))});
  return problems;
}

}  // namespace

std::vector<ManifestProblem> verify_checkpoint(const fs::path& checkpoint) {
  return with_name_checked(checkpoint, verify_manifest(checkpoint));
}

std::vector<ManifestProblem> verify_checkpoint_files(const fs::path& checkpoint,
                                                     std::span<const std::string_view> read) {
  return with_name_checked(checkpoint, verify_manifest_of(checkpoint, read));
}

void require_known_format(const fs::path& checkpoint) {
  if (newer_format(checkpoint)) read_manifest(checkpoint);  // throws an error that names the format
}

void require_known_formats(const fs::path& folder) {
  for (const Checkpoint& checkpoint : list_checkpoints(folder)) require_known_format(checkpoint.path);
}

std::optional<Checkpoint> newest_usable_checkpoint(const fs::path& folder, const DamageReport& report,
                                                   std::span<const std::string_view> read) {
  for (const Checkpoint& checkpoint : list_checkpoints(folder)) {
    require_known_format(checkpoint.path);
    if (is_good(checkpoint, verify_checkpoint_files(checkpoint.path, read), report)) return checkpoint;
  }
  return std::nullopt;
}

std::optional<Checkpoint> newest_healthy_checkpoint(const fs::path& folder, const DamageReport& report,
                                                    int64_t before_step) {
  for (const Checkpoint& checkpoint : list_checkpoints(folder)) {
    require_known_format(checkpoint.path);
    if (checkpoint.step < before_step && has_good_files(checkpoint, report) && is_finite(checkpoint, report))
      return checkpoint;
  }
  return std::nullopt;
}

CheckpointStore::CheckpointStore(const fs::path& folder) : folder_(folder) {
  require_known_formats(folder_);
  make_folders(folder_);
  remove_stale(folder_);
}

CheckpointStore::~CheckpointStore() { abandon(); }

void CheckpointStore::require_space(uint64_t bytes) const {
  struct statvfs info {};
  if (::statvfs(folder_.c_str(), &info) != 0)
    fail(ErrorKind::kDisk, "{}: the free space cannot be read: {}", folder_.string(), std::strerror(errno));
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (bytes > free_bytes)
    fail(ErrorKind::kDisk,
         "{}: a checkpoint needs {} and {} are free; free some space or keep fewer checkpoints",
         folder_.string(), with_unit(bytes), with_unit(free_bytes));
}

fs::path CheckpointStore::begin(int64_t step) {
  INGOT_CHECK(step >= 0, "CheckpointStore::begin: step must be at least 0, got {}", step);
  abandon();
  const fs::path path = make_unfinished(folder_, step);
  unfinished_ = Unfinished{step, path, lock_folder(path)};
  return path;
}

fs::path CheckpointStore::commit(const ManifestMetadata& metadata,
                                 const std::map<std::string, uint64_t>& known_hashes) {
  INGOT_CHECK(unfinished_.has_value(), "CheckpointStore::commit: no checkpoint was begun");
  const fs::path from = unfinished_->path, to = folder_ / step_name(unfinished_->step);
  ManifestMetadata complete = metadata;
  complete["step"] = unfinished_->step;
  const Manifest manifest = write_manifest(from, complete, known_hashes);
  for (const ManifestFile& file : manifest.files) sync_file(from / file.name);
  sync_folder(from);

  require_known_format(to);
  std::error_code error;
  if (fs::exists(fs::symlink_status(to, error)) && !is_own(to)) set_aside(to);
  const bool has_old = rename_into_place(from, to);
  if (unfinished_->lock_fd >= 0) ::close(unfinished_->lock_fd);
  unfinished_.reset();
  sync_folder(folder_);
  // An old folder that cannot be removed is a tmp.*; it is never read.
  if (has_old) fs::remove_all(from, error);
  return to;
}

void CheckpointStore::abandon() noexcept {
  if (!unfinished_) return;
  std::error_code error;
  fs::remove_all(unfinished_->path, error);
  if (unfinished_->lock_fd >= 0) ::close(unfinished_->lock_fd);
  unfinished_.reset();
}

bool CheckpointStore::is_good(int64_t step, const DamageReport& report) const {
  return has_good_files({step, folder_ / step_name(step)}, report);
}

void CheckpointStore::set_best(int64_t step) {
  const fs::path best = folder_ / kBestName, fresh = folder_ / kNewBestName;
  const std::string target = step_name(step);
  std::error_code error;
  if (fs::symlink_status(folder_ / target, error).type() != fs::file_type::directory)
    fail(ErrorKind::kDisk, "{}: there is no such checkpoint, so it cannot become the best one",
         (folder_ / target).string());
  if (!is_link(best) && fs::exists(best, error))
    fail(ErrorKind::kDisk,
         "{}: is not the link that names the best checkpoint; move it away, so that the link can be made",
         best.string());
  if (fs::read_symlink(best, error) == target) return;
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0 || ::rename(fresh.c_str(), best.c_str()) != 0) {
    const int cause = errno;
    ::unlink(fresh.c_str());
    fail(ErrorKind::kDisk, "{}: the link to {} cannot be made: {}", best.string(), target,
         std::strerror(cause));
  }
  sync_folder(folder_);
}

void CheckpointStore::clear_best() {
  const fs::path best = folder_ / kBestName;
  if (!is_link(best)) return;
  if (::unlink(best.c_str()) != 0)
    fail(ErrorKind::kDisk, "{}: cannot be removed: {}", best.string(), std::strerror(errno));
  sync_folder(folder_);
}

int CheckpointStore::prune(int keep, const DamageReport& report) {
  std::vector<Checkpoint> all = list();
  std::erase_if(all, [](const Checkpoint& checkpoint) { return !is_own(checkpoint.path); });
  const size_t kept = static_cast<size_t>(std::max(keep, 1));
  if (all.size() <= kept || !has_good_files(all.front(), report) || !is_known_finite(all.front(), report))
    return 0;
  const std::optional<Checkpoint> best = best_checkpoint(folder_);
  int removed = 0;
  for (size_t i = kept; i < all.size(); ++i) {
    if (best && best->step == all[i].step) continue;
    const fs::path aside = make_unfinished(folder_, all[i].step);
    if (::rename(all[i].path.c_str(), aside.c_str()) != 0) {
      const int error = errno;
      ::rmdir(aside.c_str());
      fail(ErrorKind::kDisk, "{}: an old checkpoint cannot be removed: {}", all[i].path.string(),
           std::strerror(error));
    }
    sync_folder(folder_);
    std::error_code error;  // what remains is a tmp.*, which the next start removes
    fs::remove_all(aside, error);
    ++removed;
  }
  return removed;
}

}  // namespace ingot
