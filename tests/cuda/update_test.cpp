// Compares update rules on a device with the CPU's optimizer, for the same parameters.
#include <array>
#include <limits>
#include <utility>

#include "ingot/ops/loss_sums.h"
#include "ingot/optim/cuda_step_check.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/rules/dynamic_map.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/cuda/on_device.h"

namespace ingot::test {
namespace {

enum class Weights { kF32, kF32WithCopy, kF32WithF16, kTail, kStochastic };

// One parameter with everything that a rule may read or write, on the host and a copy on the device.
template <typename Rule>
class Twin : protected OnCuda {
 public:
  Twin(int64_t n, Weights kind, bool has_average) : n_(n) {
    const bool is_f32 = kind != Weights::kTail && kind != Weights::kStochastic;
    host_.param.name = "w";
    host_.param.shape = {n};
    host_.param.rounding = {.seed = 5, .purpose = Purpose::kRounding, .stream = 2, .step = 0};
    there_ = host_;
    add(&OptimParam::w, random_tensor(is_f32 ? DType::f32 : DType::bf16, {n}, 1));
    add(&OptimParam::g, random_tensor(DType::f32, {n}, 2));
    if (kind == Weights::kTail) add(&OptimParam::tail, tails());
    if (kind == Weights::kF32WithCopy) add(&OptimParam::compute, zeros(DType::bf16, {n}));
    if (kind == Weights::kF32WithF16) add(&OptimParam::compute, zeros(DType::f16, {n}));
    for (size_t s = 0; s < Rule::kState.size(); ++s) {
      Buffer state = random_tensor(DType::f32, {n}, static_cast<uint32_t>(3 + s), 0.1);
      for (int64_t i = 0; i < n; ++i)
        state.tensor().template as<float>()[i] = std::abs(state.tensor().template as<float>()[i]);
      host_.state.push_back(keep(std::move(state)));
      there_.state.push_back(devices_.back());
    }
    if (has_average) {
      host_.average = keep(random_tensor(DType::f32, {n}, 9));
      there_.average = devices_.back();
    }
  }

  // Makes both a shard whose elements lie in the rectangles of a matrix.
  void scatter(const Shape& matrix, const std::vector<Rect>& rects) {
    for (ParamState* p : {&host_, &there_}) {
      p->param.shape = {1, n_};
      p->param.logical = matrix;
      p->param.rects = rects;
      p->param.is_scattered = true;
    }
  }

  // The next step overwrites the gradient.
  void keep_gradient() { host_.param.keeps_g = there_.param.keeps_g = true; }

  // Another rank counts the last elements.
  void leave_copies(int64_t copies) { host_.param.copies = there_.param.copies = copies; }

  void step_both(float clip) {
    const typename Rule::Options options;
    RuleStep step{.lr = 0.01,
                  .weight_decay = 0.1,
                  .momentum = 0.9,
                  .t = 3,
                  .grad_scale = 0.5f * clip,
                  .average_part = 0.25f};
    ElementwiseRule<Rule>(options).update_range(host_, {0, n_}, step);
    step.grad_scale = 0.5f;
    Buffer factor(DType::f32, {1});
    assign(factor, {static_cast<double>(clip)});
    const OnDevice factor_there = put(factor);
    step.factor = factor_there;
    cuda::update_elementwise(there_, Rule(options, step), step, {}, stream);
    synchronize(stream);
  }

  void leave_out() {
    const typename Rule::Options options;
    Buffer factor(DType::f32, {1});
    assign(factor, {std::numeric_limits<double>::quiet_NaN()});
    const OnDevice factor_there = put(factor);
    RuleStep step{.lr = 0.01, .weight_decay = 0.1, .momentum = 0.9, .t = 3, .average_part = 0.25f};
    step.factor = factor_there;
    cuda::update_elementwise(there_, Rule(options, step), step, {}, stream);
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const Buffer got = devices_[i].to_host();
      if (there_.param.g.data == devices_[i].tensor().data)
        for (double left : to_doubles(got)) ASSERT_EQ(left, 0);
      else
        expect_same_bits(got, hosts_[i], fmt::format("tensor {}", i));
    }
  }

