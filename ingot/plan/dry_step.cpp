#include "ingot/plan/dry_step.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ingot/data/loader.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

constexpr double kLr = 1e-4;  // any; the weights have no use

// A trainer of one rank whose operations are recorded.
class RecordedTrainer {
 public:
  RecordedTrainer(const RunConfig& config, const MeshShape& shape, int rank, Backing backing)
      : micros_(config.train.grad_accum),
        recorder_(backing),
        mesh_(Mesh::planned(shape, rank,
                            [this, device = config.train.device](std::string name, int own, int size) {
                              return recorder_.make_group(std::move(name), own, size, device);
                            })),
        trainer_(config, parallelize(config, mesh_, backing)) {
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
    step();  // gathers weights that later steps find gathered
  }

  StepRecord step() {
    recorder_.set_on(true);
    trainer_.submit(*loader_, {.micros = micros_, .inputs = {.lr = kLr}});
    trainer_.update(trainer_.collect(*loader_));
    recorder_.set_on(false);
    return recorder_.take();
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

StepRecord record_step(const RunConfig& config, const MeshShape& shape, int rank) {
  return RecordedTrainer(without_check(config), shape, rank, Backing::kAddresses).step();
}

StepRecord measure_step(const RunConfig& config, const MeshShape& shape, int rank, int steps) {
  RecordedTrainer trainer(without_check(config), shape, rank, Backing::kMemory);
  StepRecord fastest = trainer.step();
  for (int i = 1; i < steps; ++i) {
    const StepRecord record = trainer.step();
    for (size_t k = 0; k < fastest.ops.size(); ++k)
      fastest.ops[k].op.seconds = std::min(fastest.ops[k].op.seconds, record.ops[k].op.seconds);
  }
  return fastest;
}

}  // namespace ingot
