#include "ingot/core/process/signal_stack.h"

#include <csignal>
#include <cstddef>
#include <memory>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

constexpr size_t kBytes = size_t{64} << 10;  // 11 KB for a frame with AMX tiles, the rest for the handler

class SignalStack {
 public:
  SignalStack() {
    stack_t now{};
    if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;  // already set
    memory_ = std::make_unique<std::byte[]>(kBytes);
    const stack_t stack{.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = kBytes};
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    if (!memory_) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void use_signal_stack() { static thread_local const SignalStack stack; }

void use_signal_stacks_in_pool() {
  parallel_ranges(num_threads(), 1, [](int, int64_t, int64_t) { use_signal_stack(); });
}

}  // namespace ingot
