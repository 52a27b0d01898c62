#include "ingot/plan/dry_step.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "ingot/core/median.h"
#include "ingot/data/loader.h"
#include "ingot/nn/program/program_text.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

constexpr double kLr = 1e-4;  // any; the weights have no use

int first_of_group(const MeshShape& shape, int rank, const std::string& name) {
  for (const MeshGroup& group : mesh_groups())
    if (name == group.name) return group_ranks(shape, rank, group.axes).front();
  return 0;
}

// A trainer of one rank whose operations are recorded.
class RecordedTrainer {
 public:
  RecordedTrainer(const RunConfig& config, const MeshShape& shape, int rank, Backing backing,
                  const KnownToRanks& known = {})
      : micros_(config.train.grad_accum),
        recorder_(backing),
        mesh_(Mesh::planned(shape, rank, recorded_groups(recorder_, config, shape, rank, known.board))),
        trainer_(config, parallelize(config, mesh_, backing, known.unit_costs)) {
    trainer_.trace().set_listener(&recorder_);
    Stream& stream = *trainer_.layout().stream;
    stream.trace = &trainer_.trace();
    stream.work = &recorder_;
    text_.add(std::vector<uint16_t>(static_cast<size_t>(2 * config.model.context + 2)));
    const DataShard& shard = trainer_.layout().data_shard;
    const LoaderConfig reader{
        .shape = trainer_.layout().batch_shape, .readers = shard.ranks, .reader = shard.rank};
    loader_.emplace(text_, Sampler(SampleOrder::kRandom, 0, text_.tokens(), config.model.context), reader);
    if (backing == Backing::kMemory) trainer_.initialise();
  }

  StepRecord step() {
    const auto begin = std::chrono::steady_clock::now();
    recorder_.set_on(true);
    trainer_.submit(*loader_, {.micros = micros_, .inputs = {.lr = kLr}});
    trainer_.update(trainer_.collect(*loader_));
    recorder_.set_on(false);
    StepRecord record = recorder_.take();
    record.step_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return record;
  }

  // Delayed scaling finds the amaxes of an earlier step, which nothing has computed without memory.
  void set_amaxes() {
    Fp8State& fp8 = trainer_.state().fp8;
    for (int tensor = 0; tensor < std::ssize(fp8.entries()); ++tensor) fp8[tensor].amax = 1;
    fp8.end_step();
  }

  std::string text() const {
    const Layout& layout = trainer_.layout();
    std::string text;
    for (const Transformer::Saved* part : layout.executor->parts())
      text += fmt::format("units {} to {}, {} sequences of {} tokens: ", part->units.first,
                          part->units.end - 1, part->B, part->T) +
              program_text(*part->training.program, layout.model->params());
    return text;
  }

 private:
  int64_t micros_;
  StepRecorder recorder_;
  Mesh mesh_;
  Trainer trainer_;
  TokenSource text_;
  std::optional<Loader> loader_;
};

// The check of the loss is not in every step, so it is in none.
RunConfig without_check(RunConfig config) {
  config.head.raw_ce_every = 0;
  return config;
}

}  // namespace

Mesh::MakeGroup recorded_groups(StepRecorder& recorder, const RunConfig& config, const MeshShape& shape,
                                int rank, PlanBoard* board) {
  return [&recorder, &config, &shape, rank, board](const std::string& name, int own, int size) {
    return recorder.make_group(
        name, own, size,
        {.reach = config.train.device, .board = board, .first_rank = first_of_group(shape, rank, name)});
  };
}

StepRecord record_step(const RunConfig& config, const MeshShape& shape, int rank, const KnownToRanks& known) {
  RecordedTrainer trainer(without_check(config), shape, rank, Backing::kAddresses, known);
  trainer.step();  // gathers weights that later steps find gathered
  trainer.set_amaxes();
  return trainer.step();
}

std::string text_of_programs(const RunConfig& config, const MeshShape& shape, int rank,
                             const KnownToRanks& known) {
  return RecordedTrainer(config, shape, rank, Backing::kAddresses, known).text();
}

void tell_others(const RunConfig& config, const MeshShape& shape, int rank, const KnownToRanks& known) {
  const RecordedTrainer trainer(without_check(config), shape, rank, Backing::kAddresses, known);
}

StepRecord measure_step(const RunConfig& config, const MeshShape& shape, int rank, double time_s,
                        const KnownToRanks& known) {
  constexpr size_t kLeastSteps = 3, kMaxSteps = 200;
  RecordedTrainer trainer(without_check(config), shape, rank, Backing::kMemory, known);
  trainer.step();
  // The first fifth warms up caches, threads and the clock of the processor.
  for (double spent_s = 0; spent_s < time_s / 5;) spent_s += trainer.step().step_s;
  std::vector<StepRecord> records;
  for (double spent_s = 0;
       records.size() < kLeastSteps || (spent_s < time_s && records.size() < kMaxSteps);) {
    records.push_back(trainer.step());
    spent_s += records.back().step_s;
  }
  const auto median_time = [&](auto time_of) {
    std::vector<double> times;
    for (const StepRecord& record : records) times.push_back(time_of(record));
    return median_of(times);
  };
  StepRecord result = records.front();
  for (size_t k = 0; k < result.ops.size(); ++k)
    result.ops[k].op.seconds =
        median_time([&](const StepRecord& record) { return record.ops[k].op.seconds; });
  result.step_s = median_time([](const StepRecord& record) { return record.step_s; });
  return result;
}

}  // namespace ingot
