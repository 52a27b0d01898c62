// Functions around some of the trainer's (the linker's --wrap, tests/CMakeLists.txt): they tell the
// simulation what happened, and plant bugs.
#include "tests/simulated_ranks/planted_bugs.h"

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/checkpoint/checkpoint_writer.h"
#include "ingot/core/process/background_task.h"
#include "ingot/data/loader.h"
#include "ingot/ops/matmul.h"
#include "ingot/train/trainer.h"
#include "tests/simulated_ranks/simulated_job.h"

namespace ingot::simulated {

namespace fs = std::filesystem;

// The functions of the trainer, by the names that the linker gives them.
#define INGOT_REAL(symbol) asm("__real_" symbol)
#define INGOT_WRAP(symbol) asm("__wrap_" symbol)
#define INGOT_ADVANCE "_ZN5ingot16CheckpointWriter7advanceB5cxx11Ev"
#define INGOT_FINISH "_ZN5ingot16CheckpointWriter6finishB5cxx11Ev"
#define INGOT_START "_ZN5ingot14BackgroundTask5startESt8functionIFvvEE"
#define INGOT_PATIENT "_ZN5ingot14BackgroundTask14become_patientEv"
#define INGOT_LOAD "_ZN5ingot15load_checkpointERKNSt10filesystem7__cxx114pathERNS_7TrainerE"
#define INGOT_VERIFY "_ZN5ingot15verify_manifestERKNSt10filesystem7__cxx114pathE"
#define INGOT_UPDATE "_ZN5ingot7Trainer6updateERKNS_10StepResultE"
#define INGOT_NEXT "_ZN5ingot6Loader4nextEv"
#define INGOT_SEEK "_ZN5ingot6Loader4seekEl"
#define INGOT_PRUNE                                                                           \
  "_ZN5ingot15CheckpointStore5pruneEiRKSt8functionIFvRKNSt10filesystem7__cxx114pathERKNSt7__" \
  "cxx1112basic_stringIcSt11char_traitsIcESaIcEEEEE"
#define INGOT_MATMUL "_ZN5ingot6matmulERKNS_6TensorES2_S2_NS_10MatmulFormEbRNS_6StreamE"

std::optional<fs::path> real_advance(CheckpointWriter*) INGOT_REAL(INGOT_ADVANCE);
std::optional<fs::path> wrap_advance(CheckpointWriter*) INGOT_WRAP(INGOT_ADVANCE);
fs::path real_finish(CheckpointWriter*) INGOT_REAL(INGOT_FINISH);
fs::path wrap_finish(CheckpointWriter*) INGOT_WRAP(INGOT_FINISH);
void real_start(BackgroundTask*, std::function<void()>) INGOT_REAL(INGOT_START);
void wrap_start(BackgroundTask*, std::function<void()>) INGOT_WRAP(INGOT_START);
void wrap_patient() INGOT_WRAP(INGOT_PATIENT);
TrainerState real_load(const fs::path&, Trainer&) INGOT_REAL(INGOT_LOAD);
TrainerState wrap_load(const fs::path&, Trainer&) INGOT_WRAP(INGOT_LOAD);
std::vector<ManifestProblem> real_verify(const fs::path&) INGOT_REAL(INGOT_VERIFY);
std::vector<ManifestProblem> wrap_verify(const fs::path&) INGOT_WRAP(INGOT_VERIFY);
void real_update(Trainer*, const StepResult&) INGOT_REAL(INGOT_UPDATE);
void wrap_update(Trainer*, const StepResult&) INGOT_WRAP(INGOT_UPDATE);
const Batch& real_next(Loader*) INGOT_REAL(INGOT_NEXT);
const Batch& wrap_next(Loader*) INGOT_WRAP(INGOT_NEXT);
void real_seek(Loader*, int64_t) INGOT_REAL(INGOT_SEEK);
void wrap_seek(Loader*, int64_t) INGOT_WRAP(INGOT_SEEK);
int real_prune(CheckpointStore*, int, const DamageReport&) INGOT_REAL(INGOT_PRUNE);
int wrap_prune(CheckpointStore*, int, const DamageReport&) INGOT_WRAP(INGOT_PRUNE);
void real_matmul(const Tensor&, const Tensor&, const Tensor&, MatmulForm, bool, Stream&)
    INGOT_REAL(INGOT_MATMUL);
void wrap_matmul(const Tensor&, const Tensor&, const Tensor&, MatmulForm, bool, Stream&)
    INGOT_WRAP(INGOT_MATMUL);

namespace {

// Returns true in a rank of a simulation with this bug.
bool has(Bug bug) {
  const Task* task = Scheduler::current();
  return task && task->rank >= 0 && simulated_job() && simulated_job()->bug() == bug;
}

bool is_rank() { return Scheduler::current() && simulated_job(); }

}  // namespace

// A checkpoint was reported as saved: rank 0 tells the simulation.
void note_saved(const fs::path& path) {
  if (is_rank() && Scheduler::current()->rank == 0)
    simulated_job()->reported_saved(std::stoll(path.filename().string().substr(std::strlen("step-"))));
}

std::optional<fs::path> wrap_advance(CheckpointWriter* writer) {
  std::optional<fs::path> path = real_advance(writer);
  if (path) note_saved(*path);
  return path;
}

fs::path wrap_finish(CheckpointWriter* writer) {
  fs::path path = real_finish(writer);
  note_saved(path);
  return path;
}

// Work in the background is done at once by the rank itself, so that a seed decides all that happens. Between
// its phases the rank still makes steps.
void wrap_start(BackgroundTask* task, std::function<void()> work) {
  if (is_rank()) return task->run(work);
  real_start(task, std::move(work));
}

void wrap_patient() {}

TrainerState wrap_load(const fs::path& path, Trainer& trainer) {
  TrainerState state = real_load(path, trainer);
  if (has(Bug::kStateOfOneShardIsLost) && simulated_job()->is_last(Scheduler::current()->rank))
    for (const Optimizer::State& s : trainer.state().optimizer.states())
      std::memset(s.tensor.data, 0, s.tensor.bytes());
  return state;
}

std::vector<ManifestProblem> wrap_verify(const fs::path& path) {
  std::vector<ManifestProblem> problems = real_verify(path);
  if (has(Bug::kDamageIsAccepted)) problems.clear();
  return problems;
}

void wrap_update(Trainer* trainer, const StepResult& result) {
  real_update(trainer, result);
  if (is_rank()) simulated_job()->made_update(trainer->state().steps_done, result.loss);
}

// Freezes the rank's clock: the loader's thread decides whether a batch is ready and so how often the loader
// reads the clock.
const Batch& wrap_next(Loader* loader) {
  Task* task = Scheduler::current();
  if (task) task->is_clock_frozen = true;
  const Batch& batch = real_next(loader);
  if (task) task->is_clock_frozen = false;
  return batch;
}

void wrap_seek(Loader* loader, int64_t sample) {
  constexpr int64_t kStepSamples = 16;
  real_seek(loader, has(Bug::kLoaderIsOneOff) ? sample + kStepSamples : sample);
}

int wrap_prune(CheckpointStore* store, int keep, const DamageReport& report) {
  const int removed = real_prune(store, keep, report);
  if (has(Bug::kNewestIsPruned) && store->list().size() > 1) fs::remove_all(store->list().front().path);
  return removed;
}

// The only large products are those that measure the machine's peak: they take time, but compute nothing.
void wrap_matmul(const Tensor& c, const Tensor& a, const Tensor& b, MatmulForm form, bool accumulates,
                 Stream& stream) {
  constexpr int64_t kLargest = 1 << 18;
  constexpr double kProduct_s = 0.06;
  if (Scheduler::current() && c.elements() > kLargest / 2)
    Scheduler::current()->time_s += kProduct_s;
  else
    real_matmul(c, a, b, form, accumulates, stream);
}

}  // namespace ingot::simulated
