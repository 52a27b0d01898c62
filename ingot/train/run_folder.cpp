#include "ingot/train/run_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/train/config_toml.h"
#include "ingot/train/machine.h"

namespace ingot {
namespace {

constexpr const char* kLockName = ".lock";

// Opens and locks the file; leaves this process's id in it for the message of the next.
int lock_file(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) fail(ErrorKind::kDisk, "cannot write {}: {}", path.string(), std::strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    const bool is_known = read(fd, owner, sizeof owner - 1) > 0;
    close(fd);
    fail(ErrorKind::kUsage,
         "another process{} is writing to the run folder {}; wait for it or choose another --out",
         is_known ? " (" + std::string(owner) + ")" : "", path.parent_path().string());
  }
  const std::string owner = fmt::format("pid {}", getpid());
  // The id is a courtesy: a full disk must not keep a run from resuming.
  if (ftruncate(fd, 0) == 0) [[maybe_unused]]
    const ssize_t written = write(fd, owner.data(), owner.size());
  return fd;
}

bool holds_files(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename() != kLockName) return true;
  return false;
}

nlohmann::ordered_json number_or_null(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& folder, bool is_resume) : folder_(folder), run_(folder) {
  std::error_code error;
  if (is_resume && !std::filesystem::exists(config(), error))
    fail(ErrorKind::kUsage, "{} holds no run to resume (no config.toml); start one without --resume",
         folder.string());
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error))
    fail(ErrorKind::kUsage, "the run folder {} is a file; choose another --out", folder.string());
  make_folders(folder);
  lock_ = lock_file(folder / kLockName);
  if (!is_resume && holds_files(folder)) {
    close(lock_);
    fail(ErrorKind::kUsage, "the run folder {} is not empty: go on with --resume, or choose another --out",
         folder.string());
  }
  make_folders(samples());
  make_folders(checkpoints());
}

RunFolder::RunFolder(std::filesystem::path folder, std::filesystem::path run)
    : folder_(std::move(folder)), run_(std::move(run)) {
  make_folders(folder_);
  lock_ = lock_file(folder_ / kLockName);
}

std::unique_ptr<RunFolder> RunFolder::of_rank(const std::filesystem::path& folder, int rank) {
  return std::unique_ptr<RunFolder>(new RunFolder(folder / "ranks" / std::to_string(rank), folder));
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) close(lock_);
}

void RunFolder::write_config(const RunConfig& run) const {
  write_file(config(), config_toml(run, ConfigDocs::kComments));
}

void RunFolder::write_summary(const RunSummary& run) const {
  const MachineInfo machine = machine_info();
  nlohmann::ordered_json json;
  json["machine"] = {{"cpu", machine.cpu},
                     {"cores", machine.cores},
                     {"instructions", machine.instructions},
                     {"memory_bytes", machine.memory_bytes},
                     {"system", machine.system},
                     {"compiler", machine.compiler}};
  json["status"] = run.status;
  json["steps"] = run.steps;
  json["tokens"] = run.tokens;
  json["val_loss"] = number_or_null(run.val_loss);
  json["val_bits_per_byte"] = number_or_null(run.val_bits_per_byte);
  json["wall_s"] = number_or_null(run.wall_s);
  json["train_s"] = number_or_null(run.train_s);
  json["peak_rss_bytes"] = run.peak_rss_bytes;
  json["non_finite_gradients"] = run.non_finite_gradients;
  json["config_hash"] = run.config_hash;
  write_file(summary(), json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string default_run_name(const std::string& name, std::time_t now) {
  const std::string stem = std::filesystem::path(name).stem().string();
  std::tm local{};
  localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", stem.empty() ? "run" : stem, time);
}

}  // namespace ingot
