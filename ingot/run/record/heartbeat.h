// Heartbeat is the sign of life that a rank's training thread leaves in its folder, in heartbeat.json. It
// names the process and what the rank does, and states how long the next beat may take. A supervisor
// (`ingot launch`) ends a job whose heartbeat is older than this limit; `ingot status` shows the heartbeat's
// age.
//
// Only the training thread beats, because a helper thread would continue to beat while the training thread
// hangs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ingot/core/time_limit.h"
#include "ingot/run/record/process_identity.h"

namespace ingot {

// HeartbeatSign is the content of heartbeat.json.
struct HeartbeatSign {
  int64_t time_s = 0;       // seconds since 1970
  int64_t count = 0;        // beats of this process so far
  int64_t step = 0;         // finished steps
  int64_t first_step = -1;  // finished steps when this process began to make steps; -1 before
  std::string phase;        // "start", "step", "evaluation", "sampling", "saving", "end"
  double limit_s = 0;       // how long the next beat may take
  ProcessIdentity process;
};

// Returns nullopt if the text is not a complete heartbeat.
std::optional<HeartbeatSign> parse_heartbeat(const std::string& text);
// Returns nullopt if the file does not exist, is not a plain file or is not a complete heartbeat.
std::optional<HeartbeatSign> read_heartbeat(const std::filesystem::path& folder);

class Heartbeat {
 public:
  explicit Heartbeat(std::filesystem::path folder) : path_(std::move(folder) / "heartbeat.json") {}
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Rewrites the file in place, without fsync, if the phase is a new one or 50 ms have passed since the
  // last beat. Ignores errors: a run does not end because its sign of life cannot be written.
  void beat(int64_t step, TimeLimit::Phase phase, double limit_s) noexcept;
  // Does so at once: the last sign of a run that fails has its last step.
  void beat_now(int64_t step, TimeLimit::Phase phase, double limit_s) noexcept;

 private:
  void write(const HeartbeatSign& sign);

  std::filesystem::path path_;
  ProcessIdentity process_ = this_process();
  std::chrono::steady_clock::time_point next_ = {};
  std::optional<TimeLimit::Phase> phase_;
  int64_t count_ = 0, first_step_ = -1;
  int fd_ = -1;
};

}  // namespace ingot
