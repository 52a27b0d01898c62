// Rules that need a whole matrix: compares the optimizer on a device with the CPU's, and Muon's
// iteration with its polynomial.
#include <cmath>
#include <deque>
#include <optional>

#include "ingot/ops/row_sum.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/optimizer.h"
#include "ingot/optim/rules/cuda_mean_squares.h"
#include "ingot/optim/rules/cuda_muon.h"
#include "ingot/optim/rules/newton_schulz.h"
#include "ingot/optim/rules/rule_list.h"
#include "tests/cuda/on_device.h"
#include "tests/reference/optimizers.h"

namespace ingot::test {
namespace {

struct WholeRulesCase {
  const char* name;
  RuleConfig rule;
  double relative = 0x1p-16;  // tolerance relative to the CPU's values
};

struct ParamShape {
  Shape shape;
  std::vector<int64_t> fused_rows = {};
  std::vector<Rect> rects = {};  // of a shard; empty for a whole parameter

  int64_t elements() const {
    int64_t n = 0;
    for (const Rect& rect : rects) n += rect.elements();
    return rects.empty() ? shape.elements() : n;
  }
  OptimParam param(std::string name) const {
    if (rects.empty()) return {.name = std::move(name), .shape = shape, .fused_rows = fused_rows};
    return {.name = std::move(name),
            .shape = shape.rank() == 2 ? Shape{1, elements()} : Shape{elements()},
            .logical = shape,
            .rects = rects,
            .is_scattered = true};
  }
};

// The same parameters on the host and on the device, with an optimizer for each.
class TwoOptimizers : protected OnCuda {
 public:
  TwoOptimizers(const RuleConfig& rule, const std::vector<ParamShape>& shapes) {
    uint32_t seed = 1;
    for (const ParamShape& s : shapes) {
      OptimParam host = s.param(fmt::format("w{}", seed));
      const int64_t n = s.elements();
      OptimParam there = host;
      const auto add = [&](Tensor OptimParam::*place, Buffer&& buffer) {
        devices_.emplace_back(buffer, stream);
        hosts_.push_back(std::move(buffer));
        host.*place = hosts_.back();
        there.*place = devices_.back();
      };
      add(&OptimParam::w, random_tensor(DType::f32, {n}, seed));
      add(&OptimParam::g, random_tensor(DType::f32, {n}, seed + 1));
      add(&OptimParam::compute, zeros(DType::bf16, {n}));
      hosts.push_back(host);
      theres.push_back(there);
      seed += 2;
    }
    const OptimizerConfig config{.lr = 0.02, .rule = rule};
    on_host.emplace(config, hosts);
    on_device.emplace(config, theres);
  }

  void set_gradients(uint32_t seed, double scale) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      const Buffer g =
          random_tensor(DType::f32, {hosts[i].elements()}, seed + static_cast<uint32_t>(i), scale);
      std::memcpy(hosts[i].g.data, g.tensor().data, g.tensor().bytes());
      copy(theres[i].g, g, stream);
      synchronize(stream);
    }
  }
  // Copies a tensor of every parameter to the device.
  void send(Tensor OptimParam::*place) {
    for (size_t i = 0; i < hosts.size(); ++i) copy(theres[i].*place, hosts[i].*place, stream);
    synchronize(stream);
  }
  void step(bool wants_stats) {
    Stream cpu;
    on_host->step({.lr = 0.02, .wants_stats = wants_stats}, 0.5f, cpu);
    on_device->step({.lr = 0.02, .wants_stats = wants_stats}, 0.5f, stream);
    synchronize(stream);
  }
  Doubles read(const Tensor& there) {
    Buffer host(there.dtype, there.shape);
    copy(host, there, stream);
    synchronize(stream);
    if (there.dtype != DType::u8) return to_doubles(host);
    const uint8_t* codes = host.tensor().as<uint8_t>();
    return Doubles(codes, codes + there.elements());
  }

  std::vector<OptimParam> hosts, theres;
  std::optional<Optimizer> on_host, on_device;

