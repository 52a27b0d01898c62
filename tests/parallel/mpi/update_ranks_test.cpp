// Tests DistributedMuon on as many ranks as mpirun starts. Sharded parameters, updated by every rule,
// must equal those that one rank updates whole, and computation and messages must come in the right
// order. Every message takes a while.
#include <algorithm>
#include <deque>

#include "ingot/comm/communicator.h"
#include "ingot/parallel/distributed_muon.h"
#include "tests/parallel/mpi/ranks_fixture.h"

namespace ingot {
namespace {

constexpr int kUpdates = 4;
constexpr double kLr = 0.02;

struct Submitted {
  const char* name;
  Shape shape;
  std::vector<int64_t> fused_rows = {};
};
// The blocks of 256 elements of "tall" end within rows. 8-bit rules keep f32 states of the last two
// parameters.
const std::vector<Submitted>& given() {
  static const std::vector<Submitted> all = {{"wide", {64, 80}},
                                             {"tall", {96, 56}},
                                             {"fused", {96, 64}, {32, 32, 32}},
                                             {"small", {24, 16}},
                                             {"v", {300}}};
  return all;
}

std::vector<float> numbers(size_t param, int t) {
  std::vector<float> x(static_cast<size_t>(given()[param].shape.elements()));
  const RandomKey key{.seed = 9,
                      .purpose = Purpose::kSample,
                      .stream = static_cast<uint32_t>(param),
                      .step = static_cast<uint64_t>(t)};
  for (size_t i = 0; i < x.size(); ++i) x[i] = random_normal(key, i);
  return x;
}

// Cut says how parameters are cut into shards.
enum class Cut { kWhole, kShards, kRows, kColumns };

std::vector<Rect> rects_here(const Submitted& g, Cut cut, int rank, int ranks) {
  const int64_t R = g.shape[0], C = g.shape.rank() == 2 ? g.shape[1] : 1;
  ParamSpec spec{.name = g.name, .shape = g.shape};
  if (cut == Cut::kWhole) return rects_of(spec, 0, R * C);
  if (cut == Cut::kShards) {
    const int64_t blocks = (R * C + 255) / 256;
    const Range range = split_range(blocks, ranks, rank);
    return rects_of(spec, std::min(R * C, range.begin * 256), std::min(R * C, range.end * 256));
  }
  if (cut == Cut::kColumns && g.shape.rank() == 2)
    return {{.row = 0, .rows = R, .column = rank * C / ranks, .columns = C / ranks}};
  if (g.shape.rank() == 1) return rects_of(spec, 0, R);  // every rank has the whole vector
  std::vector<Rect> rects;
  int64_t begin = 0;
  for (const int64_t rows : g.fused_rows.empty() ? std::vector<int64_t>{R} : g.fused_rows) {
    rects.push_back({.row = begin + rank * rows / ranks, .rows = rows / ranks, .column = 0, .columns = C});
    begin += rows;
  }
  return rects;
}

// One rank's shards of the parameters, with memory of their own. The weights of matrices are f32, or bf16
// with stochastic rounding.
class Pieces {
 public:
  Pieces(Cut cut, int rank, int ranks, DType weights) {
    for (size_t p = 0; p < given().size(); ++p) {
      const Submitted& g = given()[p];
      rects_.push_back(rects_here(g, cut, rank, ranks));
      int64_t n = 0;
      for (const Rect& rect : rects_.back()) n += rect.elements();
      const bool is_matrix = g.shape.rank() == 2, is_shard = cut != Cut::kWhole;
      const bool is_shared = cut == Cut::kRows || cut == Cut::kColumns;
      list.push_back(
          {.name = g.name,
           .role = is_matrix ? ParamRole::kMatrix : ParamRole::kNorm,
           .shape = !is_shard   ? g.shape
                    : is_matrix ? Shape{1, n}
                                : Shape{n},
           .logical = is_shard ? g.shape : Shape{},
           .rects = is_shard ? rects_.back() : std::vector<Rect>{},
           .is_scattered = is_shared && is_matrix,
           .fused_rows = g.fused_rows,
           .w = take(n, is_matrix ? weights : DType::f32),
           .rounding = {.seed = 5, .purpose = Purpose::kRounding, .stream = static_cast<uint32_t>(p)},
           .g = take(n, DType::f32),
           .is_added = !is_shared || is_matrix || rank == 0});
      fill(list.back().w, p, 0);
    }
  }
  void draw_gradients(int t) {
    for (size_t p = 0; p < list.size(); ++p) fill(list[p].g, p, t);
  }
  const std::vector<Rect>& rects(size_t p) const { return rects_[p]; }

