#include "tests/simulated_ranks/simulated_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace ingot::simulated {
namespace fs = std::filesystem;
namespace {

constexpr double kCall_s = 1e-5, kMaxDelay_s = 4e-4;

std::optional<struct stat> stat_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? std::optional(info) : std::nullopt;
}

}  // namespace

SimulatedFiles*& simulated_files() {
  static SimulatedFiles* files = nullptr;
  return files;
}

SimulatedFiles::SimulatedFiles(Scheduler& scheduler, uint64_t seed, fs::path root, fs::path aside, Bug bug,
                               std::function<void(int, const std::string&)> called_in)
    : scheduler_(scheduler),
      random_(seed),
      root_(std::move(root)),
      aside_(std::move(aside)),
      root_text_(root_.string()),
      bug_(bug),
      called_(std::move(called_in)) {}

void SimulatedFiles::fill_disk(double until_s, bool is_seen) {
  full_until_s_ = until_s;
  is_full_seen_ = is_seen;
}

bool SimulatedFiles::is_full() const { return scheduler_.now_s() < full_until_s_; }

int SimulatedFiles::enter(const char* call, const std::string& path, Access access) {
  const Task& task = *Scheduler::current();
  scheduler_.note(call);
  scheduler_.note(std::string_view(path).substr(std::min(path.size(), root_text_.size())));
  if (task.rank >= 0) {
    ++calls_;
    called_(task.rank, path);
  }
  scheduler_.pass(kCall_s + random_.between(0, kMaxDelay_s));
  if (access == Access::kRead || access == Access::kChange) return 0;
  if (failing_rank_ == task.rank) {
    failing_rank_.reset();
    return EIO;
  }
  return access == Access::kWrite && is_full() ? ENOSPC : 0;
}

void SimulatedFiles::opened(int fd, const std::string& path, bool is_new) {
  struct stat info {};
  ::fstat(fd, &info);
  open_[fd] = {Scheduler::current(), path, info.st_ino};
  if (is_new) {
    unflushed_.erase(info.st_ino);  // of an earlier file
    log({Change::Kind::kMade, path, {}, {}});
  }
}

const std::string* SimulatedFiles::path_of(int fd) const {
  const auto found = open_.find(fd);
  return found == open_.end() ? nullptr : &found->second.path;
}

void SimulatedFiles::wrote(int fd, uint64_t offset, uint64_t bytes) {
  const Open& file = open_.at(fd);
  auto& ranges = unflushed_[file.inode][file.task->rank];
  if (!ranges.empty() && ranges.back().end == offset)
    ranges.back().end += bytes;
  else
    ranges.push_back({offset, offset + bytes});
}

void SimulatedFiles::cut(int fd, uint64_t bytes) {
  const auto found = unflushed_.find(open_.at(fd).inode);
  if (found == unflushed_.end()) return;
  for (auto& [rank, ranges] : found->second) {
    for (Unflushed& range : ranges) range.end = std::min(range.end, bytes);
    std::erase_if(ranges, [](const Unflushed& range) { return range.begin >= range.end; });
  }
}

void SimulatedFiles::flushed(int fd) {
  const Open& file = open_.at(fd);
  struct stat info {};
  ::fstat(fd, &info);
  if (S_ISDIR(info.st_mode)) {
    if (bug_ == Bug::kFolderIsNotFlushed) return;
    // The journal writes everything before the last change of this folder.
    for (size_t i = durable_; i < changes_.size(); ++i) {
      const Change& change = changes_[i];
      for (const std::string& path : {change.path, change.to})
        if (!path.empty() && fs::path(path).parent_path() == file.path) durable_ = i + 1;
    }
    return;
  }
  if (bug_ == Bug::kNoFlushReachesTheDisk) return;
  if (bug_ == Bug::kOthersDoNotFlush && file.task->rank > 0 && file.path.ends_with(".safetensors")) return;
  if (bug_ == Bug::kManifestIsNotFlushed && file.path.ends_with("MANIFEST.json")) return;
  if (const auto found = unflushed_.find(file.inode); found != unflushed_.end())
    found->second.erase(file.task->rank);
}

void SimulatedFiles::made_folder(const std::string& path) { log({Change::Kind::kMadeFolder, path, {}, {}}); }

