// Collectives and messages on as many ranks as mpirun starts. Every rank runs every test; expected values
// are computed from all ranks' inputs, which are a function of the rank.
//   --late, --mismatch, --error  fail in a chosen way; the caller checks the message and the exit status
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "ingot/comm/mesh.h"
#include "ingot/core/float16.h"
#include "ingot/core/philox.h"
#include "tests/comm/mpi/ranks_main.h"

namespace ingot {
namespace {

template <typename T>
Tensor view(std::vector<T>& v) {
  return Tensor(v.data(), dtype_of<T>, {std::ssize(v)});
}

// The input of rank r at index i.
float input(int r, int64_t i) {
  const RandomKey key{.seed = 5, .purpose = Purpose::kSample, .stream = static_cast<uint32_t>(r), .step = 0};
  return random_normal(key, static_cast<uint64_t>(i));
}
template <typename T>
std::vector<T> inputs(int r, int64_t n) {
  std::vector<T> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = T(input(r, i) * (sizeof(T) == 4 ? 1 : 4));
  return v;
}
// Returns the sum over the ranks, in rank order, of element i; bf16 is summed in f32.
template <typename T>
float sum_of_inputs(const Communicator& group, int64_t i, int64_t n) {
  float sum = 0;
  for (int r = 0; r < group.size(); ++r) {
    const float x = static_cast<float>(inputs<T>(r, n)[static_cast<size_t>(i)]);
    sum = r == 0 ? x : sum + x;
  }
  return sum;
}

template <typename T>
void expect_all_reduce(int64_t n) {
  std::vector<T> t = inputs<T>(world->rank(), n);
  world->all_reduce("test", view(t));
  for (int64_t i = 0; i < n; i += 1 + n / 97)
    ASSERT_EQ(static_cast<float>(t[static_cast<size_t>(i)]),
              static_cast<float>(T(sum_of_inputs<T>(*world, i, n))))
        << n << " " << i;
}

TEST(Ranks, AllReduceAddsInOrderOfTheRanks) {
  for (int64_t n : {1, 7, 64, 5000, 20'011}) {  // sent whole or in chunks
    expect_all_reduce<float>(n);
    expect_all_reduce<bf16>(n);
    expect_all_reduce<f16>(n);
  }
  std::vector<int64_t> largest = {world->rank(), -world->rank()};
  world->all_reduce("largest", view(largest), ReduceOp::kMax);
  EXPECT_EQ(largest[0], world->size() - 1);
  EXPECT_EQ(largest[1], 0);
}

TEST(Ranks, AllGatherWorksForEveryDtype) {
  for (DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::i32, DType::u8, DType::i64, DType::f64}) {
    const int64_t n = 1003;
    const size_t bytes = static_cast<size_t>(n) * size_bytes(dtype);
    std::vector<uint8_t> own(bytes, static_cast<uint8_t>(world->rank() + 1));
    std::vector<uint8_t> all(bytes * static_cast<size_t>(world->size()));
    world->all_gather_into("test", Tensor(all.data(), dtype, {world->size() * n}),
                           Tensor(own.data(), dtype, {n}));
    for (size_t r = 0; r < static_cast<size_t>(world->size()); ++r)
      for (size_t i : {size_t{0}, bytes / 2, bytes - 1}) ASSERT_EQ(all[r * bytes + i], r + 1);
  }
}

TEST(Ranks, ReduceScatterLeavesEveryRankItsShard) {
  const int64_t n = 301, all = n * world->size();
  std::vector<bf16> in = inputs<bf16>(world->rank(), all);
  std::vector<bf16> rounded(static_cast<size_t>(n));
  std::vector<float> exact(static_cast<size_t>(n));
  Pending first = world->start_reduce_scatter("rounded", view(rounded), view(in));
  first.wait();
  world->reduce_scatter("exact", view(exact), view(in));
  for (int64_t i = 0; i < n; i += 17) {
    const float want = sum_of_inputs<bf16>(*world, world->rank() * n + i, all);
    ASSERT_EQ(exact[static_cast<size_t>(i)], want);
    ASSERT_EQ(rounded[static_cast<size_t>(i)].bits, bf16(want).bits);
  }
  // In place: the output is this rank's rows of the input.
  std::vector<float> whole = inputs<float>(world->rank(), all);
  const Tensor part = view(whole).rows(world->rank() * n, (world->rank() + 1) * n);
  world->reduce_scatter("in place", part, view(whole));
  ASSERT_EQ(part.as<float>()[5], sum_of_inputs<float>(*world, world->rank() * n + 5, all));
}

TEST(Ranks, AllToAllDeliversEveryBlock) {
  for (const int64_t n : {int64_t{1}, int64_t{3001}}) {
    std::vector<float> in = inputs<float>(world->rank(), n * world->size()), out(in.size());
    world->start_all_to_all("test", view(out), view(in)).wait();
    for (int r = 0; r < world->size(); ++r) {
      const std::vector<float> theirs = inputs<float>(r, n * world->size());
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(out[static_cast<size_t>(r * n + i)], theirs[static_cast<size_t>(world->rank() * n + i)]);
    }
  }
  std::vector<float> uneven(static_cast<size_t>(world->size()) + 1);
  if (world->size() > 1) {
    EXPECT_THROW(static_cast<void>(world->start_all_to_all("uneven", view(uneven), view(uneven))), Error);
  }
}

TEST(Ranks, BroadcastSendsTheRootsData) {
  for (int root = 0; root < world->size(); ++root) {
    std::vector<float> t = inputs<float>(world->rank(), 10'000);
    world->broadcast("test", view(t), root);
    ASSERT_EQ(t, inputs<float>(root, 10'000));
  }
}

TEST(Ranks, SmallMessagesReachEveryRank) {
  const double rank = world->rank(), size = world->size();
  std::vector<double> values = {rank + 1, world->rank() == 0 ? 0x1p53 : 1.0};
  world->sum(values);
  EXPECT_EQ(values[0], size * (size + 1) / 2);
  EXPECT_EQ(values[1], 0x1p53) << "1 is added to 2^53, which rounds it away, from the second rank on";
  EXPECT_EQ(world->max(-rank), 0);
  EXPECT_EQ(world->is_any(world->rank() == world->size() - 1), true);
  EXPECT_FALSE(world->is_any(false));
  for (int root = 0; root < world->size(); ++root) {
    std::string text(static_cast<size_t>(world->rank() * 1000), 'a');
    world->broadcast_text(text, root);
    EXPECT_EQ(text.size(), static_cast<size_t>(root * 1000));
    EXPECT_EQ(world->broadcast_number(-world->rank(), root), -root);
  }
}

TEST(Ranks, MessagesKeepTheirOrderAndMayCross) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  const int next = (world->rank() + 1) % world->size(),
            last = (world->rank() + world->size() - 1) % world->size();
  constexpr int kCount = 5;
  std::vector<std::vector<float>> out, in(kCount, std::vector<float>(100'000));
  std::vector<Pending> pending;
  for (int m = 0; m < kCount; ++m) {
    out.push_back(inputs<float>(world->rank() * kCount + m, 100'000));
    pending.push_back(world->start_send("ring", view(out.back()), next));
  }
  for (std::vector<float>& t : in) world->receive("ring", view(t), last);
  for (Pending& p : pending) p.wait();
  for (int m = 0; m < kCount; ++m)
    ASSERT_EQ(in[static_cast<size_t>(m)], inputs<float>(last * kCount + m, 100'000));
}

TEST(Ranks, ManyPendingOperationsKeepTheirOrder) {
  std::vector<std::vector<float>> tensors;
  std::vector<Pending> pending;
  for (int k = 0; k < 200; ++k) tensors.emplace_back(10, static_cast<float>(k));  // more than the queue holds
  for (std::vector<float>& t : tensors) pending.push_back(world->start_all_reduce("bucket", view(t)));
  for (size_t k = 0; k < pending.size(); ++k) {
    pending[k].wait();
    ASSERT_EQ(tensors[k][9], static_cast<float>(k) * static_cast<float>(world->size()));
  }
}

TEST(Ranks, SplitGroupsAreIndependent) {
  const auto half = world->split(world->rank() % 2, -world->rank(), "half");
  const int others = (world->size() + 1 - world->rank() % 2) / 2;
  ASSERT_EQ(half->size(), others);
  std::vector<int64_t> members = {world->rank()};
  std::vector<int64_t> all(static_cast<size_t>(others));
  half->all_gather_into("members", view(all), view(members));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i] % 2, world->rank() % 2);
    if (i > 0) {
      EXPECT_LT(all[i], all[i - 1]);  // members are ordered by key
    }
  }
}

TEST(Ranks, AMeshHasItsGroups) {
  const int size = world->size();
  const MeshShape shape = size % 8 == 0 ? MeshShape{.pp = size / 8, .dp_replicate = 2, .dp_shard = 2, .tp = 2}
                          : size % 2 == 0
                              ? MeshShape{.pp = size / 2, .dp_replicate = 1, .dp_shard = 1, .tp = 2}
                              : MeshShape{.pp = 1, .dp_replicate = size, .dp_shard = 1, .tp = 1};
  const Mesh mesh = Mesh::make(*world, shape);
  EXPECT_EQ(mesh.pp->size(), shape.pp);
  EXPECT_EQ(mesh.replicate->size(), shape.dp_replicate);
  EXPECT_EQ(mesh.shard->size(), shape.dp_shard);
  EXPECT_EQ(mesh.tp->size(), shape.tp);
  EXPECT_EQ(mesh.dp->size(), shape.dp_replicate * shape.dp_shard);
  EXPECT_EQ(mesh.tp->rank(), mesh.place.tp_rank);
  EXPECT_EQ(mesh.pp->rank(), mesh.place.stage);
  std::vector<int64_t> own = {world->rank()}, group(static_cast<size_t>(shape.tp));
  mesh.tp->all_gather_into("ranks", view(group), view(own));
  for (int t = 0; t < shape.tp; ++t) {
    MeshPlace place = mesh.place;
    place.tp_rank = t;
    EXPECT_EQ(group[static_cast<size_t>(t)], rank_at(shape, place));
  }
}

// The last two ranks stay away from a collective that the other ranks wait in.
void be_late() {
  std::vector<float> t(4);
  world->barrier("before");
  if (world->rank() + 1 < world->size() - 1) world->all_reduce("gradients", view(t));
  std::this_thread::sleep_for(std::chrono::seconds(30));
}

void call_something_else() {
  std::vector<float> t(4);
  world->all_reduce(world->rank() == 2 ? "two" : "one", view(t));
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  const std::string mode = argc > 1 ? argv[1] : "";
  MpiJob job({.timeout_s = mode == "--late" ? 1.0 : 100.0, .verifies = true});
  world = &job.world();
  if (mode == "--late") be_late();
  if (mode == "--mismatch") call_something_else();
  if (mode == "--error") {
    if (world->rank() == 1) job.abort("step 7: the loss is not finite", 5);
    world->barrier("never");
  }
  return run_tests_on(job, argc, argv);
}
