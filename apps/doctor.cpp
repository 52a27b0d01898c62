// ingot doctor: what this machine has, what Ingot detects of it, and what could be improved.
#include <fmt/core.h>
#include <toml++/toml.h>
#include <xxhash.h>

#include <CLI/Version.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/build_info.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/doctor_cuda.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/core/machine.h"
#include "ingot/core/process/thread_limit.h"
#include "ingot/core/visible_text.h"
#include "ingot/launch/incident_report.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/matmul_signals.h"

namespace ingot {
namespace {

void print_row(const char* name, const std::string& value) { fmt::print("  {:<14} {}\n", name, value); }

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : " ") + item;
  return text.empty() ? "none known" : text;
}

std::string versions() {
  return fmt::format("fmt {}.{}.{}, CLI11 {}, toml++ {}.{}.{}, nlohmann-json {}.{}.{}, xxHash {}.{}.{}",
                     FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100, CLI11_VERSION,
                     TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH, NLOHMANN_JSON_VERSION_MAJOR,
                     NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH, XXH_VERSION_MAJOR,
                     XXH_VERSION_MINOR, XXH_VERSION_RELEASE);
}

// Returns what is missing and how to fix it, in one sentence each.
std::vector<std::string> advice(const MachineInfo& machine, uint64_t disk_bytes) {
  std::vector<std::string> found;
  const auto has = [&](const char* name) {
    return std::find(machine.instructions.begin(), machine.instructions.end(), name) !=
           machine.instructions.end();
  };
  if (std::string(matmul_engine(DType::f32)).find("oneDNN") == std::string::npos)
    found.emplace_back(
        "oneDNN is not built in, products run on Ingot's portable kernel: install libdnnl-dev "
        "and configure again");
  if (products_move_stack_pointer())
    found.push_back(fmt::format(
        "{} moves the stack pointer into the heap during f32 products (fixed in oneDNN 3.11.2): the handler "
        "of a signal would destroy memory. Ingot blocks the signals that end a run, and gives computing "
        "threads "
        "an alternate stack; a profiler must install its handler with SA_ONSTACK",
        matmul_engine(DType::f32)));
  if (!has("avx2")) found.emplace_back("the processor has no AVX2: everything works, slowly");
  if (!has("avx512_bf16") && !has("amx_bf16"))
    found.emplace_back(
        "the processor has no bf16 products (avx512_bf16, amx_bf16): precision.compute = f32 is "
        "the faster choice here");
  constexpr uint64_t kLittle = uint64_t{2} << 30;
  if (machine.memory_free_bytes > 0 && machine.memory_free_bytes < kLittle)
    found.emplace_back("less than 2 GiB of memory is free: lower train.batch_size if a run does not fit");
  if (disk_bytes > 0 && disk_bytes < kLittle)
    found.emplace_back(
        "less than 2 GiB of disk is free here: choose --out on another disk, or lower "
        "checkpoint.keep");
  return found;
}

std::string incidents_of(const std::string& run) {
  if (!std::filesystem::exists(std::filesystem::path(run) / "run.json"))
    fail(ErrorKind::kUsage, "{} holds no run (no run.json); name a run's folder", run);
  const std::string text = incident_summary(read_incidents(run));
  return text.empty() ? "no incidents" : text;
}

// The report in the order in which it is printed.
struct DoctorReport {
  std::vector<std::pair<std::string, std::string>> rows = {};
  std::vector<std::string> notes = {};
};

void print_report(const DoctorReport& report, bool is_json) {
  if (is_json) {
    using nlohmann::ordered_json;
    ordered_json rows = ordered_json::array();
    for (const auto& [name, value] : report.rows) rows.push_back({{"name", name}, {"value", value}});
    const ordered_json json = {{"version", program_build().text()}, {"rows", rows}, {"notes", report.notes}};
    fmt::print("{}\n", json.dump(1, ' ', false, ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print("ingot {}\n", program_build().text());
  for (const auto& [name, value] : report.rows) print_row(name.c_str(), value);
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  if (report.notes.empty()) fmt::print("nothing is missing\n");
}

void doctor(const std::vector<std::string>& runs, bool is_json) {
  DoctorReport report;
  const auto row = [&](const std::string& name, const std::string& value) {
    report.rows.emplace_back(name, value);
  };
  const MachineInfo machine = machine_info();
  const uint64_t disk_bytes = free_disk_bytes("runs");
  row("processor", machine.cpu.empty() ? "unknown" : machine.cpu);
  const ThreadUse& threads = thread_use();
  row("cores", fmt::format("{} usable, {} threads by default: {}", machine.cores, threads.chosen.threads,
                           threads.chosen.source));
  row("instructions", joined(machine.instructions));
  row("memory", fmt::format("{}, {} free", format_bytes(static_cast<double>(machine.memory_bytes)),
                            format_bytes(static_cast<double>(machine.memory_free_bytes))));
  row("disk", fmt::format("{} free in runs/", format_bytes(static_cast<double>(disk_bytes))));
  row("system", machine.system);
  row("compiler", machine.compiler);
  row("products f32", matmul_engine(DType::f32));
  row("products bf16", matmul_engine(DType::bf16));
  row("products f16", matmul_engine(DType::f16));
#ifdef INGOT_WITH_OPENMP
  row("threads", "OpenMP, one pool with the products");
#else
  row("threads", "std::thread");
#endif
  row("libraries", versions());
  const CudaReport cuda = cuda_report();
  for (const auto& [name, value] : cuda.rows) row(name, value);
  for (const std::string& run : runs) row("run", visible_line(run) + ": " + incidents_of(run));
  std::vector<std::string>& notes = report.notes;
  notes = advice(machine, disk_bytes);
  if (const std::string warning = thread_warning(threads); !warning.empty()) notes.push_back(warning);
  notes.insert(notes.end(), cuda.advice.begin(), cuda.advice.end());
  for (const std::string& run : runs)
    for (const std::string& note : incident_advice(read_incidents(run)))
      notes.push_back(visible_line(run) + ": " + note);
  print_report(report, is_json);
}

}  // namespace

void add_doctor_command(Command& app) {
  auto runs = std::make_shared<std::vector<std::string>>();
  Command* command = app.add_subcommand("doctor", "What this machine has, what is missing, and the fix");
  command->add_option("run", *runs, "Run folders whose incidents are examined too")->type_name("DIR");
  auto is_json = std::make_shared<bool>(false);
  command->add_flag("--json", *is_json, "Print one JSON object");
  command->callback([runs, is_json] { doctor(*runs, *is_json); });
}

}  // namespace ingot
