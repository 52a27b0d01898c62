// Compares two ways in which replicas exchange the directions of Muon's matrices, on several GPUs: Ingot's,
// one gather per round into one buffer (parallel/distributed_muon.h), and one broadcast per matrix. The
// rounds, their owners and the overlap of messages with the next round's products are the same. It times the
// updates of all matrices of a model.
//   mpirun -n RANKS muon_bench [--tiny] MODEL...
// MODEL: gpt2-124m or llama-1.3b. Rank 0 prints a JSON object for each. --tiny is for trying the program
// itself: its figures mean nothing.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/ranks.h"
#include "ingot/comm/device_group.h"
#include "ingot/comm/mpi_job.h"
#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/core/philox.h"
#include "ingot/ops/cast.h"
#include "ingot/optim/optimizer.h"
#include "ingot/parallel/distributed_muon.h"

namespace ingot {
namespace {

// Every matrix has one owner, which broadcasts its direction. Messages of a round run while the next one
// computes.
class MessagePerMatrix final : public UpdateComm {
 public:
  // Borrows the group of the replicas.
  MessagePerMatrix(Communicator& replicas, DType payload) : replicas_(replicas), payload_(payload) {}

  void sum(const Tensor& /*t*/) override {}
  void max(const Tensor& /*t*/) override {}
  std::vector<StatePlacement> plan(std::vector<MatrixTask> tasks) override {
    tasks_ = std::move(tasks);
    std::vector<double> costs;
    for (const MatrixTask& task : tasks_) costs.push_back(task.flops);
    owned_ = assign_by_cost(costs, replicas_.size());
    std::vector<StatePlacement> keeps(tasks_.size(), StatePlacement{false, false});
    for (const size_t task : owned_[static_cast<size_t>(replicas_.rank())]) keeps[task] = {true, true};
    for (const std::vector<size_t>& tasks_of_one : owned_) rounds_ = std::max(rounds_, tasks_of_one.size());
    for (const MatrixTask& task : tasks_) largest_ = std::max(largest_, task.shape.elements());
    return keeps;
  }
  size_t scratch_bytes(Memory memory) const override {
    Arena arena("messages", memory);
    const Buffers buffers(*this, arena);
    return arena.peak_bytes();
  }
  void run(MatrixWork& work, Arena& scratch, Stream& stream) override {
    const Arena::Mark mark = scratch.mark();
    const Buffers buffers(*this, scratch);
    for (size_t k = 0; k < rounds_; ++k) {
      const Tensor& directions = buffers.directions[k % 2];
      const auto& own = owned_[static_cast<size_t>(replicas_.rank())];
      if (k < own.size()) {
        const Shape& shape = tasks_[own[k]].shape;
        const Tensor flat = buffers.matrix.rows(0, shape.elements());
        work.prepare(own[k], flat);
        work.compute(own[k], flat.reshape(shape));
        cast(direction(directions, replicas_.rank(), own[k]), flat, stream);
      }
      finish(k, buffers, work);
      for (int owner = 0; owner < replicas_.size(); ++owner)
        if (const auto& theirs = owned_[static_cast<size_t>(owner)]; k < theirs.size())
          under_way_.push_back(
              replicas_.start_broadcast("direction", direction(directions, owner, theirs[k]), owner));
    }
    finish(rounds_, buffers, work);
    scratch.release_to(mark);
  }

 private:
  struct Buffers {
    Tensor matrix;                     // (largest) f32
    std::array<Tensor, 2> directions;  // (ranks * largest) payload, of two rounds

    Buffers(const MessagePerMatrix& update, Arena& arena)
        : matrix(arena.alloc(DType::f32, {update.largest_})) {
      for (Tensor& t : directions)
        t = arena.alloc(update.payload_, {update.replicas_.size() * update.largest_});
    }
  };

  Tensor direction(const Tensor& directions, int owner, size_t task) const {
    return directions.rows(owner * largest_, owner * largest_ + tasks_[task].shape.elements());
  }
  // Waits for the messages of round k - 1 and applies them.
  void finish(size_t k, const Buffers& buffers, MatrixWork& work) {
    for (Pending& message : under_way_) message.wait();
    under_way_.clear();
    if (k == 0) return;
    for (int owner = 0; owner < replicas_.size(); ++owner)
      if (const auto& theirs = owned_[static_cast<size_t>(owner)]; k - 1 < theirs.size())
        work.apply(theirs[k - 1], direction(buffers.directions[(k - 1) % 2], owner, theirs[k - 1]));
  }

