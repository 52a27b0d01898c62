// nccl_one_rank: what Ingot needs of NCCL that one GPU can show. A group of one rank is initialised and
// split; it sums, and sends to itself, which is a kernel of NCCL that a thread of the library submits; both
// become parts of a CUDA graph that is launched twice; the group is finalised. Prints one line; exits with 1
// if something fails or takes longer than a minute.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/comm/nccl_group.h"
#include "ingot/comm/nccl_library.h"
#include "ingot/core/arena.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/error.h"
#include "ingot/core/staging.h"

namespace ingot {
namespace {

constexpr unsigned kLimit_s = 60;
const char* volatile stage = "start";

void end_late(int /*signal*/) {
  std::fprintf(stderr, "nccl_one_rank: %s has not ended within %u s\n", stage, kLimit_s);
  _exit(1);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Values {
 public:
  explicit Values(Stream& stream) : stream_(stream) {}

  const Tensor& in() const { return in_; }
  const Tensor& out() const { return out_; }
  // Fills `in` with a value and `out` with zeros.
  void fill(float value) {
    for (const Tensor* t : {&in_, &out_}) {
      const Tensor host = staging_.room(*t);
      for (int64_t i = 0; i < kCount; ++i) host.as<float>()[i] = t == &in_ ? value : 0;
      staging_.write(*t, stream_);
    }
  }
  void check(const Tensor& t, float wanted) {
    const Tensor host = staging_.read(t, stream_);
    for (int64_t i = 0; i < kCount; ++i)
      if (host.as<float>()[i] != wanted)
        fail(ErrorKind::kInternal, "{}: element {} must be {}, got {}", stage, i, wanted,
             host.as<float>()[i]);
  }

 private:
  static constexpr int64_t kCount = 1 << 20;

  Stream& stream_;
  Arena arena_{"values", 2 * kCount * sizeof(float) + 4096, Memory::kDevice};
  Tensor in_ = arena_.alloc(DType::f32, {kCount}), out_ = arena_.alloc(DType::f32, {kCount});
  Staging staging_;
};

void run() {
  if (const auto reason = no_cuda_reason()) fail(ErrorKind::kUsage, "{}", *reason);
  nccl::Library library;
  const int64_t version = library.load();
  if (version == 0) fail(ErrorKind::kUsage, "{}", cannot_load("libnccl.so.2"));
  Stream stream = make_stream(Device::kCuda);
  Values values(stream);
  Mesh alone = Mesh::alone();

  stage = "init and split";
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Communicator> group = nccl::make_group(*alone.world, stream);
  const double init_s = seconds_since(begin);

  const auto collectives = [&] {
    group->start_all_reduce("sum", values.in()).wait();
    group->start_all_to_all("to itself", values.out(), values.in()).wait();
  };
  stage = "all_reduce and a message to itself";
  values.fill(1);
  collectives();
  values.check(values.out(), 1);

  stage = "capture of all_reduce and of a message to itself";
  {
    const cuda::Graph graph(stream, collectives);
    values.check(values.out(), 1);
    stage = "launch of the graph";
    for (const float value : {2.0f, 3.0f}) {
      values.fill(value);
      graph.launch(stream);
      values.check(values.out(), value);
      values.check(values.in(), value);
    }
  }

  stage = "finalize";
  const auto end = std::chrono::steady_clock::now();
  nccl::finalize(std::move(group));
  fmt::print(
      "nccl_one_rank: ok, NCCL {}.{}.{}, {}: init and split {:.2f} s, all_reduce, message, graph of both "
      "launched twice, finalize {:.2f} s\n",
      version / 10000, version / 100 % 100, version % 100, cuda::devices().front().name, init_s,
      seconds_since(end));
}

}  // namespace
}  // namespace ingot

int main() {
  std::signal(SIGALRM, ingot::end_late);
  alarm(ingot::kLimit_s);
  try {
    ingot::run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_one_rank: %s: %s\n", ingot::stage, error.what());
    return 1;
  }
}