  // Compares the sums of squares of weights, gradients and changes, and the dot product of change and weight.
  void expect_equal_totals(int64_t n) {
    const typename Rule::Options options;
    const RuleStep step{.lr = 0.01, .momentum = 0.9, .t = 3, .grad_scale = 0.5f, .wants_totals = true};
    const RangeTotals want = ElementwiseRule<Rule>(options).update_range(host_, {0, n}, step);
    const OnDevice totals = result(DType::f32, {cuda::update_blocks(n), 4});
    cuda::update_elementwise(there_, Rule(options, step), step, totals, stream);
    const std::vector<double> got = to_doubles(totals.to_host());
    std::array<double, 4> sums{};
    for (size_t i = 0; i < got.size(); ++i) sums[i % 4] += got[i];
    EXPECT_NEAR(sums[0], want.weight_squares, 1e-5 * want.weight_squares);
    EXPECT_NEAR(sums[1], want.grad_squares, 1e-5 * want.grad_squares);
    EXPECT_NEAR(sums[2], want.update_squares, 1e-4 * want.update_squares);
    const double size = std::sqrt(want.update_squares * want.weight_squares);
    EXPECT_NEAR(sums[3], want.update_dot_weight, 1e-4 * size);
  }

  // Compares tensors in the order in which they were made: f32 within a few
  // roundings, 16-bit floats within one.
  void expect_equal() {
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const Buffer got = devices_[i].to_host();
      const Tensor& want = hosts_[i];
      if (want.dtype == DType::u16) continue;  // tails are not compared: their last bits may differ
      const double tolerance = want.dtype == DType::f32 ? 0x1p-20 : 2 * unit_roundoff(want.dtype);
      expect_close(got, to_doubles(want), tolerance, fmt::format("tensor {}", i));
    }
  }
  Tensor host(size_t i) const { return hosts_[i]; }
  Buffer device(size_t i) const { return devices_[i].to_host(); }

 private:
  Buffer tails() const {
    Buffer t(DType::u16, {n_});
    for (int64_t i = 0; i < n_; ++i) t.tensor().as<uint16_t>()[i] = static_cast<uint16_t>(i * 7919);
    return t;
  }
  Tensor keep(Buffer&& buffer) {
    devices_.push_back(put(buffer));
    hosts_.push_back(std::move(buffer));
    return hosts_.back();
  }
  void add(Tensor OptimParam::*place, Buffer&& buffer) {
    host_.param.*place = keep(std::move(buffer));
    there_.param.*place = devices_.back();
  }

  int64_t n_;
  ParamState host_, there_;
  std::vector<Buffer> hosts_;
  std::vector<OnDevice> devices_;
};

template <typename Rule>
class CudaUpdate : public ::testing::Test {};
template <typename... Rules>
::testing::Types<Rules...> types_of(TypeList<Rules...> rules);
using Rules = decltype(types_of(ElementwiseRules()));
TYPED_TEST_SUITE(CudaUpdate, Rules);

TYPED_TEST(CudaUpdate, MovesWeightsStateAndAverageAsTheCpu) {
  for (int64_t n : {1, 33, 2048})
    for (Weights kind : {Weights::kF32, Weights::kF32WithCopy, Weights::kF32WithF16, Weights::kTail}) {
      Twin<TypeParam> twin(n, kind, true);
      twin.step_both(0.75f);
      twin.expect_equal();
    }
}

TYPED_TEST(CudaUpdate, KeepsAGradientThatTheNextStepOverwrites) {
  Twin<TypeParam> twin(2048, Weights::kF32WithCopy, false);
  const Doubles gradient = to_doubles(twin.host(1));
  twin.keep_gradient();
  twin.step_both(1);
  twin.expect_equal();
  EXPECT_EQ(to_doubles(twin.host(1)), gradient);
}

// Returns how many of the 2048 weights of the device differ from the host's after an update.
template <typename Rule>
int differently_rounded(Twin<Rule>& twin) {
  twin.step_both(1);
  const Buffer got = twin.device(0);
  int different = 0;
  for (int64_t i = 0; i < 2048; ++i)
    different += got.tensor().as<bf16>()[i].bits != twin.host(0).template as<bf16>()[i].bits ? 1 : 0;
  for (double g : to_doubles(twin.device(1))) EXPECT_EQ(g, 0);
  return different;
}

constexpr int kAtTheBorder = 4;  // numbers that may round the other way if their last f32 bit differs

TYPED_TEST(CudaUpdate, RoundsStochasticallyByTheSameNumbers) {
  Twin<TypeParam> twin(2048, Weights::kStochastic, false);
  EXPECT_LE(differently_rounded(twin), kAtTheBorder);
}

