// TimeLimit: for how long a rank may wait for another before the job ends. Either a fixed time, or ("auto")
// one that follows what the run does: a few times the median step while steps run, and a limit of its own for
// the first step and for work that only some ranks do while the others wait.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ingot {

class TimeLimit {
 public:
  // What the ranks do together. The start includes reading data and checkpoints.
  enum class Phase { kStart, kStep, kEvaluation, kSampling, kSaving, kEnd };
  static constexpr size_t kPhases = 6;

  static constexpr double kShortest_s = 5;   // the limit of a step is never below
  static constexpr double kFactor = 5;       // times the median step, or the longest time of another phase
  static constexpr double kPatient_s = 600;  // the least for a phase that is no step, and for the first step

  // fixed_s: the limit of every phase; absent: by phase.
  explicit TimeLimit(std::optional<double> fixed_s = {})
      : fixed_s_(fixed_s), limit_s_(fixed_s.value_or(kPatient_s)) {}
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // From here on the limit is that of the phase, until another one begins: also between its end and the next
  // one's beginning. work: of a step, its micro-batches; a step of twice as many may take twice as long.
  // Called by the thread that trains, like end().
  void begin(Phase phase, int64_t work = 1);
  // The phase that begin() named has taken so long.
  void end(double seconds);
  // True once a phase other than a step has begun and no step after it.
  bool is_paused() const { return phase_ != Phase::kStep; }

  // Any thread.
  double seconds() const { return limit_s_.load(std::memory_order_relaxed); }
  bool is_fixed() const { return fixed_s_.has_value(); }

 private:
  double median_s() const;  // a step's time per unit of work; 0 before the first

  static constexpr size_t kRecent = 31;
  std::optional<double> fixed_s_;
  std::atomic<double> limit_s_;
  Phase phase_ = Phase::kStart;
  int64_t work_ = 1;
  std::array<double, kRecent> steps_s_{};  // the last steps, per unit of work
  size_t steps_ = 0;
  std::array<double, kPhases> longest_s_{};
};

}  // namespace ingot