 private:
  std::deque<Buffer> hosts_;
  std::deque<OnDevice> devices_;
};

const std::vector<ParamShape> kMatrices = {
    {{24, 40}}, {{40, 24}}, {{5, 33}}, {{48, 16}, {24, 8, 16}}, {{600, 8}}};

// Shards whose sums are not combined with those of other ranks: columns and rows of matrices, a range that
// begins and ends within a row, and elements of a vector. Some allow wide loads.
const std::vector<ParamShape> kShards = {{{24, 40}, {}, {{0, 24, 8, 16}}},
                                         {{24, 40}, {}, {{0, 24, 7, 13}}},
                                         {{48, 16}, {}, {{8, 8, 0, 16}, {40, 4, 0, 16}}},
                                         {{60, 20}, {}, {{3, 1, 9, 11}, {4, 50, 0, 20}, {54, 1, 0, 3}}},
                                         {{37}, {}, {{11, 20, 0, 1}}}};

class CudaWholeRules : public ::testing::TestWithParam<WholeRulesCase> {
 protected:
  bool takes_vectors() const { return GetParam().rule.kind == "adafactor"; }
  std::vector<ParamShape> shapes() const {
    std::vector<ParamShape> all = kMatrices;
    if (takes_vectors()) all.push_back({{37}});
    if (takes_vectors()) all.insert(all.end(), kShards.begin(), kShards.end());
    return all;
  }
};

TEST_P(CudaWholeRules, UpdateWeightsAndStateAsOnTheCpu) {
  TwoOptimizers both(GetParam().rule, shapes());
  for (uint32_t t = 1; t <= 3; ++t) {
    both.set_gradients(100 * t, t == 2 ? 1e-3 : 1.0);
    both.step(t == 3);
  }
  const double relative = GetParam().relative;
  for (size_t i = 0; i < both.hosts.size(); ++i) {
    const OptimParam &want = both.hosts[i], &got = both.theres[i];
    const auto close = [&](const Doubles& a, const Tensor& b, double tolerance, const char* what) {
      const Doubles reference = to_doubles(b);
      for (size_t k = 0; k < a.size(); ++k)
        ASSERT_NEAR(a[k], reference[k], tolerance * std::max(1.0, std::abs(reference[k])))
            << what << " of " << want.name << " at " << k;
    };
    close(both.read(got.w), want.w, 0.02 * 3 * 8 * relative + 0x1p-22, "weight");
    close(both.read(got.compute), want.compute, 0.02 * 3 * 8 * relative + 0x1p-8, "copy");
    for (double g : both.read(got.g)) ASSERT_EQ(g, 0);
    const ParamStats &a = both.on_device->stats()[i], &b = both.on_host->stats()[i];
    EXPECT_NEAR(a.weight_norm, b.weight_norm, 1e-5 * b.weight_norm);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * b.grad_norm);
    EXPECT_NEAR(a.update_norm, b.update_norm, (8 * relative + 1e-4) * b.update_norm);
  }
  for (size_t s = 0; s < both.on_host->states().size(); ++s) {
    const Doubles got = both.read(both.on_device->states()[s].tensor);
    const Doubles want = to_doubles(both.on_host->states()[s].tensor);
    for (size_t k = 0; k < got.size(); ++k)
      ASSERT_NEAR(got[k], want[k], 16 * relative * std::max(1e-3, std::abs(want[k])))
          << both.on_host->states()[s].name << " at " << k;
  }
}

TEST_P(CudaWholeRules, AZeroGradientChangesNoWeight) {
  RuleConfig rule = GetParam().rule;
  rule.options.set(&AdamW::Options::weight_decay, 0.0);
  TwoOptimizers both(rule, shapes());
  std::vector<Doubles> before;
  for (const OptimParam& p : both.theres) before.push_back(both.read(p.w));
  both.set_gradients(1, 0);
  both.step(false);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(both.read(both.theres[i].w) == before[i]) << i;
}