// 64 columns of a matrix, some of which packs of 4 elements could not read, and two groups of its rows.
TYPED_TEST(CudaUpdate, RoundsScatteredShardsByTheirPlacesInTheMatrix) {
  for (const auto& [width, first] : {std::pair<int64_t, int64_t>{96, 32}, {97, 32}, {100, 33}}) {
    Twin<TypeParam> columns(2048, Weights::kStochastic, false);
    columns.scatter({32, width}, {{.row = 0, .rows = 32, .column = first, .columns = 64}});
    EXPECT_LE(differently_rounded(columns), kAtTheBorder) << width << ", " << first;
  }
  Twin<TypeParam> rows(2048, Weights::kStochastic, false);
  rows.scatter({96, 32}, {{.row = 8, .rows = 24, .columns = 32}, {.row = 40, .rows = 40, .columns = 32}});
  EXPECT_LE(differently_rounded(rows), kAtTheBorder);
}

// A NaN factor skips the update: only the gradient changes, and it is zeroed.
TYPED_TEST(CudaUpdate, IsLeftOutWhereTheDeviceSaysSo) {
  for (Weights kind : {Weights::kF32WithCopy, Weights::kTail, Weights::kStochastic}) {
    Twin<TypeParam> twin(2048, kind, true);
    twin.leave_out();
  }
}

TYPED_TEST(CudaUpdate, AddsUpWhatHappened) {
  for (int64_t n : {1, 33, 2048}) {
    Twin<TypeParam> twin(n, Weights::kF32, false), with_copies(n, Weights::kF32, false);
    twin.expect_equal_totals(n);
    with_copies.leave_copies(n / 3);
    with_copies.expect_equal_totals(n);
  }
}

// Codes and scales follow from the same numbers; a number at the border of two codes may take either.
TEST(CudaAdamW8bit, UpdatesWeightsAndCodesAsOnTheCpu) {
  Stream stream = cuda::make_stream();
  constexpr int64_t n = 5000, kBlocks = (n + 255) / 256;
  const AdamW8bit::Options options;
  const AdamW8bit on_cpu(options);
  const std::unique_ptr<UpdateRule> on_device = AdamW8bit::make_on_device(options);
  const Reductions none;
  Arena scratch("scratch", Memory::kDevice);
  ParamState host, there;
  host.param.name = "w";
  host.param.shape = {n};
  Buffer w = random_tensor(DType::f32, {n}, 1), g = random_tensor(DType::f32, {n}, 2);
  Buffer m8(DType::u8, {n}), v8(DType::u8, {n}), m = zeros(DType::f32, {kBlocks}),
                                                 v = zeros(DType::f32, {kBlocks});
  std::memset(m8.tensor().data, kSignedZero, static_cast<size_t>(n));
  std::memset(v8.tensor().data, 0, static_cast<size_t>(n));
  const OnDevice w_there(w, stream), m8_there(m8, stream), v8_there(v8, stream), m_there(m, stream),
      v_there(v, stream);
  host.state = {m8, v8, m, v};
  there = host;
  there.param.w = w_there;
  there.state = {m8_there, v8_there, m_there, v_there};
  host.param.w = w;
  for (int64_t t = 1; t <= 3; ++t) {
    g = random_tensor(DType::f32, {n}, static_cast<uint32_t>(10 + t));
    const OnDevice g_there(g, stream);
    host.param.g = g;
    there.param.g = g_there;
    host.param.keeps_g = there.param.keeps_g = t == 3;
    const RuleStep step{.lr = 0.01, .weight_decay = 0.1, .momentum = 0.9, .t = t, .grad_scale = 0.5f};
    const ParamUpdate of_host{.p = host, .step = step, .reductions = none},
        of_there{.p = there, .step = step, .reductions = none};
    on_cpu.update({&of_host, 1}, scratch, stream);
    on_device->update({&of_there, 1}, scratch, stream);
    if (t == 3)
      expect_close(g_there.to_host(), to_doubles(g), 0, "a gradient that is kept");
    else
      for (double left : to_doubles(g_there.to_host())) ASSERT_EQ(left, 0);
  }
  expect_close(m_there.to_host(), to_doubles(m), 1e-6, "m_absmax");
  expect_close(v_there.to_host(), to_doubles(v), 1e-6, "v_absmax");
  int different = 0;
  for (const auto& [got, want] :
       {std::pair{m8_there.to_host(), m8.tensor()}, {v8_there.to_host(), v8.tensor()}})
    for (int64_t i = 0; i < n; ++i)
      different += got.tensor().as<uint8_t>()[i] != want.as<uint8_t>()[i] ? 1 : 0;
  EXPECT_LE(different, 8);
  const Doubles got = to_doubles(w_there.to_host()), want = to_doubles(w);
  int apart = 0;
  for (size_t i = 0; i < got.size(); ++i) apart += std::abs(got[i] - want[i]) > 1e-6 ? 1 : 0;
  EXPECT_LE(apart, different);
}

