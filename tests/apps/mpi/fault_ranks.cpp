// Trains on several ranks, of which rank 1 misbehaves once the first checkpoint exists:
//   mpirun -n 2 fault_ranks exit|mismatch RUN-FOLDER TEXT [KEY=VALUE ...]
// With "exit", rank 1 calls exit(0) in the middle of a step; with "mismatch", it computes a maximum where
// the other ranks compute a sum.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "apps/ranks.h"
#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/config/config_toml.h"
#include "ingot/console/console.h"
#include "ingot/core/error.h"
#include "ingot/run/record/run_folder.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

std::atomic<bool> is_interrupted{false};

enum class Fault { kNone, kExit, kMismatch };

// The group whose ranks add up the losses. It behaves normally until `fault` is set; then it exits or
// computes a maximum.
class FaultyGroup : public Communicator {
 public:
  FaultyGroup(std::unique_ptr<Communicator> group, const std::atomic<Fault>& fault)
      : Communicator(group->name(), group->rank(), group->size()), group_(std::move(group)), fault_(fault) {}
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return group_->split(color, key, std::move(name));
  }
  TimeLimit& time_limit() override { return group_->time_limit(); }

 private:
  uint64_t start(const CommOperation& sum) override {
    if (fault_ == Fault::kExit) std::exit(0);
    if (fault_ == Fault::kMismatch)
      group_->all_reduce("max", sum.out, ReduceOp::kMax);
    else
      group_->all_reduce(sum.name, sum.out, sum.op);
    return 0;
  }
  bool is_done(uint64_t) override { return true; }
  void wait(uint64_t) override {}

  std::unique_ptr<Communicator> group_;
  const std::atomic<Fault>& fault_;
};

void run(Mesh& mesh, const RunConfig& config, const std::string& fault, const std::string& out) {
  Communicator& world = *mesh.world;
  std::signal(SIGTERM, [](int) { is_interrupted = true; });
  std::unique_ptr<RunFolder> folder;
  if (world.rank() == 0) folder = std::make_unique<RunFolder>(out, false);
  world.barrier("run folder");
  if (world.rank() > 0) folder = RunFolder::of_rank(out, world.rank());
  std::atomic<Fault> now = Fault::kNone;
  std::thread trouble([&] {
    if (world.rank() != 1) return;
    while (list_checkpoints(out + "/checkpoints").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = fault == "exit" ? Fault::kExit : Fault::kMismatch;
  });
  Console quiet([](std::string_view) {}, 0);
  mesh.data = std::make_unique<FaultyGroup>(std::move(mesh.data), now);
  run_training(config, *folder, false, quiet, is_interrupted, mesh);
  trouble.join();
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  ConfigBuilder builder;
  builder.add_source("tiny-llama");
  builder.add_texts("data.train", {arguments.at(2)}, "TEXT");
  for (size_t i = 3; i < arguments.size(); ++i) builder.add_override(arguments[i]);
  const RunConfig config = builder.build();
  run_on_ranks(config, is_interrupted, [&](Mesh& mesh) { run(mesh, config, arguments[0], arguments[1]); });
}
