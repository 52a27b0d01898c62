// The classes and functions behind the Python module, without Python: one process, one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/config/run_plan.h"
#include "ingot/infer/generate.h"
#include "ingot/run/data/run_data.h"
#include "ingot/run/run.h"

namespace ingot {

// source: a preset or a TOML file; data: as --data; settings: "key=value", as --set; resumed_config:
// config.toml of a run that is resumed.
RunConfig python_config(const std::string& source, const std::vector<std::string>& data,
                        const std::vector<std::string>& settings,
                        const std::optional<std::filesystem::path>& resumed_config = std::nullopt);

struct PythonStep {
  int64_t step = 0;  // 1 for the first one
  StepResult result;
  double lr = 0;
  double seconds = 0;
};

// A trainer with its data. The steps are those of `ingot train` with the same configuration.
class PythonTrainer {
 public:
  explicit PythonTrainer(const RunConfig& config);

  // Computes loss and gradients of the next step. REQUIRES: the gradients before it were used or discarded.
  PythonStep backward();
  // Makes the update of the gradients that backward() has computed.
  void update();
  // Zeroes them instead. The next backward() reads the next batch.
  void discard();
  // backward() and update().
  PythonStep step();

  EvalResult evaluate(int64_t max_tokens);
  std::string generate(const std::string& prompt, int64_t tokens, const SampleConfig& config, uint64_t seed);

  int64_t steps_done() const { return trainer_.state().steps_done; }
  bool is_finished() const;
  const RunConfig& config() const { return config_; }
  const std::string& warning() const { return warning_; }  // about how it starts; "" if there is none
  // Throws a kUsage error for weights without f32 masters, and on a device.
  TrainingStore& params();
  // Called after the masters were written.
  void weights_changed();

 private:
  RunPosition position() const;
  void use_threads() const;

  RunData data_;
  RunConfig config_;
  Trainer trainer_;
  Sampler sampler_;
  Loader loader_;
  RunPlan plan_;
  int threads_ = 1;
  std::string warning_;
  std::unique_ptr<Generator> generator_;  // made by the first generate()
  std::optional<StepResult> pending_;     // of the gradients that were neither used nor discarded
};

// Trains into a run folder as `ingot train` does. say: called with every line that the run reports, on the
// calling thread.
TrainOutcome python_train(const RunConfig& config, const std::string& out, bool is_resume,
                          const std::atomic<bool>& is_told_to_end,
                          const std::function<void(std::string_view)>& say);

}  // namespace ingot