Buffer loss_totals(const std::vector<LossTotals>& rows) {
  Buffer sums(DType::u8, {static_cast<int64_t>(rows.size()), kLossTotalsBytes});
  std::memcpy(sums.tensor().data, rows.data(), rows.size() * sizeof(LossTotals));
  return sums;
}

OnDevice no_verdict(Stream& stream) {
  Buffer none(DType::u8, {cuda::kStepCheckBytes});
  std::memset(none.tensor().data, 0, none.tensor().bytes());
  return {none, stream};
}

cuda::StepCheck read_verdict(const OnDevice& verdict) {
  cuda::StepCheck read{};
  std::memcpy(&read, verdict.to_host().tensor().data, sizeof read);
  return read;
}

// The verdict of a single rank.
void check_alone(const OnDevice& verdict, const Tensor& parts, const Tensor& losses, double expected,
                 double limit, Stream& stream) {
  const OnDevice own(DType::u8, {1, cuda::kRankSumsBytes}, stream);
  cuda::sum_step(own.tensor().reshape({cuda::kRankSumsBytes}), parts, losses, {}, stream);
  cuda::check_step(verdict, own, expected, limit, stream);
  synchronize(stream);  // before own is freed
}

TEST(CudaVerdict, NormAndClipFactorEqualTheReference) {
  Stream stream = cuda::make_stream();
  const Buffer a = random_tensor(DType::f32, {100003}, 1), b = random_tensor(DType::f32, {4096}, 2);
  const OnDevice a_there(a, stream), b_there(b, stream);
  double squares = 0;
  for (double v : to_doubles(a)) squares += v * v;
  for (double v : to_doubles(b)) squares += v * v;
  std::array<cuda::SquareRange, 3> ranges{{{a_there.tensor().as<float>(), 100003},
                                           {b_there.tensor().as<float>(), 0},
                                           {b_there.tensor().as<float>(), 4096}}};
  Buffer table(DType::u8, {3, static_cast<int64_t>(sizeof(cuda::SquareRange))});
  std::memcpy(table.tensor().data, ranges.data(), sizeof ranges);
  const OnDevice table_there(table, stream);
  constexpr double kExpected = 60;  // tokens, of which 10 + 20 are counted
  for (double limit : {0.0, 1.0, 1e6}) {
    const OnDevice parts(DType::f32, {cuda::kSquareParts}, stream);
    cuda::sum_squares(parts, table_there, 100003, stream);
    const OnDevice sums(loss_totals({{2.5, 10, 1}, {3.5, 20, 2}}), stream), verdict = no_verdict(stream);
    check_alone(verdict, parts, sums, kExpected, limit, stream);
    const double length = 2 * std::sqrt(squares);
    const cuda::StepCheck got = read_verdict(verdict);
    EXPECT_NEAR(got.norm, length, 1e-5 * length);
    EXPECT_NEAR(got.factor, limit == 1.0 ? 2 / (length + 1e-6) : 2.0, 1e-5);
    EXPECT_EQ(got.is_bad, 0);
    EXPECT_EQ(got.loss, 6);
    EXPECT_EQ(got.counted, 30);
    EXPECT_EQ(got.correct, 3);
    std::vector<double> host_parts = to_doubles(parts.to_host());
    EXPECT_EQ(got.norm, 2 * std::sqrt(cuda::sum_of_parts(host_parts.data())))
        << "the host's order of the sum";
  }
}

// A loss or gradient that is not finite stays recorded until the host has read it.
TEST(CudaVerdict, StaysBadOnceItIsBad) {
  Stream stream = cuda::make_stream();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Buffer fine = zeros(DType::f32, {cuda::kSquareParts}), overflowed = zeros(DType::f32, {cuda::kSquareParts});
  fine.tensor().as<float>()[3] = 4;
  overflowed.tensor().as<float>()[7] = std::numeric_limits<float>::infinity();
  const OnDevice good(fine, stream), bad(overflowed, stream);
  const OnDevice losses(loss_totals({{1, 4, 0}}), stream), bad_losses(loss_totals({{kNaN, 4, 0}}), stream);
  for (const auto& [parts, sums] : {std::pair{&bad, &losses}, {&good, &bad_losses}}) {
    const OnDevice verdict = no_verdict(stream);
    check_alone(verdict, good, losses, 4, 1, stream);
    EXPECT_EQ(read_verdict(verdict).factor, static_cast<float>(1 / (2 + 1e-6)));
    check_alone(verdict, *parts, *sums, 4, 1, stream);
    EXPECT_EQ(read_verdict(verdict).is_bad, 1);
    check_alone(verdict, good, losses, 4, 1, stream);
    EXPECT_EQ(read_verdict(verdict).is_bad, 1);
    EXPECT_TRUE(std::isnan(read_verdict(verdict).factor));
    EXPECT_EQ(read_verdict(verdict).norm, 2);
  }
}