  Communicator& replicas_;
  DType payload_;
  std::vector<MatrixTask> tasks_;
  std::vector<std::vector<size_t>> owned_;  // tasks of each rank, one per round
  size_t rounds_ = 0;
  int64_t largest_ = 0;
  std::vector<Pending> under_way_;
};

struct Model {
  std::string name;
  int64_t layers, width, ffn;
  bool is_llama;  // SwiGLU
};

Model model_of(const std::string& name, bool is_tiny) {
  for (const Model& model :
       {Model{"gpt2-124m", 12, 768, 3072, false}, Model{"llama-1.3b", 24, 2048, 5632, true}})
    if (model.name == name) return is_tiny ? Model{name, 1, 16, 32, model.is_llama} : model;
  fail(ErrorKind::kUsage, "{}: a model is gpt2-124m or llama-1.3b", name);
}

// The matrices of a model's blocks, with their gradients and bf16 copies, in the memory of a device.
class Matrices {
 public:
  explicit Matrices(const Model& m) : m_(m), arena_("matrices", lay_out(nullptr), Memory::kDevice) {
    lay_out(&arena_);
  }
  // Sets the weights to zero and the gradients to the same random numbers on every rank.
  void fill(Stream& stream) {
    int64_t most = 0;
    for (const OptimParam& p : params) most = std::max(most, p.elements());
    std::vector<float> numbers(static_cast<size_t>(most));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = random_uniform({.seed = 1}, i) - 0.5f;
    for (const OptimParam& p : params) {
      fill_zero(p.w, stream);
      copy(p.g, Tensor(numbers.data(), DType::f32, {p.elements()}), stream);
    }
    synchronize(stream);
  }

  std::vector<OptimParam> params;

 private:
  // Makes the parameters in `arena`, or returns the bytes that it needs.
  size_t lay_out(Arena* arena) {
    Arena plan("matrices", Memory::kDevice);
    Arena& room = arena ? *arena : plan;
    const int64_t C = m_.width, up = m_.is_llama ? 2 * m_.ffn : m_.ffn;
    params.clear();
    for (int64_t layer = 0; layer < m_.layers; ++layer) {
      add(room, layer, "qkv", {3 * C, C}, {C, C, C});
      add(room, layer, "proj", {C, C}, {});
      add(room, layer, "up", {up, C},
          m_.is_llama ? std::vector<int64_t>{m_.ffn, m_.ffn} : std::vector<int64_t>{});
      add(room, layer, "down", {C, m_.ffn}, {});
    }
    return plan.peak_bytes();
  }
  void add(Arena& room, int64_t layer, const char* name, const Shape& shape, std::vector<int64_t> fused) {
    const Shape flat{shape.elements()};
    params.push_back({.name = fmt::format("blocks.{}.{}", layer, name),
                      .shape = shape,
                      .fused_rows = std::move(fused),
                      .w = room.alloc(DType::f32, flat),
                      .compute = room.alloc(DType::bf16, flat),
                      .g = room.alloc(DType::f32, flat)});
  }

  Model m_;
  Arena arena_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns the time of an update, from one moment at which all ranks are ready to the next.
double update_s(Optimizer& optimizer, int updates, Communicator& world, Stream& stream) {
  synchronize(stream);
  world.barrier("ready");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < updates; ++i) optimizer.step({.lr = 1e-3}, 1, stream);
  synchronize(stream);
  world.barrier("done");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / updates;
}

void compare(const Model& model, bool is_tiny, Communicator& world, Communicator& replicas, Stream& stream) {
  const std::unique_ptr<Communicator> alone = self_communicator();
  Matrices matrices(model);
  matrices.fill(stream);
  const OptimizerConfig config{.rule = {.kind = "muon"}};
  DistributedMuon one_gather(*alone, replicas, DType::bf16);
  MessagePerMatrix messages(replicas, DType::bf16);
  Optimizer by_gather(config, matrices.params, &one_gather), by_messages(config, matrices.params, &messages);
  const int turns = is_tiny ? 1 : 5, updates = is_tiny ? 1 : 5;
  std::vector<double> gather_s, messages_s;
  for (int turn = is_tiny ? 1 : 0; turn <= turns; ++turn) {  // turn 0 chooses kernels and opens connections
    matrices.fill(stream);
    const double one = update_s(by_gather, updates, world, stream);
    matrices.fill(stream);
    const double other = update_s(by_messages, updates, world, stream);
    if (turn == 0) continue;
    gather_s.push_back(one);
    messages_s.push_back(other);
  }
  const double one = median(gather_s), other = median(messages_s);
  if (world.rank() == 0)
    fmt::print(
        "{{\"model\":\"{}\",\"ranks\":{},\"matrices\":{},\"gather_ms\":{:.4f},\"messages_ms\":{:.4f},"
        "\"ratio\":{:.4f}}}\n",
        model.name, world.size(), matrices.params.size(), one * 1e3, other * 1e3, one / other);
}

void run(MpiJob& job, int argc, char** argv) {
  cuda::use_device(job.rank_on_node() % static_cast<int>(cuda::devices().size()));
  Stream stream = make_stream(Device::kCuda);
  const std::unique_ptr<Communicator> replicas = device_group(job.world(), stream);
  bool is_tiny = false;
  std::vector<std::string> models;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--tiny")
      is_tiny = true;
    else
      models.push_back(word);
  }
  if (models.empty()) fail(ErrorKind::kUsage, "usage: mpirun -n RANKS muon_bench [--tiny] MODEL...");
  for (const std::string& name : models)
    compare(model_of(name, is_tiny), is_tiny, job.world(), *replicas, stream);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  ingot::prepare_ranks();
  if (ingot::cuda::devices().empty()) {
    std::printf("no CUDA device: %s\n", ingot::cuda::no_device_reason().c_str());
    return 77;
  }
  ingot::MpiJob job({.timeout_s = 60});
  try {
    ingot::run(job, argc, argv);
    return 0;
  } catch (const std::exception& error) {
    job.abort(error.what(), 1);
  }
}
