// On several ranks: the operations between ranks that a plan lists are those that the real ranks perform, in
// the same order.
#include <gtest/gtest.h>

#include "ingot/data/loader.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/plan/job.h"
#include "ingot/train/trainer.h"
#include "tests/comm/mpi/ranks_main.h"
#include "tests/config/built_config.h"

namespace ingot {
namespace {

RunConfig config_of(const std::string& preset, const std::vector<std::string>& settings) {
  RunConfig config = built_config(
      preset, {"model.layers=4", "model.context=32", "train.batch_size=8", "train.grad_accum=8"}, settings);
  config.model.vocab = 96;
  config.head.raw_ce_every = 0;
  return config;
}

// The second step of a real training, recorded on this rank.
StepRecord real_step(const RunConfig& config, Communicator& all) {
  StepRecorder recorder(Backing::kMemory);
  Mesh mesh = Mesh::make(all, mesh_shape(config.parallel));
  for (const MeshGroup& group : mesh_groups())
    mesh.*group.communicator = recorder.wrap(std::move(mesh.*group.communicator));
  Trainer trainer(config, parallelize(config, mesh));
  trainer.initialise();
  TokenSource text;
  std::vector<uint16_t> tokens(4096);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * i % 96);
  text.add(tokens);
  const DataShard& shard = trainer.layout().data_shard;
  Loader loader(text, Sampler(SampleOrder::kRandom, 0, text.tokens(), config.model.context),
                {.shape = trainer.layout().batch_shape, .readers = shard.ranks, .reader = shard.rank});
  for (int i = 0; i < 2; ++i) {
    recorder.set_on(true);
    recorder.take();
    trainer.submit(loader, {.micros = config.train.grad_accum, .inputs = {.lr = 1e-3}});
    trainer.update(trainer.collect(loader));
    recorder.set_on(false);
  }
  return recorder.take();
}

std::vector<std::string> operations_of(const StepRecord& record) {
  std::vector<std::string> texts;
  for (const RecordedOp& recorded : record.ops) {
    const ProgramOp& op = recorded.op;
    if (op.kind == ProgramOp::Kind::kStart)
      texts.push_back(fmt::format("start {}: {} '{}' of {} bytes, group {}, peer {}", op.ticket,
                                  kind_name(op.operation), record.names[static_cast<size_t>(op.name)],
                                  op.bytes, record.groups[static_cast<size_t>(op.group)].name, op.peer));
    else if (op.kind == ProgramOp::Kind::kWait)
      texts.push_back(fmt::format("wait {}", op.ticket));
  }
  return texts;
}

// Counts the layout in `compared` if it has as many ranks as there are; does nothing otherwise.
void compare(const std::string& preset, const std::vector<std::string>& settings, int& compared) {
  const RunConfig config = config_of(preset, settings);
  const MeshShape shape = mesh_shape(config.parallel);
  if (shape.size() != world->size()) return;
  ++compared;
  const JobRecord job = record_job(config);
  const int rank_class = job.class_of[static_cast<size_t>(world->rank())];
  const std::vector<std::string> planned = operations_of(job.records[static_cast<size_t>(rank_class)]),
                                 real = operations_of(real_step(config, *world));
  ASSERT_FALSE(planned.empty());
  for (size_t i = 0; i < std::min(planned.size(), real.size()); ++i)
    ASSERT_EQ(planned[i], real[i]) << "operation " << i << " of rank " << world->rank() << ", "
                                   << config.parallel.to_string();
  ASSERT_EQ(planned.size(), real.size());
}

TEST(PlannedOperations, AreThoseOfRealRanks) {
  int compared = 0;
  const auto expect_equal = [&](const std::string& preset, const std::vector<std::string>& settings) {
    compare(preset, settings, compared);
  };
  for (const char* preset : {"tiny-llama", "tiny-gpt2"}) {
    expect_equal(preset, {"parallel.dp=2", "parallel.bucket_mb=1"});
    expect_equal(preset, {"parallel.fsdp=2", "precision.compute=bf16"});
    expect_equal(preset, {"parallel.tp=2"});
    expect_equal(preset, {"parallel.pp=2"});
    expect_equal(preset, {"parallel.dp=2", "parallel.fsdp=2"});
    expect_equal(preset, {"parallel.tp=2", "parallel.fsdp=2"});
    expect_equal(preset, {"parallel.pp=2", "parallel.fsdp=2"});
    expect_equal(preset,
                 {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2", "parallel.dp=2"});
    expect_equal(preset, {"parallel.pp=2", "parallel.fsdp=2", "parallel.dp=2"});
    expect_equal(preset, {"parallel.tp=2", "parallel.pp=2", "parallel.dp=2"});
  }
  // These rules and FP8 have messages of their own: sums of rows and columns, and maxima.
  for (const char* rule : {"optimizer.kind=adamw8bit", "optimizer.kind=adafactor"}) {
    expect_equal("tiny-llama", {rule, "parallel.fsdp=2"});
    expect_equal("tiny-llama", {rule, "parallel.tp=2"});
    expect_equal("tiny-llama", {rule, "parallel.tp=2", "parallel.fsdp=2"});
    expect_equal("tiny-llama", {rule, "parallel.tp=2", "parallel.fsdp=2", "parallel.dp=2"});
  }
  for (const char* recipe : {"precision.fp8=tensorwise", "precision.fp8=delayed"}) {
    const char *compute = "precision.compute=bf16", *head = "head.precision=fp8";
    expect_equal("tiny-gpt2", {compute, head, recipe, "parallel.fsdp=2"});
    expect_equal("tiny-gpt2", {compute, head, recipe, "parallel.tp=2"});
    expect_equal("tiny-gpt2", {compute, head, recipe, "parallel.tp=2", "parallel.fsdp=2"});
  }
  expect_equal("shakespeare-char-muon", {"parallel.dp=2"});
  expect_equal("shakespeare-char-muon", {"parallel.fsdp=2", "parallel.dp=2"});
  if (compared == 0) GTEST_SKIP() << "no layout has " << world->size() << " ranks";
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