// Ranks 1 and 2 are replicas of each other, ranks 0 and 2 have the same tokens.
TEST(CudaVerdict, CountsWhatIsOnSeveralRanksOnce) {
  Stream stream = cuda::make_stream();
  std::array<cuda::RankSums, 3> ranks{
      {{9, 1.5, 10, 1, 1, 1}, {16, 2.5, 20, 2, 1, 1}, {16, 1.5, 10, 1, 0, 0}}};
  const auto verdict_of_ranks = [&] {
    Buffer host(DType::u8, {3, cuda::kRankSumsBytes});
    std::memcpy(host.tensor().data, ranks.data(), sizeof ranks);
    const OnDevice there(host, stream), verdict = no_verdict(stream);
    cuda::check_step(verdict, there, 60, 0, stream);
    return read_verdict(verdict);
  };
  const cuda::StepCheck got = verdict_of_ranks();
  EXPECT_EQ(got.norm, 2 * 5);
  EXPECT_EQ(got.factor, 2);
  EXPECT_EQ(got.loss, 4);
  EXPECT_EQ(got.counted, 30);
  EXPECT_EQ(got.correct, 3);
  EXPECT_EQ(got.is_bad, 0);
  ranks[2].squares = std::numeric_limits<double>::infinity();  // only where it is not counted
  EXPECT_EQ(verdict_of_ranks().is_bad, 1);
}

// Many tensors, more than one launch takes (80), of lengths for packs of 4 and of other lengths, some of
// several blocks, have the bits of updates one by one.
class ManyUpdates : public ::testing::Test, protected OnCuda {};

TEST_F(ManyUpdates, EqualUpdatesOneByOne) {
  constexpr int kCount = 200;
  constexpr int64_t kRoom = 2052;  // for each tensor
  struct Params {
    OnDevice w, g, m, v;
  };
  const auto make = [&] {
    const Shape all{kCount * kRoom};
    return Params{put(random_tensor(DType::f32, all, 1)), put(random_tensor(DType::f32, all, 2)),
                  put(zeros(DType::f32, all)), put(zeros(DType::f32, all))};
  };
  const Params together = make(), alone = make();
  const auto state_of = [](const Params& params, int i) {
    const int64_t n = std::array<int64_t, 4>{4, 7, 1500, 2052}[static_cast<size_t>(i % 4)];
    const auto part = [&](const OnDevice& t) { return t.tensor().rows(i * kRoom, i * kRoom + n); };
    ParamState p{.param = {}, .state = {part(params.m), part(params.v)}};
    p.param.name = "w";
    p.param.shape = {n};
    p.param.w = part(params.w);
    p.param.g = part(params.g);
    return p;
  };
  const AdamW::Options options;
  std::vector<RuleStep> steps;
  std::vector<ParamState> states;
  for (int i = 0; i < kCount; ++i) {
    steps.push_back(
        {.lr = 0.01 * (i + 1), .weight_decay = i % 3 == 0 ? 0.1 : 0, .momentum = 0.9, .average_part = 1});
    states.push_back(state_of(together, i));
  }
  std::vector<cuda::ElementwiseUpdate<AdamW>> updates;
  for (size_t i = 0; i < states.size(); ++i)
    updates.push_back({&states[i], AdamW(options, steps[i]), &steps[i], {}});
  cuda::update_elementwise(std::span<const cuda::ElementwiseUpdate<AdamW>>(updates), stream);
  for (int i = 0; i < kCount; ++i) {
    const RuleStep& step = steps[static_cast<size_t>(i)];
    cuda::update_elementwise(state_of(alone, i), AdamW(options, step), step, {}, stream);
  }
  expect_same_bits(together.w.to_host(), alone.w.to_host(), "w");
  expect_same_bits(together.g.to_host(), alone.g.to_host(), "g");
  expect_same_bits(together.m.to_host(), alone.m.to_host(), "m");
  expect_same_bits(together.v.to_host(), alone.v.to_host(), "v");
}

}  // namespace
}  // namespace ingot::test