  std::vector<OptimParam> list;

 private:
  Tensor take(int64_t n, DType dtype) {
    memory_.emplace_back(static_cast<size_t>(std::max<int64_t>(n, 1)));
    return Tensor(memory_.back().data(), dtype, {n});
  }
  void fill(const Tensor& shard, size_t p, int t) {
    const std::vector<float> whole = numbers(p, t);
    const int64_t C = given()[p].shape.rank() == 2 ? given()[p].shape[1] : 1;
    int64_t here = 0;
    for (const Rect& rect : rects_[p])
      for (int64_t r = 0; r < rect.rows; ++r)
        for (int64_t c = 0; c < rect.columns; ++c, ++here) {
          const float x = whole[static_cast<size_t>((rect.row + r) * C + rect.column + c)];
          if (shard.dtype == DType::f32)
            shard.as<float>()[here] = x;
          else
            shard.as<bf16>()[here] = bf16(x);
        }
  }

  std::vector<std::vector<Rect>> rects_;
  std::deque<std::vector<float>> memory_;
};

OptimizerConfig config_of(std::string_view kind) {
  OptimizerConfig config{.lr = kLr, .rule = {.kind = std::string(kind)}};
  if (!rule_entry(kind).is_matrix_rule) return config;
  config.rule.kind = "adamw";
  GroupConfig matrices{.roles = {ParamRole::kMatrix}};
  matrices.rule.kind = kind;
  if (kind == "muon")
    matrices.rule.options = {{&Muon::Options::newton_schulz_dtype, DType::f32},
                             {&Muon::Options::normuon, true},
                             {&Muon::Options::cautious_decay, true}};
  config.groups = {matrices};
  return config;
}

// A mesh: `sharing` ranks shard the weights, and the groups of such ranks are replicas.
struct Groups {
  std::unique_ptr<Communicator> weights, replicas;

