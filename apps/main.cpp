// The `ingot` program. Exit codes: 0 done, 75 interrupted, otherwise as in ingot/core/error.h.
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/build_info.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/ranks.h"
#include "ingot/console/colour.h"
#include "ingot/core/error.h"
#include "ingot/core/process/shrunken_file.h"
#include "ingot/core/process/stop_signals.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

int refuse(const char* message, ErrorKind kind) {
  let_rank_zero_report_first();
  std::fflush(stdout);
  const std::string label = wants_colour(isatty(STDERR_FILENO)) ? painted("ingot:", Colour::kRed) : "ingot:";
  fmt::print(stderr, "{} {}\n", label, visible_text(message));
  return exit_code(kind);
}

// Returns the limit of a resource as text; "" if there is none.
std::string limit_of(int resource) {
  rlimit most{};
  const bool is_limited =
      getrlimit(static_cast<__rlimit_resource_t>(resource), &most) == 0 && most.rlim_cur != RLIM_INFINITY;
  return is_limited ? fmt::format("{}", most.rlim_cur) : "";
}

std::string out_of_memory() {
  if (const std::string bytes = limit_of(RLIMIT_AS); !bytes.empty())
    return fmt::format("out of memory: ulimit -v limits this process to {} bytes of addresses; raise it",
                       bytes);
  return "out of memory: lower train.batch_size, model.context or model.width";
}

std::string system_refusal(const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again) return error.what();
  const std::string threads = limit_of(RLIMIT_NPROC), addresses = limit_of(RLIMIT_AS);
  std::string limits = "pids.max of a control group";
  if (!threads.empty()) limits += fmt::format(", ulimit -u ({} processes and threads of this user)", threads);
  if (!addresses.empty()) limits += fmt::format(", ulimit -v ({} bytes of addresses)", addresses);
  return fmt::format("the system starts no further thread ({}); raise the limit, which may be {}",
                     error.what(), limits);
}

int run(int argc, char** argv) {
  CommandLine line("ingot", "Ingot trains language models from scratch", "ingot " + program_build().text());
  Command& app = line.root();
  add_train_command(app, std::vector<std::string>(argv, argv + argc));
  add_launch_command(app);
  add_eval_command(app);
  add_generate_command(app);
  add_chat_command(app);
  add_export_command(app);
  add_tokenizer_command(app);
  add_bench_command(app);
  add_data_command(app);
  add_plan_command(app);
  add_sweep_command(app);
  add_lr_range_command(app);
  add_compare_command(app);
  add_schedule_command(app);
  add_status_command(app);
  add_serve_command(app);
  add_api_command(app);
  add_watch_command(app);
  add_export_run_command(app);
  add_doctor_command(app);
  add_completion_command(app, line);
  add_man_command(app, line, program_build().version);
  return line.run(argc, argv);
}

}  // namespace

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

}  // namespace ingot

namespace {

// The handling of these signals with which the program was started. UCX, which Open MPI 5 loads, replaces
// both when it is loaded.
struct sigaction hangup, bus_error;

// A thread of libgomp that waits for another one spins for milliseconds before it sleeps. On a machine with
// other work the other one may not run, and the spinning takes the time that it needs. Ten thousand turns are
// a fraction of a millisecond, longer than any wait of an idle machine (docs/benchmarks/busy.md). libgomp
// reads the limit from the environment before main(), so the program starts itself again with it, once.
[[maybe_unused]] void limit_spinning(char** argv, char** environment) {
  static std::array<char*, 4096> extended;
  size_t n = 0;
  for (; environment[n]; ++n) {
    for (const std::string_view name : {"GOMP_SPINCOUNT=", "OMP_WAIT_POLICY="})
      if (std::string_view(environment[n]).starts_with(name)) return;
    if (n + 2 >= extended.size()) return;
    extended[n] = environment[n];
  }
  static char limit[] = "GOMP_SPINCOUNT=10000";
  extended[n] = limit;
  std::array<char, PATH_MAX> program{};  // /proc/self/exe itself would name the process "exe"
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) > 0)
    ::execve(program.data(), argv, extended.data());
}

// Called before the constructors of the shared libraries run: until StopSignals exists, a signal would end
// the program.
void before_libraries(int argc, char** argv, [[maybe_unused]] char** environment) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "train" || command == "launch") ingot::block_stop_signals();
  ::sigaction(SIGHUP, nullptr, &hangup);
  ::sigaction(SIGBUS, nullptr, &bus_error);
#if defined(INGOT_WITH_OPENMP) && !defined(INGOT_AS_SHARED_OBJECT)
  limit_spinning(argv, environment);
#endif
}

#ifndef INGOT_AS_SHARED_OBJECT  // A shared object cannot run code so early.
[[gnu::used, gnu::section(".preinit_array")]] void (*const kBeforeLibraries)(int, char**,
                                                                             char**) = before_libraries;
#endif

}  // namespace

int main(int argc, char** argv) {
  using ingot::ErrorKind;
#ifdef INGOT_AS_SHARED_OBJECT
  before_libraries(argc, argv, nullptr);
#endif
  ::sigaction(SIGHUP, &hangup, nullptr);
  ::sigaction(SIGBUS, &bus_error, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);  // A write beyond the limit of file sizes then fails as on a full disk.
  ingot::explain_shrunken_files();
  ingot::prepare_ranks();
  try {
    ingot::use_machine_threads();
    return ingot::run(argc, argv);
  } catch (const ingot::Error& error) {
    return ingot::refuse(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    return ingot::refuse(ingot::out_of_memory().c_str(), ErrorKind::kMemory);
  } catch (const std::system_error& error) {
    return ingot::refuse(ingot::system_refusal(error).c_str(), ErrorKind::kInternal);
  } catch (const std::exception& error) {
    return ingot::refuse(error.what(), ErrorKind::kInternal);
  }
}
