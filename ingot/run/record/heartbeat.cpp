#include "ingot/run/record/heartbeat.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/run/record/utc_time.h"

namespace ingot {
namespace {

using nlohmann::json;

constexpr auto kPause = std::chrono::milliseconds(50);
constexpr size_t kBytes = 512;  // fixed, so that a beat overwrites the previous one completely

const char* name(TimeLimit::Phase phase) {
  constexpr std::array<const char*, TimeLimit::kPhases> kNames = {"start",    "step",   "evaluation",
                                                                  "sampling", "saving", "end"};
  return kNames[static_cast<size_t>(phase)];
}

// Opens a plain file for writing; returns -1 for anything else, because a link or a FIFO is not the run's.
int open_plain(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  struct stat info {};
  if (fd < 0 || (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
  ::close(fd);
  return -1;
}

std::string text(const HeartbeatSign& sign) {
  const json json = {{"time", utc_text(sign.time_s)},
                     {"count", sign.count},
                     {"step", sign.step},
                     {"first_step", sign.first_step},
                     {"phase", sign.phase},
                     {"limit_s", sign.limit_s},
                     {"host", sign.process.host},
                     {"boot_id", sign.process.boot_id},
                     {"pid_namespace", sign.process.pid_namespace},
                     {"pid", sign.process.pid},
                     {"start_ticks", sign.process.start_ticks}};
  return json.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Heartbeat::~Heartbeat() {
  if (fd_ >= 0) ::close(fd_);
}

void Heartbeat::beat(int64_t step, TimeLimit::Phase phase, double limit_s) noexcept {
  if (phase != phase_ || std::chrono::steady_clock::now() >= next_) beat_now(step, phase, limit_s);
}

void Heartbeat::beat_now(int64_t step, TimeLimit::Phase phase, double limit_s) noexcept {
  next_ = std::chrono::steady_clock::now() + kPause;
  phase_ = phase;
  if (first_step_ < 0 && phase != TimeLimit::Phase::kStart) first_step_ = step;
  try {
    write({.time_s = unix_now_s(),
           .count = ++count_,
           .step = step,
           .first_step = first_step_,
           .phase = name(phase),
           .limit_s = limit_s,
           .process = process_});
  } catch (...) {  // out of memory for a line of text; the step will report it
  }
}

void Heartbeat::write(const HeartbeatSign& sign) {
  if (fd_ < 0) fd_ = open_plain(path_);
  std::string line = text(sign);
  if (fd_ < 0 || line.size() >= kBytes) return;
  line.resize(kBytes - 1, ' ');
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::pwrite(fd_, line.data(), line.size(), 0);
}

std::optional<HeartbeatSign> parse_heartbeat(const std::string& text) {
  if (text.size() > 2 * kBytes) return std::nullopt;
  try {
    const json sign = json::parse(text);
    if (!sign.is_object()) return std::nullopt;
    const auto text_at = [&](const char* key) { return visible_line(sign.value(key, "")); };
    const auto whole_at = [&](const char* key, int64_t otherwise) {
      const auto found = sign.find(key);
      return found != sign.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
    };
    const auto time = parse_utc(text_at("time"));
    if (!time) return std::nullopt;
    // Runs of earlier versions have written the time and the step only.
    return HeartbeatSign{.time_s = *time,
                         .count = whole_at("count", 0),
                         .step = whole_at("step", 0),
                         .first_step = whole_at("first_step", -1),
                         .phase = text_at("phase"),
                         .limit_s = sign.value("limit_s", 0.0),
                         .process = {.host = text_at("host"),
                                     .boot_id = text_at("boot_id"),
                                     .pid_namespace = text_at("pid_namespace"),
                                     .pid = whole_at("pid", 0),
                                     .start_ticks = static_cast<uint64_t>(whole_at("start_ticks", 0))}};
  } catch (const json::exception&) {  // a beat is being written, or the file belongs to another program
    return std::nullopt;
  }
}

std::optional<HeartbeatSign> read_heartbeat(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "heartbeat.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
    return parse_heartbeat(read_file(path));
  } catch (const Error&) {  // it vanished
    return std::nullopt;
  }
}

}  // namespace ingot