// Two runs give the same bits.
TEST_P(CudaWholeRules, EqualCallsGiveEqualBits) {
  std::vector<Doubles> runs[2];
  for (auto& run : runs) {
    TwoOptimizers both(GetParam().rule, shapes());
    both.set_gradients(1, 1);
    both.step(false);
    for (const OptimParam& p : both.theres) run.push_back(both.read(p.w));
  }
  EXPECT_TRUE(runs[0] == runs[1]);
}

// Some bf16 iterates round the other way on the device, by 2^-9 each, in 15 products
// of independent directions.
constexpr double kBf16 = 15 * 0x1p-9;
// f32 iterates differ in the last bits, which the iteration's slope at 0 multiplies by up to 1000.
constexpr double kF32 = 1000 * 15 * 0x1p-24;

INSTANTIATE_TEST_SUITE_P(
    Rules, CudaWholeRules,
    ::testing::Values(
        WholeRulesCase{
            "muon", {.kind = "muon", .options = {{&Muon::Options::newton_schulz_dtype, DType::bf16}}}, kBf16},
        WholeRulesCase{"muon_f32",
                       {.kind = "muon", .options = {{&Muon::Options::newton_schulz_dtype, DType::f32}}},
                       kF32},
        WholeRulesCase{"muon_fused",
                       {.kind = "muon",
                        .options = {{&Muon::Options::nesterov, false},
                                    {&Muon::Options::newton_schulz, NewtonSchulzKind::kPolarExpress},
                                    {&Muon::Options::newton_schulz_dtype, DType::f32},
                                    {&Muon::Options::split_fused, false}}},
                       kF32},
        WholeRulesCase{"normuon",
                       {.kind = "muon",
                        .options = {{&Muon::Options::newton_schulz, NewtonSchulzKind::kPolarExpress},
                                    {&Muon::Options::newton_schulz_dtype, DType::f32},
                                    {&Muon::Options::normuon, true},
                                    {&Muon::Options::cautious_decay, true}}},
                       kF32},
        WholeRulesCase{"adafactor", {.kind = "adafactor"}},
        WholeRulesCase{"adafactor_of_lr",
                       {.kind = "adafactor",
                        .options = {{&Adafactor::Options::relative_step, false},
                                    {&Adafactor::Options::update_clip, 0.5}}}}),
    [](const auto& info) { return info.param.name; });

// The largest magnitudes of blocks of 256 elements, which end within the rows of a shard, are those of the
// whole matrix, so a shard with all elements in another order has the bits of the whole.
TEST(CudaEightBitStates, OfAScatteredShardHaveTheBitsOfTheWhole) {
  const int64_t R = 96, C = 56;
  const std::vector<Rect> rects = {{0, R, 40, 16}, {10, R - 10, 3, 37}, {0, 10, 3, 37}, {0, R, 0, 3}};
  TwoOptimizers both({.kind = "adamw8bit"}, {{{R, C}}, {{R, C}, {}, rects}});
  std::vector<size_t> places;  // of the shard's elements in the whole
  for (const Rect& rect : rects)
    for (int64_t r = 0; r < rect.rows; ++r)
      for (int64_t c = 0; c < rect.columns; ++c)
        places.push_back(static_cast<size_t>((rect.row + r) * C + rect.column + c));
  const auto scatter = [&](Tensor OptimParam::*place) {
    const float* from = (both.hosts[0].*place).as<float>();
    float* to = (both.hosts[1].*place).as<float>();
    for (size_t i = 0; i < places.size(); ++i) to[i] = from[places[i]];
    both.send(place);
  };
  scatter(&OptimParam::w);
  for (uint32_t t = 1; t <= 4; ++t) {
    both.set_gradients(7 * t, t == 2 ? 1e-3 : 1.0);
    scatter(&OptimParam::g);
    both.step(t == 4);
  }
  const auto expect_same = [&](const Tensor& whole, const Tensor& shard, const char* what) {
    const Doubles want = both.read(whole), got = both.read(shard);
    for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(got[i], want[places[i]]) << what << ' ' << i;
  };
  expect_same(both.theres[0].w, both.theres[1].w, "weight");
  const auto& states = both.on_device->states();
  expect_same(states[0].tensor, states[4].tensor, "m8");
  expect_same(states[1].tensor, states[5].tensor, "v8");
  for (const size_t s : {size_t{2}, size_t{3}})
    EXPECT_TRUE(both.read(states[s].tensor) == both.read(states[s + 4].tensor)) << states[s].name;
  const ParamStats &whole = both.on_device->stats()[0], &shard = both.on_device->stats()[1];
  EXPECT_NEAR(shard.update_norm, whole.update_norm, 1e-5 * whole.update_norm);
  for (const double g : both.read(both.theres[1].g)) ASSERT_EQ(g, 0);
}