  explicit Groups(int sharing)
      : weights(world->split(world->rank() / sharing, world->rank(), "weights")),
        replicas(world->split(world->rank() % sharing, world->rank(), "replicate")) {}
};

double number(const Tensor& w, int64_t i) {
  return static_cast<double>(w.dtype == DType::f32 ? w.as<float>()[i] : static_cast<float>(w.as<bf16>()[i]));
}

// Returns the largest difference between this rank's weights and those that one rank computes from the
// whole parameters.
double difference_from_whole(std::string_view kind, Cut cut, int sharing, DType payload,
                             DType weights = DType::f32) {
  const Groups groups(sharing);
  DistributedMuon update(*groups.weights, *groups.replicas, payload);
  const bool is_cut = sharing > 1;
  Pieces own(is_cut ? cut : Cut::kWhole, groups.weights->rank(), sharing, weights),
      whole(Cut::kWhole, 0, 1, weights);
  Optimizer shared(config_of(kind), own.list, world->size() > 1 ? &update : nullptr);
  Optimizer alone(config_of(kind), whole.list);
  Stream stream;
  for (int t = 1; t <= kUpdates; ++t) {
    own.draw_gradients(t);
    whole.draw_gradients(t);
    shared.step({.lr = kLr}, 0.5f, stream);
    alone.step({.lr = kLr}, 0.5f, stream);
  }
  double most = 0;
  for (size_t p = 0; p < given().size(); ++p) {
    const int64_t C = given()[p].shape.rank() == 2 ? given()[p].shape[1] : 1;
    const Tensor &w = own.list[p].w, &want = whole.list[p].w;
    int64_t here = 0;
    for (const Rect& rect : own.rects(p))
      for (int64_t r = 0; r < rect.rows; ++r)
        for (int64_t c = 0; c < rect.columns; ++c)
          most = std::max(most,
                          std::abs(number(w, here++) - number(want, (rect.row + r) * C + rect.column + c)));
  }
  return most;
}

std::vector<int> sharings() {
  std::vector<int> all;
  for (int sharing = 1; sharing <= world->size(); sharing *= 2) all.push_back(sharing);
  return all;
}

// Shards have the bits of the whole: elements are updated independently, 8-bit blocks have their own
// maximum, and matrices are orthogonalised whole.
TEST(DistributedMuon, ShardsAreUpdatedToTheBitAsTheWholeMatrix) {
  for (const RuleEntry& rule : rules()) {
    if (rule.name == "adafactor") continue;  // its sums have another order; see the next test
    for (const int sharing : sharings())
      for (const Cut cut : {Cut::kShards, Cut::kRows, Cut::kColumns})
        EXPECT_EQ(difference_from_whole(rule.name, cut, sharing, DType::f32), 0)
            << rule.name << ", " << sharing << " share, cut " << static_cast<int>(cut);
  }
}

// The random bits of an element are those of its place in the whole matrix, wherever its shard begins.
TEST(DistributedMuon, ShardsOfBf16WeightsAreRoundedAsTheWholeMatrix) {
  for (const char* rule : {"adamw", "adamw8bit", "lion", "muon"})
    for (const int sharing : sharings())
      for (const Cut cut : {Cut::kShards, Cut::kRows, Cut::kColumns})
        EXPECT_EQ(difference_from_whole(rule, cut, sharing, DType::f32, DType::bf16), 0)
            << rule << ", " << sharing << " share, cut " << static_cast<int>(cut);
}

// Sums of up to 96 * 80 squares have a different order. The update, lr * |U| with |U| up to about 10,
// carries their error on.
TEST(DistributedMuon, AdafactorOfShardsMatchesTheWholeMatrix) {
  const double tolerance = kUpdates * kLr * 10 * std::sqrt(96.0 * 80) * 0x1p-24;
  for (const int sharing : sharings())
    for (const Cut cut : {Cut::kShards, Cut::kRows, Cut::kColumns})
      EXPECT_LE(difference_from_whole("adafactor", cut, sharing, DType::f32), tolerance)
          << sharing << " share, cut " << static_cast<int>(cut);
}

// Numbers of at most 1.21 * sqrt(R / C) * sqrt(R) (NorMuon may give one row the norm of the whole matrix)
// are rounded by 2^-9 of their size in every update.
TEST(DistributedMuon, DirectionsInBf16AreRoundedOnce) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  const double most = 1.21 * std::sqrt(96.0 / 56) * std::sqrt(96.0);
  for (const int sharing : sharings())
    EXPECT_LE(difference_from_whole("muon", Cut::kShards, sharing, DType::bf16),
              kUpdates * kLr * most * 0x1p-9);
  EXPECT_GT(difference_from_whole("muon", Cut::kShards, 1, DType::bf16), 0);
}

// ---- order of computation and messages ----

std::vector<std::string> events;

// Records when a group's operations are started and when they have been waited for.
class Recorder : public Communicator {
 public:
  explicit Recorder(Communicator& group)
      : Communicator(group.name(), group.rank(), group.size()), group_(group) {}
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return group_.split(color, key, std::move(name));
  }
  TimeLimit& time_limit() override { return group_.time_limit(); }

 private:
  uint64_t start(const CommOperation& o) override {
    names_.emplace_back(o.name);
    events.push_back("start " + names_.back());
    switch (o.kind) {
      case CommOperation::Kind::kAllGather:
        pending_.push_back(group_.start_all_gather_into(o.name, o.out, o.in));
        break;
      case CommOperation::Kind::kAllToAll:
        pending_.push_back(group_.start_all_to_all(o.name, o.out, o.in));
        break;
      default:
        pending_.push_back(group_.start_all_reduce(o.name, o.out, o.op));
    }
    return pending_.size() - 1;
  }
  bool is_done(uint64_t ticket) override { return pending_[ticket].is_done(); }
  void wait(uint64_t ticket) override {
    events.push_back("wait for " + names_[ticket]);
    pending_[ticket].wait();
  }

