#include "ingot/core/shrunken_file.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {

// A node of a list that a signal handler may walk at any moment: nodes are taken again, but never freed.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, end{0};  // end = 0: not in use
  std::string label;                        // changes only while the node is not in use
  MappedRange* next = nullptr;              // in the list of all nodes
  MappedRange* next_unused = nullptr;
};

namespace {

// A handler has no arguments: what it needs can only be reached by globals.
std::atomic<MappedRange*> all_ranges{nullptr};
static_assert(std::atomic<MappedRange*>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free);

struct Unused {
  std::mutex mutex;
  MappedRange* first = nullptr;
};
Unused& unused() {
  static Unused& list = *new Unused;  // outlives every mapped file
  return list;
}

// Only calls that a handler may make.
void say(std::string_view text) { [[maybe_unused]] const ssize_t n = ::write(2, text.data(), text.size()); }

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool is_fault = info->si_code > 0;  // not sent by a process
  for (const MappedRange* r = all_ranges.load(); is_fault && r; r = r->next) {
    if (address < r->begin.load() || address >= r->end.load()) continue;
    say("ingot: ");
    say(r->label);
    say(": a mapped file shrank, or its disk failed, while it was read; leave files alone that a run "
        "reads\n");
    ::_exit(exit_code(ErrorKind::kData));
  }
  if (!is_fault) ::raise(signal);  // SA_RESETHAND: now the default; a fault repeats itself
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
    return nullptr;  // a SIGBUS in this file stays without an explanation
  }
}

void remove_mapped_range(MappedRange* range) noexcept {
  if (!range) return;
  const std::lock_guard lock(unused().mutex);
  range->end.store(0);  // first: no address lies in [begin, 0)
  range->next_unused = unused().first;
  unused().first = range;
}

void explain_shrunken_files() {
  struct sigaction before {};
  if (::sigaction(SIGBUS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  // On the thread's alternate stack where it has one: a product may have moved the stack pointer into the
  // heap.
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace ingot