std::string SimulatedFiles::put_aside(const std::string& path) {
  const auto info = stat_of(path);
  if (!info || !S_ISREG(info->st_mode)) return "";
  std::string link = (aside_ / std::to_string(links_++)).string();
  return ::link(path.c_str(), link.c_str()) == 0 ? link : "";
}

void SimulatedFiles::will_remove(const std::string& path) {
  const auto info = stat_of(path);
  if (!info) return;
  const bool is_folder = S_ISDIR(info->st_mode);
  if (is_folder && !fs::is_empty(path)) return;
  log({is_folder ? Change::Kind::kRemovedFolder : Change::Kind::kRemoved, path, {}, put_aside(path)});
}

void SimulatedFiles::will_rename(const std::string& from, const std::string& to, bool exchanges) {
  if (!stat_of(from) || (exchanges && !stat_of(to))) return;
  log({exchanges ? Change::Kind::kExchanged : Change::Kind::kRenamed, from, to,
       exchanges ? "" : put_aside(to)});
}

std::string SimulatedFiles::nonce(size_t characters) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string text;
  for (size_t i = 0; i < characters; ++i)
    text += kLetters[static_cast<size_t>(random_.below(std::ssize(kLetters)))];
  return text;
}

void SimulatedFiles::close_all(const Task& task) {
  std::erase_if(open_, [&](const auto& file) {
    if (file.second.task != &task) return false;
    real_close(file.first);
    return true;
  });
}

void SimulatedFiles::undo(const Change& change) {
  std::error_code error;
  switch (change.kind) {
    case Change::Kind::kMade:
    case Change::Kind::kMadeFolder:
      fs::remove_all(change.path, error);
      return;
    case Change::Kind::kRemoved:
      if (!change.aside.empty()) fs::rename(change.aside, change.path, error);
      return;
    case Change::Kind::kRemovedFolder:
      fs::create_directory(change.path, error);
      return;
    case Change::Kind::kExchanged:
    case Change::Kind::kRenamed:
      break;
  }
  const std::string middle = change.path + ".exchanged";
  if (change.kind == Change::Kind::kExchanged) {
    fs::rename(change.path, middle, error);
    fs::rename(change.to, change.path, error);
    fs::rename(middle, change.to, error);
    return;
  }
  fs::rename(change.to, change.path, error);
  if (!change.aside.empty()) fs::rename(change.aside, change.to, error);
}

// Unflushed bytes at a file's end may be missing, and others may be zero.
void SimulatedFiles::tear(const std::string& path, const std::vector<Unflushed>& ranges) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) return;
  const auto size = static_cast<uint64_t>(info.st_size);
  for (const Unflushed& range : ranges) {
    const uint64_t end = std::min(range.end, size);
    if (range.begin >= end || random_.chance(0.25)) continue;  // it reached the disk anyway
    const uint64_t from = range.begin + random_.next() % (end - range.begin);
    if (end == size && random_.chance(0.6)) {
      [[maybe_unused]] const int cut = ::ftruncate(fd, static_cast<off_t>(from));
    } else {
      const std::string zeros(end - from, '\0');
      [[maybe_unused]] const ssize_t n = ::pwrite(fd, zeros.data(), zeros.size(), static_cast<off_t>(from));
    }
  }
  real_close(fd);
}

void SimulatedFiles::cut_power() {
  SimulatedFiles* self = std::exchange(simulated_files(), nullptr);  // these calls go to the system
  const size_t last = changes_.size();
  const size_t left =
      durable_ + static_cast<size_t>(random_.below(static_cast<int64_t>(last - durable_) + 1));
  for (size_t i = last; i > left; --i) undo(changes_[i - 1]);
  std::map<ino_t, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root_))
    if (const auto info = stat_of(entry.path().string()); info && S_ISREG(info->st_mode))
      files[info->st_ino] = entry.path().string();
  std::vector<std::pair<std::string, ino_t>> torn;  // in an order that does not depend on the inodes
  for (const auto& [inode, ranks] : unflushed_)
    if (files.contains(inode)) torn.emplace_back(files[inode], inode);
  std::ranges::sort(torn);
  for (const auto& [path, inode] : torn)
    for (const auto& [rank, ranges] : unflushed_[inode]) tear(path, ranges);
  unflushed_.clear();
  changes_.clear();
  durable_ = 0;
  full_until_s_ = 0;
  failing_rank_.reset();
  simulated_files() = self;
}

}  // namespace ingot::simulated