// Singular values move as the scalar polynomial says.
TEST(CudaNewtonSchulz, AppliesThePolynomialToSingularValues) {
  Stream stream = cuda::make_stream();
  for (const Shape& shape : {Shape{12, 40}, Shape{40, 12}, Shape{1, 33}}) {
    const Buffer x = random_tensor(DType::f32, shape, 7);
    const auto R = static_cast<size_t>(shape[0]), C = static_cast<size_t>(shape[1]);
    double squares = 0;
    for (double v : to_doubles(x)) squares += v * v;
    Doubles want = singular_values(to_doubles(x), R, C);
    for (double& s : want) {
      s /= std::sqrt(squares) + 1e-7;
      for (const auto& [a, b, c] : newton_schulz_steps(NewtonSchulzKind::kQuintic))
        s = a * s + b * s * s * s + c * s * s * s * s * s;
    }
    std::sort(want.rbegin(), want.rend());
    const OnDevice there(x, stream);
    Arena scratch("scratch", newton_schulz_scratch_bytes(shape[0], shape[1], DType::f32, Device::kCuda),
                  Memory::kDevice);
    newton_schulz(there, NewtonSchulzKind::kQuintic, DType::f32, scratch, stream);
    EXPECT_EQ(scratch.used_bytes(), 0u);
    const Doubles got = singular_values(to_doubles(there.to_host()), R, C);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], kF32 * 6) << i;
  }
}

TEST(CudaMeanSquares, RowsAndColumnsEqualTheReference) {
  Stream stream = cuda::make_stream();
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 257}, Shape{1100, 40}, Shape{40, 1000}}) {
    const int64_t R = shape[0], C = shape[1];
    const Buffer x = random_tensor(DType::f32, shape, 3);
    const Doubles values = to_doubles(x);
    Doubles rows(static_cast<size_t>(R)), columns(static_cast<size_t>(C));
    double all = 0;
    for (int64_t r = 0; r < R; ++r)
      for (int64_t c = 0; c < C; ++c) {
        const double square = std::pow(0.5 * values[static_cast<size_t>(r * C + c)], 2);
        rows[static_cast<size_t>(r)] += square / static_cast<double>(C);
        columns[static_cast<size_t>(c)] += square / static_cast<double>(R);
        all += 4 * square;
      }
    const OnDevice there(x, stream), row_means(DType::f32, {R}, stream),
        column_means(DType::f32, {C}, stream);
    const OnDevice parts(DType::f32, {kRowParts, C}, stream);
    const OnDevice squares(DType::f32, {cuda::kSquareParts}, stream);
    cuda::row_mean_squares(row_means, there, 0.5f, {}, stream);
    cuda::column_mean_squares(column_means, there, 0.5f, {}, parts, stream);
    cuda::sum_squares_of(squares, there, stream);
    expect_close(row_means.to_host(), rows, 64 * unit_roundoff(DType::f32), "rows");
    expect_close(column_means.to_host(), columns, 64 * unit_roundoff(DType::f32), "columns");
    double total = 0;
    for (double part : to_doubles(squares.to_host())) total += part;
    EXPECT_NEAR(total, all, 64 * unit_roundoff(DType::f32) * all);
  }
}

}  // namespace
}  // namespace ingot::test
