// Runs every primitive by itself, forward and backward, for each way in which its input may lie on the ranks,
// and compares with one rank that has the whole. The proof of placements (nn/program/check.h) is as good as
// the rules of the primitives.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "ingot/nn/models/model.h"
#include "ingot/nn/primitives/collective.h"
#include "ingot/nn/primitives/elementwise.h"
#include "ingot/nn/program/check.h"
#include "ingot/nn/program/program.h"
#include "ingot/ops/rope.h"
#include "ingot/parallel/tensor.h"
#include "tests/comm/mpi/ranks_main.h"

namespace ingot {
namespace {

constexpr int64_t kB = 2, kT = 12, kN = kB * kT, kC = 32, kF = 48, kVocab = 64;
constexpr int64_t kH = 16, kK = 8, kD = 4;

using Floats = std::vector<float>;

Floats random_floats(int64_t n, uint32_t stream) {
  Floats values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = random_normal({.seed = 3, .purpose = Purpose::kSample, .stream = stream, .step = 0}, i);
  return values;
}

// The declarations and operations of a case, for the ranks or for one of them alone.
struct Making {
  Builder& b;
  ParamList& params;
  const TensorParallel& tp;

  LinearLayer linear_layer(Split split, int64_t out, int64_t in, bool has_bias) {
    return declare_linear(params,
                          {.unit = 0,
                           .prefix = "linear",
                           .out = out,
                           .in = in,
                           .split = split,
                           .std = 0.3,
                           .has_bias = has_bias},
                          tp);
  }
  int vector(const char* name, int64_t n, ParamRole role, bool is_split = false) {
    ParamSpec spec{.name = name, .shape = {is_split ? tp.slice(n) : n}, .role = role, .unit = 0};
    spec.init = Init::kNormal;
    spec.init_std = 1;
    if (is_split && tp.count > 1)
      spec.slice = {.full = {n}, .rows = {{.first = tp.first(n), .count = tp.slice(n)}}};
    return params.add(spec);
  }
  HeadsSpec heads() const { return {.H = tp.slice(kH), .K = tp.slice(kK), .D = kD}; }
  EmbeddingSpec table(bool splits_columns, int64_t columns) {
    const bool is_split = tp.count > 1;
    const int64_t own = splits_columns ? tp.slice(columns) : columns;
    ParamSpec spec{.name = "table",
                   .shape = {splits_columns ? kVocab : tp.slice(kVocab), own},
                   .role = ParamRole::kEmbedding,
                   .unit = 0};
    spec.init = Init::kNormal;
    spec.init_std = 1;
    if (is_split && splits_columns)
      spec.slice = {
          .full = {kVocab, columns}, .rows = {{.first = 0, .count = kVocab}}, .first_column = tp.rank * own};
    if (is_split && !splits_columns)
      spec.slice = {.full = {kVocab, columns},
                    .rows = {{.first = tp.first(kVocab), .count = tp.slice(kVocab)}}};
    return {.table = params.add(spec), .Vp = kVocab, .C = own, .splits_columns = splits_columns};
  }
};

// The columns of a value are parts, such as queries, keys and values, each of which is split by itself.
using Parts = std::vector<int64_t>;

struct Case {
  const char* name;
  std::vector<Placement> inputs;  // the placements that the primitive accepts
  Parts x, y;                     // columns of the input and of the output
  std::function<ValueId(Making&, ValueId x)> make;
};

// Returns the columns of a row of the whole that belong to the rank, in its order.
std::vector<int64_t> columns_of(const Parts& parts, const TensorParallel& tp, Placement placement) {
  std::vector<int64_t> columns;
  int64_t begin = 0;
  for (const int64_t part : parts) {
    const bool is_split = placement == Placement::kColumns;
    const int64_t first = begin + (is_split ? tp.first(part) : 0), count = is_split ? tp.slice(part) : part;
    for (int64_t c = 0; c < count; ++c) columns.push_back(first + c);
    begin += part;
  }
  return columns;
}

// Calls f(index in the rank's tensor, index in the whole) for all elements that the rank has.
template <typename F>
void for_each_element(const Parts& parts, const TensorParallel& tp, Placement placement, F&& f) {
  const std::vector<int64_t> columns = columns_of(parts, tp, placement);
  const int64_t width = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  const bool splits_rows = placement == Placement::kTokens;
  const int64_t first = splits_rows ? tp.first(kN) : 0, rows = splits_rows ? tp.slice(kN) : kN;
  const auto own = static_cast<int64_t>(columns.size());
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t c = 0; c < own; ++c) f(n * own + c, (first + n) * width + columns[static_cast<size_t>(c)]);
}

struct Outcome {
  Floats y, dx;                   // whole
  std::vector<Floats> gradients;  // of the rank's slices of the parameters
  ParamList params;
};

// Returns the whole of a value: the sum of the ranks' terms, or the parts of all.
Floats whole_of(const Tensor& own, const Parts& parts, const TensorParallel& tp, Placement placement) {
  const int64_t width = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  Floats whole(static_cast<size_t>(kN * width));
  for_each_element(parts, tp, placement, [&](int64_t here, int64_t full) {
    whole[static_cast<size_t>(full)] = own.as<float>()[here];
  });
  if (placement != Placement::kWhole && tp.count > 1)
    world->all_reduce("whole", Tensor(whole.data(), DType::f32, {std::ssize(whole)}), ReduceOp::kSum);
  return whole;
}

Outcome run(const Case& test, Placement input, const TensorParallel& tp, Region& region) {
  Outcome outcome;
  Builder b({.compute = DType::f32,
             .device = Device::kCpu,
             .B = kB,
             .T = kT,
             .tp = tp,
             .is_training = true,
             .has_dropout = true});
  b.enter({.unit = 0}, "");
  const Placement in = tp.count == 1 ? Placement::kWhole : input;
  const auto own_columns = static_cast<int64_t>(columns_of(test.x, tp, in).size());
  const ValueId x = b.value("x", DType::f32, {in == Placement::kTokens ? tp.slice(kN) : kN, own_columns}, in,
                            Role::kStream);
  Making making{b, outcome.params, tp};
  const ValueId y = test.make(making, x);
  const size_t border = b.ops().size();
  const Placement out = b[y].placement, d_out = out == Placement::kPartial ? Placement::kWhole : out;
  const ValueId d_y = b.value("d y", DType::f32, b[y].shape, d_out);
  Gradients gradients;
  gradients.set(y, d_y);
  differentiate(b, gradients);
  const ValueId d_x = gradients.get(x);
  check_placements(b.ops(), b.values(), outcome.params);
  const Placement of_d_x = d_x == kNoValue ? Placement::kWhole : b[d_x].placement;
  const size_t end = b.ops().size();
  std::vector<Pinned> pinned{{x, 0, 1}, {y, border - 1, border}, {d_y, border, border + 1}};
  if (d_x != kNoValue) pinned.push_back({d_x, end - 1, end});
  const Program program(std::move(b), border, pinned);

  Stream stream;
  ResidentStore store(outcome.params, DType::f32);
  init_params(store, 11, stream);
  store.refresh_compute(stream);
  Arena memory("values", program.slot_bytes() + Arena::kAlign),
      scratch("scratch", program.scratch_bytes() + Arena::kAlign);
  const Tensor slot = memory.alloc(DType::u8, {static_cast<int64_t>(program.slot_bytes())});
  const auto fill = [&](ValueId id, const Parts& parts, Placement placement, uint32_t random) {
    const int64_t width = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    const Floats whole = random_floats(kN * width, random);
    const Tensor to = program.tensor(id, slot);
    for_each_element(parts, tp, placement, [&](int64_t here, int64_t full) {
      to.as<float>()[here] = whole[static_cast<size_t>(full)];
    });
  };
  std::vector<int32_t> tokens(kN), starts(kN);
  for (size_t n = 0; n < tokens.size(); ++n) {
    tokens[n] = static_cast<int32_t>(n * 7 % kVocab);
    starts[n] = n % kT >= 5 ? 5 : 0;
  }
  Floats angles(kT * kD);
  const Tensor table(angles.data(), DType::f32, {kT, kD});
  rope_table(table, 100);
  const MicroBatch batch{.tokens = Tensor(tokens.data(), DType::i32, {kB, kT}),
                         .targets = {},
                         .doc_start = Tensor(starts.data(), DType::i32, {kB, kT})};
  LayerContext ctx{.params = store,
                   .region = region,
                   .scratch = scratch,
                   .stream = stream,
                   .dropout = {.p = 0.3f, .seed = 5, .step = 2}};
  const PassArguments args{.batch = &batch, .rope_table = table};
  fill(x, test.x, in, 1);
  program.run(Section::kForward, slot, ctx, args);
  outcome.y = whole_of(program.tensor(y, slot), test.y, tp, out);
  fill(d_y, test.y, d_out, 2);
  program.run(Section::kBackward, slot, ctx, args);
  if (d_x != kNoValue) outcome.dx = whole_of(program.tensor(d_x, slot), test.x, tp, of_d_x);
  for (int id = 0; id < std::ssize(outcome.params.specs()); ++id) {
    const Tensor grad = store.grad(id);
    outcome.gradients.emplace_back(grad.as<float>(), grad.as<float>() + grad.elements());
  }
  return outcome;
}

// Sums run over the ranks instead of within one rank.
void expect_near(const Floats& got, const Floats& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  EXPECT_GT(size, 0) << what;
  EXPECT_LE(std::sqrt(error), 64 * 0x1p-24 * std::sqrt(size)) << what;
}

const std::vector<Placement> kRows{Placement::kWhole, Placement::kTokens};
const std::vector<Placement> kWidths{Placement::kColumns};
const std::vector<Placement> kOne{Placement::kWhole};

std::vector<Case> cases() {
  const auto norm_case = [](NormKind kind) {
    return [=](Making& m, ValueId x) {
      NormSpec spec{.kind = kind, .eps = 1e-5f};
      if (kind != NormKind::kRmsNormWeightless) spec.weight = m.vector("weight", kC, ParamRole::kNorm);
      if (kind == NormKind::kLayerNorm) spec.bias = m.vector("bias", kC, ParamRole::kBias);
      return norm(m.b, x, spec);
    };
  };
  const auto linear_case = [](Split split, int64_t out, int64_t in, bool has_bias) {
    return [=](Making& m, ValueId x) { return linear(m.b, x, m.linear_layer(split, out, in, has_bias)); };
  };
  const auto rotate_case = [](bool has_norm, bool has_gains) {
    return [=](Making& m, ValueId qkv) {
      RotationSpec spec{.heads = m.heads(), .has_norm = has_norm, .eps = 1e-5f};
      if (has_gains) spec.q_gain = m.vector("q gain", kD, ParamRole::kNorm);
      if (has_gains) spec.k_gain = m.vector("k gain", kD, ParamRole::kNorm);
      return rotate(m.b, qkv, spec);
    };
  };
  const Parts qkv{kH * kD, kK * kD, kK * kD};
  return {
      {"add", kRows, {kC}, {kC}, [](Making& m, ValueId x) { return add(m.b, x, x); }},
      {"dropout", kRows, {kC}, {kC}, [](Making& m, ValueId x) { return dropout(m.b, x, 4); }},
      {"layernorm", kRows, {kC}, {kC}, norm_case(NormKind::kLayerNorm)},
      {"rmsnorm", kRows, {kC}, {kC}, norm_case(NormKind::kRmsNorm)},
      {"rmsnorm without weight", kRows, {kC}, {kC}, norm_case(NormKind::kRmsNormWeightless)},
      {"linear, outputs", kRows, {kC}, {kF}, linear_case(Split::kOutputs, kF, kC, false)},
      {"linear, outputs, bias", kRows, {kC}, {kF}, linear_case(Split::kOutputs, kF, kC, true)},
      {"linear, inputs", kWidths, {kF}, {kC}, linear_case(Split::kInputs, kC, kF, false)},
      {"linear, inputs, bias", kWidths, {kF}, {kC}, linear_case(Split::kInputs, kC, kF, true)},
      {"gather", kRows, {kC}, {kC}, [](Making& m, ValueId x) { return gather_rows(m.b, x); }},
      {"gelu",
       kWidths,
       {kF},
       {kF},
       [](Making& m, ValueId x) {
         return activate(m.b, x, Activation::kGeluTanh, m.vector("bias", kF, ParamRole::kBias, true));
       }},
      {"relu2",
       kWidths,
       {kF},
       {kF},
       [](Making& m, ValueId x) { return activate(m.b, x, Activation::kRelu2, -1); }},
      {"swiglu", kWidths, {kF, kF}, {kF}, [](Making& m, ValueId x) { return swiglu(m.b, x); }},
      {"rotate", kWidths, qkv, qkv, rotate_case(false, false)},
      {"rotate, norm", kWidths, qkv, qkv, rotate_case(true, false)},
      {"rotate, gains", kWidths, qkv, qkv, rotate_case(true, true)},
      {"attention",
       kWidths,
       qkv,
       {kH * kD},
       [](Making& m, ValueId x) {
         return attention(m.b, x, {.heads = m.heads(), .scale = 0.5f, .window = 4, .dropout_site = 9});
       }},
      {"embedding", kOne, {kC}, {kC}, [](Making& m, ValueId) { return embedding(m.b, m.table(false, kC)); }},
      {"embedding by columns",
       kOne,
       {kC},
       {kC},
       [](Making& m, ValueId) { return embedding(m.b, m.table(true, kC)); }},
      {"mix",
       kRows,
       {kC},
       {kC},
       [](Making& m, ValueId x) {
         const ValueId z = norm(m.b, x, {.kind = NormKind::kRmsNormWeightless, .eps = 1e-5f});
         return mix(m.b, x, z, {m.vector("a", 1, ParamRole::kScalar), m.vector("b", 1, ParamRole::kScalar)});
       }},
      {"mix of values", kWidths, qkv, qkv,
       [](Making& m, ValueId x) {
         const ValueId z = embedding(m.b, m.table(true, kK * kD));
         return mix_values(m.b, x, z,
                           {m.vector("a", 1, ParamRole::kScalar), m.vector("b", 1, ParamRole::kScalar)},
                           m.heads());
       }},
      {"message",
       kRows,
       {kC},
       {kC},
       [](Making& m, ValueId x) {
         const ValueId second = norm(m.b, x, {.kind = NormKind::kRmsNormWeightless, .eps = 1e-5f});
         const ValueId message = pack(m.b, {x, second}, "message");
         const std::vector<ValueId> both =
             unpack(m.b, message,
                    {{"x", m.b[x].shape, m.b[x].placement}, {"second", m.b[x].shape, m.b[x].placement}});
         return add(m.b, both[0], both[1]);
       }},
  };
}

TEST(Primitives, EqualTheWholeForEveryPlacement) {
  Region alone;
  TensorRegion region(*world);
  for (const Case& test : cases()) {
    const Outcome want = run(test, Placement::kWhole, {}, alone);
    for (const Placement input : test.inputs)
      for (const bool splits_tokens : {false, true}) {
        if (input == Placement::kTokens && !splits_tokens) continue;
        if (input == Placement::kWhole && splits_tokens && test.inputs.size() > 1) continue;
        SCOPED_TRACE(
            fmt::format("{}, x {}{}", test.name, text_of(input), splits_tokens ? ", tokens split" : ""));
        const Outcome got = run(test, input, tensor_parallel(*world, splits_tokens), region);
        expect_near(got.y, want.y, "y");
        if (!want.dx.empty()) expect_near(got.dx, want.dx, "dx");
        for (size_t p = 0; p < want.gradients.size(); ++p) {
          const ParamSpec& spec = got.params.specs()[p];
          Floats of_whole(got.gradients[p].size());
          for_each_range(spec, [&](int64_t here, int64_t full, int64_t count) {
            for (int64_t i = 0; i < count; ++i)
              of_whole[static_cast<size_t>(here + i)] = want.gradients[p][static_cast<size_t>(full + i)];
          });
          expect_near(got.gradients[p], of_whole, "the gradient of " + spec.name);
        }
      }
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) { return ingot::run_on_ranks(argc, argv); }