  Communicator& group_;
  std::vector<Pending> pending_;
  std::vector<std::string> names_;
};

// Computes nothing; it records each call of compute().
class RecordedWork : public MatrixWork {
 public:
  void prepare(size_t, const Tensor& u) override { std::fill_n(u.as<float>(), u.elements(), 1.0f); }
  void compute(size_t, const Tensor&) override { events.push_back(fmt::format("compute {}", computed_++)); }
  void apply(size_t, const Tensor&) override { ++applied; }
  int applied = 0;

 private:
  int computed_ = 0;
};

int64_t when(const std::string& event) {
  const auto found = std::ranges::find(events, event);
  EXPECT_NE(found, events.end()) << event;
  return found - events.begin();
}

// Runs DistributedMuon on 16 equal matrices and returns the number of rounds, which is the same on each rank.
int run_rounds(int sharing) {
  const int rounds = 16 / world->size();
  const Groups groups(sharing);
  Recorder weights(*groups.weights), replicas(*groups.replicas);
  DistributedMuon update(weights, replicas, DType::bf16);
  std::vector<MatrixTask> tasks;
  const ParamSpec spec{.name = "w", .shape = {32, 32}};
  const Range own = split_range(1024, sharing, groups.weights->rank());
  for (int t = 0; t < 16; ++t)
    tasks.push_back(
        {.name = "w", .shape = {32, 32}, .rects = rects_of(spec, own.begin, own.end), .flops = 1});
  update.plan(tasks);
  events.clear();
  Arena scratch("scratch", update.scratch_bytes(Memory::kHost));
  Stream stream;
  RecordedWork work;
  update.run(work, scratch, stream);
  EXPECT_EQ(work.applied, 16);
  const auto computed = [](const std::string& event) { return event.starts_with("compute"); };
  EXPECT_EQ(std::ranges::count_if(events, computed), rounds) << "every rank computes as much";
  return rounds;
}

// Expects that the messages of round k run while round k + 1 computes, and that a rank waits for them
// only after that.
void expect_overlap(const std::string& what, int rounds) {
  for (int k = 0; k + 1 < rounds; ++k) {
    const std::string message = fmt::format("muon {} {}", what, k);
    EXPECT_LT(when(fmt::format("compute {}", k)), when("start " + message));
    EXPECT_LT(when("start " + message), when(fmt::format("compute {}", k + 1)));
    EXPECT_LT(when(fmt::format("compute {}", k + 1)), when("wait for " + message));
  }
}

TEST(DistributedMuon, ReplicasGatherWhileTheNextRoundComputes) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  expect_overlap("gather", run_rounds(1));
}

TEST(DistributedMuon, ShardsScatterAndGatherWhileARoundComputes) {
  if (world->size() == 1) GTEST_SKIP() << "one rank";
  const int rounds = run_rounds(world->size());
  expect_overlap("return", rounds);
  for (int k = 0; k + 1 < rounds; ++k) {
    const std::string next = fmt::format("muon collect {}", k + 1);
    EXPECT_LT(when("start " + next), when(fmt::format("compute {}", k)));
    EXPECT_LT(when(fmt::format("compute {}", k)), when("wait for " + next));
  }
}

TEST(DistributedMuon, ReplicasOfShardsOverlapBoth) {
  if (world->size() < 4) GTEST_SKIP() << "has 4 ranks";
  const int rounds = run_rounds(2);
  expect_overlap("return", rounds);
  for (int k = 0; k + 2 < rounds; ++k) {
    const std::string gather = fmt::format("muon gather {}", k);
    EXPECT_LT(when("start " + gather), when(fmt::format("compute {}", k + 2)));
    EXPECT_LT(when(fmt::format("compute {}", k + 2)), when("wait for " + gather));
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv, 0.002); }
