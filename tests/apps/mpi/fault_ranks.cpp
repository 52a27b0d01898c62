// A run on several ranks of which rank 1 misbehaves once the first checkpoint is there:
//   mpirun -n 2 fault_ranks exit|mismatch RUN-FOLDER TEXT [KEY=VALUE ...]
// "exit" leaves with exit(0) in the middle of a step; "mismatch" takes a maximum where the others sum up.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "apps/launch.h"
#include "ingot/core/error.h"
#include "ingot/parallel/mesh_parts.h"
#include "ingot/train/checkpoint_store.h"
#include "ingot/train/config_toml.h"
#include "ingot/train/console.h"
#include "ingot/train/run.h"
#include "ingot/train/run_folder.h"

namespace ingot {
namespace {

std::atomic<bool> is_interrupted{false};

// Sums that are maxima from some moment on.
class ConfusedReducer : public CommReducer {
 public:
  ConfusedReducer(Communicator& group, const std::atomic<bool>& is_confused)
      : CommReducer(group), is_confused_(is_confused) {}
  void sum(std::span<double> values) override {
    if (is_confused_)
      max(values);
    else
      CommReducer::sum(values);
  }

 private:
  const std::atomic<bool>& is_confused_;
};

class FaultyParts : public MeshParts {
 public:
  FaultyParts(Communicator& world, Mesh& mesh, const std::atomic<bool>& is_confused)
      : MeshParts(world, mesh), confused_(*mesh.dp, is_confused) {}
  Reducers reducers() override {
    Reducers reducers = MeshParts::reducers();
    return {reducers.all, confused_, reducers.weights};
  }

 private:
  ConfusedReducer confused_;
};

void run(Communicator& world, Mesh& mesh, const RunConfig& config, const std::string& fault,
         const std::string& out) {
  std::signal(SIGTERM, [](int) { is_interrupted = true; });
  std::unique_ptr<RunFolder> folder;
  if (world.rank() == 0) folder = std::make_unique<RunFolder>(out, false);
  world.barrier("run folder");
  if (world.rank() > 0) folder = RunFolder::of_rank(out, world.rank());
  std::atomic<bool> is_confused = false;
  std::thread trouble([&] {
    if (world.rank() != 1) return;
    while (list_checkpoints(out + "/checkpoints").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (fault == "exit") std::exit(0);
    is_confused = true;
  });
  Console quiet([](std::string_view) {}, 0);
  run_training(config, *folder, false, quiet, is_interrupted,
               std::make_unique<FaultyParts>(world, mesh, is_confused));
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
  launch(config, is_interrupted,
         [&](Communicator& world, Mesh& mesh) { run(world, mesh, config, arguments[0], arguments[1]); });
}
