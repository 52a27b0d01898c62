// TimeLimit: how long a rank may wait for another rank before the job ends. The limit is either fixed, or
// ("auto") follows the run: a few times the median step while steps run, and a separate limit for the
// first step and for work that only some ranks do while the others wait.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ingot {

class TimeLimit {
 public:
  // Phase is the part of a run that all ranks are in. kStart includes reading data and checkpoints.
  enum class Phase { kStart, kStep, kEvaluation, kSampling, kSaving, kEnd };
  static constexpr size_t kPhases = 6;

  static constexpr double kShortest_s = 5;  // smallest limit of a step
  static constexpr double kFactor = 5;      // times the median step, or another phase's longest time so far
  static constexpr double kPatient_s =
      600;  // smallest limit of the first step, and of another phase's first time
  static constexpr double kRepeated_s = 60;  // smallest limit of a phase that this process has ended before

  // fixed_s: the limit of every phase. If it is nullopt, the limit depends on the phase.
  explicit TimeLimit(std::optional<double> fixed_s = {})
      : fixed_s_(fixed_s), limit_s_(fixed_s.value_or(kPatient_s)) {}
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // Sets the limit to that of the phase until the next begin(), also after end(). work: the number of
  // micro-batches of a step; a step with twice as many may take twice as long. Only the training thread
  // calls begin() and end().
  void begin(Phase phase, int64_t work = 1);
  // Records how long the phase named by begin() took.
  void end(double seconds);
  Phase phase() const { return phase_; }  // the one last begun, also after its end
  // Returns true if the phase last begun is not a step.
  bool is_paused() const { return phase_ != Phase::kStep; }

  // The current limit. Thread-safe.
  double seconds() const { return limit_s_.load(std::memory_order_relaxed); }
  bool is_fixed() const { return fixed_s_.has_value(); }

 private:
  double median_s() const;  // median step per unit of work; 0 before the first step has ended

  static constexpr size_t kRecent = 31;
  std::optional<double> fixed_s_;
  std::atomic<double> limit_s_;
  Phase phase_ = Phase::kStart;
  int64_t work_ = 1;
  std::array<double, kRecent> steps_s_{};  // the most recent steps, per unit of work
  size_t steps_ = 0;
  std::array<double, kPhases> longest_s_{};
};

}  // namespace ingot
