// Measures what the number and the dtype of messages between ranks cost, for bench/reproduce/messages.py:
//   mpirun -n RANKS messages DELAY_MS ROUNDS [--tiny]
// The weights of a block of gpt2-124m are gathered from shards, and the updates of Muon's matrices from the
// ranks that computed them, by one message per tensor and by one message for all; gradients of the block are
// summed in f32, bf16 and f16, as ReplicaSum does it. Rank 0 prints a JSON object with, for every arm, its
// messages and bytes, its milliseconds by round, and the planned time on 8 and on 16 H100.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ingot/comm/mpi_job.h"
#include "ingot/core/arena.h"
#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/parallel/replica_sum.h"
#include "ingot/plan/network.h"

namespace ingot {
namespace {

using Kind = CommOperation::Kind;

// A way of exchanging the same tensors.
struct Arm {
  std::string name;
  Kind kind;
  std::vector<uint64_t> bytes;  // one number per message
  std::function<void()> run;
  std::vector<double> times_ms = {};
};

// Returns the elements of the tensors of a block of a GPT-2.
std::vector<int64_t> block_tensors(int64_t width) {
  const int64_t C = width;
  return {C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C};
}

int64_t sum_of(const std::vector<int64_t>& numbers) {
  int64_t sum = 0;
  for (const int64_t n : numbers) sum += n;
  return sum;
}

std::vector<uint64_t> bytes_of(const std::vector<int64_t>& elements, DType dtype) {
  std::vector<uint64_t> bytes;
  for (const int64_t n : elements) bytes.push_back(static_cast<uint64_t>(n) * size_bytes(dtype));
  return bytes;
}

// Adds the arms that gather tensors of these elements, each of which the ranks hold in equal parts.
void add_gathers(std::vector<Arm>& arms, const std::string& what, std::vector<int64_t> elements,
                 Communicator& group, Arena& arena) {
  for (int64_t& n : elements) n = (n + group.size() - 1) / group.size() * group.size();
  const int64_t all = sum_of(elements);
  const Tensor whole = arena.alloc(DType::bf16, {all}), part = arena.alloc(DType::bf16, {all / group.size()});
  const auto one_buffer = [=, &group] { group.all_gather_into("one buffer", whole, part); };
  const auto a_list = [=, &group] {
    std::vector<Pending> messages;
    int64_t begin = 0;
    for (const int64_t n : elements) {
      const int64_t own = begin / group.size();
      messages.push_back(group.start_all_gather_into("of a list", whole.rows(begin, begin + n),
                                                     part.rows(own, own + n / group.size())));
      begin += n;
    }
    for (Pending& message : messages) message.wait();
  };
  for (const char* again : {"", " again"})
    arms.push_back({what + ", a list" + again, Kind::kAllGather, bytes_of(elements, DType::bf16), a_list});
  arms.push_back({what + ", one buffer", Kind::kAllGather, bytes_of({all}, DType::bf16), one_buffer});
}

void add_sums(std::vector<Arm>& arms, int64_t elements, Communicator& group, Arena& arena, Stream& stream) {
  for (const auto& [name, dtype] : {std::pair{"f32", DType::f32},
                                    {"f32 again", DType::f32},
                                    {"bf16", DType::bf16},
                                    {"f16", DType::f16}}) {
    GradientBucket bucket{.grad = arena.alloc(DType::f32, {elements}), .name = name};
    if (dtype != DType::f32) bucket.payload = arena.alloc(dtype, {elements});
    const auto sum = std::make_shared<ReplicaSum>(group, std::vector{bucket}, stream);
    arms.push_back({std::string("gradients, ") + name, Kind::kAllReduce, bytes_of({elements}, dtype), [sum] {
                      sum->start_unit(0, {true});
                      sum->wait();
                    }});
  }
}

// Returns the time of the arm's messages, one after the other, among all of `ranks` H100.
double planned_s(const Arm& arm, int ranks) {
  const Network network(find_hardware("h100-sxm"), ranks);
  std::vector<int> members(static_cast<size_t>(ranks));
  for (size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
  const GroupRoute route(network, members);
  double all_s = 0;
  for (const uint64_t bytes : arm.bytes) {
    const Transfer transfer = route.transfer(arm.kind, bytes);
    double slowest_s = 0;
    for (const Load& load : *transfer.loads)
      slowest_s = std::max(
          slowest_s, transfer.bytes * load.weight / network.capacities()[static_cast<size_t>(load.resource)]);
    all_s += transfer.latency_s + slowest_s;
  }
  return all_s;
}

void print(const std::vector<Arm>& arms) {
  fmt::print("{{");
  for (const Arm& arm : arms) {
    uint64_t bytes = 0;
    for (const uint64_t one : arm.bytes) bytes += one;
    fmt::print(
        "{}\n\"{}\": {{\"messages\": {}, \"bytes\": {}, \"h100_8_s\": {:.9f}, \"h100_16_s\": {:.9f}, \"ms\": "
        "[",
        &arm == arms.data() ? "" : ",", arm.name, arm.bytes.size(), bytes, planned_s(arm, 8),
        planned_s(arm, 16));
    for (size_t i = 0; i < arm.times_ms.size(); ++i)
      fmt::print("{}{:.4f}", i > 0 ? ", " : "", arm.times_ms[i]);
    fmt::print("]}}");
  }
  fmt::print("\n}}\n");
}

void measure(std::vector<Arm>& arms, int rounds, Communicator& world) {
  constexpr int kTimes = 5;                      // an arm runs so often in a round
  for (int round = -1; round < rounds; ++round)  // the first warms up
    for (size_t i = 0; i < arms.size(); ++i) {
      Arm& arm = arms[(i + static_cast<size_t>(round + 1)) % arms.size()];
      world.barrier("ready");
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < kTimes; ++k) arm.run();
      world.barrier("done");
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
      if (round >= 0) arm.times_ms.push_back(time.count() / kTimes);
    }
}

void run(MpiJob& job, int rounds, bool is_tiny) {
  Communicator& world = job.world();
  const int64_t width = is_tiny ? 16 : 768;
  const std::vector<int64_t> block = block_tensors(width);
  // Muon's matrices of twelve blocks: q, k, v and proj, up, and down.
  std::vector<int64_t> updates;
  for (int layer = 0; layer < 12; ++layer)
    for (const int64_t n : {3, 1, 4, 4}) updates.push_back(n * width * width);
  Stream stream = make_stream(Device::kCpu);
  std::vector<Arm> arms;
  Arena arena("messages", static_cast<size_t>(4 * (sum_of(updates) + 8 * sum_of(block)) + (1 << 20)));
  add_gathers(arms, "weights", block, world, arena);
  add_gathers(arms, "updates", updates, world, arena);
  add_sums(arms, sum_of(block), world, arena, stream);
  measure(arms, rounds, world);
  if (world.rank() == 0) print(arms);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4 || (argc == 4 && std::string_view(argv[3]) != "--tiny")) {
    fmt::print(stderr, "usage: mpirun -n RANKS messages DELAY_MS ROUNDS [--tiny]\n");
    return 2;
  }
  ingot::set_num_threads(1);
  ingot::MpiJob job({.timeout_s = 60, .message_delay_s = std::stod(argv[1]) * 1e-3});
  try {
    ingot::run(job, std::stoi(argv[2]), argc == 4);
    return 0;
  } catch (const std::exception& error) {
    job.abort(error.what(), 1);
  }
}
