// The file system as simulated ranks see it. The files are real ones in a folder of the host; the calls that
// the program makes (file_calls.cpp) pass through here first, where they may fail, and where the simulation
// keeps account of what a power cut would take.
//
// What a power cut leaves: bytes that their writer has flushed (fsync), and in a file with unflushed bytes
// everything outside of them. Every host has a page cache of its own, so that a rank's fsync flushes what
// that rank wrote. Changes of folders (create, rename, remove) become durable in order, at the latest with
// the next fsync of the folder; the seed decides how many later ones a power cut undoes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulated_ranks/planted_bugs.h"
#include "tests/simulated_ranks/scheduler.h"

namespace ingot::simulated {

class SimulatedFiles {
 public:
  // root: the folder that is simulated. aside: a folder outside it, for files that a power cut brings back.
  // called_in: called where a rank makes a file call; it may kill or stop the rank.
  SimulatedFiles(Scheduler& scheduler, uint64_t seed, std::filesystem::path root, std::filesystem::path aside,
                 Bug bug, std::function<void(int rank, const std::string& path)> called_in);

  // Faults. A full disk refuses every byte until the time; statvfs shows it or, as on some network file
  // systems, does not. The next write or flush of a rank fails with EIO.
  void fill_disk(double until_s, bool is_seen);
  void fail_next_write(int rank) { failing_rank_ = rank; }
  bool may_fail() const { return is_full() || failing_rank_; }  // a fault is pending or in progress
  // Closes the descriptors of a killed task, which releases its locks.
  void close_all(const Task& task);
  // Takes what was not durable. REQUIRES: no rank runs.
  void cut_power();
  // Counts the ranks' calls, so that a reader knows whether anything has changed.
  uint64_t calls() const { return calls_; }

  void sleep(double seconds) { scheduler_.pass(seconds); }

  // ---- for file_calls.cpp; `path` is absolute ----
  bool holds(const std::string& path) const { return path.starts_with(root_text_); }
  // Every call begins with this. Returns an errno, or 0.
  enum class Access { kRead, kChange, kWrite, kFlush };
  int enter(const char* call, const std::string& path, Access access);
  bool is_full() const;
  bool shows_full() const { return is_full() && is_full_seen_; }
  void opened(int fd, const std::string& path, bool is_new);
  void closed(int fd) { open_.erase(fd); }
  const std::string* path_of(int fd) const;
  void wrote(int fd, uint64_t offset, uint64_t bytes);
  void cut(int fd, uint64_t bytes);  // ftruncate
  void flushed(int fd);
  void made_folder(const std::string& path);
  // The following are called before the change.
  void will_remove(const std::string& path);
  void will_rename(const std::string& from, const std::string& to, bool exchanges);
  std::string nonce(size_t characters);
  Bug bug() const { return bug_; }

 private:
  struct Open {
    const Task* task;
    std::string path;
    ino_t inode;
  };
  struct Change {
    enum class Kind { kMade, kMadeFolder, kRemoved, kRemovedFolder, kRenamed, kExchanged };
    Kind kind;
    std::string path, to, aside;  // aside: a link to the removed or replaced file; empty if there was none
  };
  struct Unflushed {
    uint64_t begin, end;
  };

  void log(Change change) { changes_.push_back(std::move(change)); }
  std::string put_aside(const std::string& path);
  void undo(const Change& change);
  void tear(const std::string& path, const std::vector<Unflushed>& ranges);

  Scheduler& scheduler_;
  Random random_;
  std::filesystem::path root_, aside_;
  std::string root_text_;
  Bug bug_;
  std::function<void(int, const std::string&)> called_;
  std::map<int, Open> open_;
  std::map<ino_t, std::map<int, std::vector<Unflushed>>> unflushed_;  // by the rank that wrote
  std::vector<Change> changes_;
  size_t durable_ = 0;  // so many changes are durable
  uint64_t calls_ = 0;
  int links_ = 0;
  double full_until_s_ = 0;
  bool is_full_seen_ = false;
  std::optional<int> failing_rank_;
};

// The files of the simulation that runs in this process; null before it starts.
SimulatedFiles*& simulated_files();

// The system's own calls.
int real_close(int fd);
int real_unlink(const char* path);

}  // namespace ingot::simulated
