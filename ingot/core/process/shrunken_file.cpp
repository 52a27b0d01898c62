#include "ingot/core/process/shrunken_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {

// A node of a list that a signal handler may walk at any moment, so nodes are reused but never freed.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, end{0};  // end = 0: not in use
  std::string label;                        // changes only while the node is not in use
  MappedRange* next = nullptr;              // in the list of all nodes
  MappedRange* next_unused = nullptr;
};

namespace {

// A signal handler has no arguments, so its data is global.
std::atomic<MappedRange*> all_ranges{nullptr};
static_assert(std::atomic<MappedRange*>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free);

struct Unused {
  std::mutex mutex;
  MappedRange* first = nullptr;
};
Unused& unused() {
  static Unused& list = *new Unused;  // never destroyed, so that it outlives every mapped file
  return list;
}

// Async-signal-safe.
void say(std::string_view text) { [[maybe_unused]] const ssize_t n = ::write(2, text.data(), text.size()); }

std::array<char, 4096> unfinished{};  // a folder; empty text: none

// Removes the folder and its files. Async-signal-safe, so it reads the folder with the system call.
void remove_unfinished() {
  const int folder = unfinished[0] ? ::open(unfinished.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (folder < 0) return;
  alignas(dirent64) std::array<char, 4096> entries;
  for (long n; (n = ::syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0;)
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      ::unlinkat(folder, entry->d_name, 0);  // refuses "." and ".."
      at += entry->d_reclen;
    }
  ::rmdir(unfinished.data());
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool is_fault = info->si_code > 0;  // the kernel raised it, not another process
  for (const MappedRange* r = all_ranges.load(); is_fault && r; r = r->next) {
    if (address < r->begin.load() || address >= r->end.load()) continue;
    say("ingot: ");
    say(r->label);
    say(": a mapped file shrank, or its disk failed, while it was read; leave files alone that a run "
        "reads\n");
    remove_unfinished();
    ::_exit(exit_code(ErrorKind::kData));
  }
  if (!is_fault) ::raise(signal);  // SA_RESETHAND restored the default; a fault occurs again
}

}  // namespace

MappedRange* add_mapped_range(const void* begin, size_t size_bytes, const std::string& path) noexcept {
  try {
    const std::lock_guard lock(unused().mutex);
    MappedRange* range = unused().first;
    if (range)
      unused().first = range->next_unused;
    else
      range = new MappedRange;
    const bool is_new = range->begin.load() == 0;
    range->label = visible_text(path);
    range->begin.store(reinterpret_cast<uintptr_t>(begin));
    range->end.store(reinterpret_cast<uintptr_t>(begin) + size_bytes);
    if (is_new) {
      range->next = all_ranges.load();
      all_ranges.store(range);
    }
    return range;
  } catch (...) {
    return nullptr;  // a SIGBUS in this file has its default effect
  }
}

void remove_mapped_range(MappedRange* range) noexcept {
  if (!range) return;
  const std::lock_guard lock(unused().mutex);
  range->end.store(0);  // comes first: no address lies in [begin, 0)
  range->next_unused = unused().first;
  unused().first = range;
}

void remove_if_a_file_shrinks(const std::string& folder) {
  const std::string fitting = folder.size() < unfinished.size() ? folder : "";
  unfinished[0] = 0;
  std::copy(fitting.begin(), fitting.end(), unfinished.begin());
  unfinished[fitting.size()] = 0;
}

void explain_shrunken_files() {
  struct sigaction before {};
  if (::sigaction(SIGBUS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  // The handler runs on the thread's alternate stack if it has one, because oneDNN may have moved the
  // stack pointer into the heap (core/process/signal_stack.h).
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace ingot
