// The classes and functions behind the Python module, without Python: one process, one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/config/run_plan.h"
#include "ingot/data/given_batches.h"
#include "ingot/infer/generate.h"
#include "ingot/nn/custom_loss.h"
#include "ingot/run/data/run_data.h"
#include "ingot/run/resume_check.h"
#include "ingot/run/run.h"
#include "ingot/train/guard.h"

namespace ingot {

// The source of a trainer's batches: the texts of data.train, or rows that the caller gives to every step.
enum class PythonData { kText, kRows };

// source: a preset, a TOML file, or "" for the defaults; data: as --data; settings: "key=value", as --set;
// resumed_config: config.toml of a run that is resumed.
RunConfig python_config(const std::string& source, const std::vector<std::string>& data,
                        const std::vector<std::string>& settings,
                        const std::optional<std::filesystem::path>& resumed_config = std::nullopt,
                        PythonData kind = PythonData::kText);

// Returns the checkpoint that `folder` is, or the newest healthy one of a run's folder or of its checkpoints/.
std::filesystem::path python_checkpoint(const std::filesystem::path& folder);

// Rows of ids, row by row.
struct PythonRows {
  int64_t rows = 0, columns = 0;
  std::span<const int32_t> tokens, targets;  // rows * columns each
};

// The choices of a step's caller.
struct PythonOrder {
  std::optional<PythonRows> batch = {};  // nullopt: the next batch of the text
  std::optional<double> lr = {};         // nullopt: the schedule's
  CustomLoss::Function loss = {};        // empty: cross-entropy
};

struct PythonStep {
  int64_t step = 0;  // 1 for the first one
  StepResult result;
  double lr = 0;
  double seconds = 0;
};

// A trainer with its data. The steps are those of `ingot train` with the same configuration.
class PythonTrainer {
 public:
  // checkpoint: of the run that is continued; nullopt for a new one. Throws the errors of ResumeCheck.
  PythonTrainer(const RunConfig& config, PythonData kind,
                const std::optional<std::filesystem::path>& checkpoint, DataMismatch data_mismatch);

  // A Turn is held by the thread that uses the trainer; others wait. Throws a kUsage error on a thread that has
  // one already: that of a loss function.
  class Turn {
   public:
    explicit Turn(PythonTrainer& trainer);
    ~Turn() { trainer_.user_ = std::thread::id{}; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    PythonTrainer& trainer_;
    std::unique_lock<std::mutex> lock_;
  };

  // Computes loss and gradients of the next step. REQUIRES: the gradients before it were used or discarded. If the
  // loss function throws, the trainer is as before.
  PythonStep backward(const PythonOrder& order);
  // Makes the update of the gradients that backward() has computed.
  void update();
  // Zeroes them instead. The next backward() reads the next batch.
  void discard();
  // backward() and update().
  PythonStep step(const PythonOrder& order);

  // Returns the sums of the losses without gradients, dropout or moving averages.
  LossSums loss(const PythonRows& rows);
  // Writes the capped logits (rows, columns, vocab) to `out`.
  void logits(const PythonRows& rows, float* out);
  EvalResult evaluate(int64_t max_tokens);
  std::string generate(const std::string& prompt, int64_t tokens, const SampleConfig& config, uint64_t seed);

  // Writes a checkpoint into a run's folder, which is made if it does not exist, and returns its path.
  std::filesystem::path save(const std::filesystem::path& folder);

  int64_t steps_done() const { return trainer_.state().steps_done; }
  bool is_finished() const;
  // Rows of the next step's batch, and those of all batches that the caller has given.
  int64_t next_rows() const { return plan_.micro_batches(position()) * config_.train.batch_size; }
  int64_t given_rows() const { return given_samples_; }
  const RunConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *data_.tokenizer; }
  const std::string& warning() const { return warning_; }  // about how it starts; "" if there is none
  // Throws a kUsage error for weights without f32 masters, and on a device.
  TrainingStore& params();
  // Called after the masters were written.
  void weights_changed();

 private:
  RunPosition position() const;
  void use_threads() const;
  void start(const std::optional<std::filesystem::path>& checkpoint);
  GivenBatches given(const PythonRows& rows) const;
  CustomLoss custom(const CustomLoss::Function& function) const;

  std::optional<ResumeCheck> resumed_;  // while the trainer is made
  RunData data_;
  RunConfig config_;
  Trainer trainer_;
  std::unique_ptr<Loader> loader_;  // null without text
  RunPlan plan_;
  Guard guard_;         // records losses and norms for checkpoints; its verdicts are the caller's to make
  TrainerState state_;  // of the checkpoint, with the tokens of the steps since
  int64_t given_samples_ = 0;  // rows of the caller's own batches
  int threads_ = 1;
  std::string warning_;
  std::unique_ptr<Generator> generator_;  // made by the first generate()
  std::optional<StepResult> pending_;     // of the gradients that were neither used nor discarded
  std::mutex mutex_;
  std::atomic<std::thread::id> user_ = {};
};

// Trains into a run folder as `ingot train` does. say: called with every line that the run reports, on the
// calling thread.
TrainOutcome python_train(const RunConfig& config, const std::string& out, bool is_resume,
                          const std::atomic<bool>& is_stop_requested,
                          const std::function<void(std::string_view)>& say);

}  // namespace ingot
