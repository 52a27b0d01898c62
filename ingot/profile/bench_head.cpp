#include "ingot/profile/bench_head.h"

#include "ingot/config/device_support.h"
#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/core/median.h"
#include "ingot/core/staging.h"
#include "ingot/profile/bench_data.h"

namespace ingot {
namespace {

struct HeadOfKind {
  const char* name;
  HeadKind kind;
};
constexpr HeadOfKind kHeadsOfKinds[] = {
    {"dense", HeadKind::kDense}, {"chunked", HeadKind::kChunked}, {"recompute", HeadKind::kRecompute}};

// One head with its working memory; all heads share the operands.
struct Candidate {
  const char* name;
  LossHead head;
  Arena scratch;
  std::vector<double> times_ms;
  double loss = 0;
};

class HeadBench {
 public:
  explicit HeadBench(const HeadBenchOptions& o)
      : o_(o),
        compute_(o.precision == HeadPrecision::kF32 ? DType::f32 : DType::bf16),
        stream_(make_stream(o.device)),
        weight_(add_weight(list_, o)),
        params_(list_, compute_, true, Masters::kF32, o.device),
        arena_("operands", operand_bytes(o), memory_of(o.device)) {
    init_params(params_, 1, stream_);
    params_.refresh_compute(stream_);
    x_ = arena_.alloc(compute_, {o.tokens, o.width});
    dx_ = arena_.alloc(compute_, x_.shape);
    losses_ = arena_.alloc(DType::f32, {o.tokens});
    correct_ = arena_.alloc(DType::u8, {o.tokens});
    targets_ = arena_.alloc(DType::i32, {o.tokens});
    const RandomKey key{.seed = 1, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    const Tensor x = staging_.room(x_);
    for (int64_t i = 0; i < x.elements(); ++i) {
      const float value = random_normal(key, static_cast<uint64_t>(i));
      if (compute_ == DType::f32)
        x.as<float>()[i] = value;
      else
        x.as<bf16>()[i] = bf16(value);
    }
    staging_.write(x_, stream_);
    const Tensor targets = staging_.room(targets_);
    for (int64_t n = 0; n < o.tokens; ++n)
      targets.as<int32_t>()[n] =
          static_cast<int32_t>(random_word(key, static_cast<uint64_t>(n)) % static_cast<uint64_t>(o.vocab));
    staging_.write(targets_, stream_);
  }

  std::vector<Candidate> run() {
    const ModelConfig model{.width = o_.width, .vocab = o_.vocab, .vocab_multiple = 1};
    std::vector<Candidate> candidates;
    for (const HeadOfKind& of : kHeadsOfKinds) {
      HeadConfig config{.kind = of.kind, .precision = o_.precision};
      config.raw_ce_every = 0;
      const LossHead head(model, config, compute_, weight_);
      Arena plan("plan", memory_of(o_.device));
      head.plan(plan, o_.tokens, true);
      candidates.push_back(
          {of.name, head, Arena("head scratch", plan.peak_bytes(), memory_of(o_.device)), {}});
      if (!fp8_) fp8_.emplace(head.fp8_tensors(), 0, 0).bring_to_device(stream_);
    }
    // Heads run in turn, so that other load on the machine affects all alike; the first round is not
    // counted.
    for (int64_t i = 0; i <= o_.repetitions; ++i)
      for (Candidate& candidate : candidates) time_once(candidate, i > 0);
    return candidates;
  }

 private:
  static int add_weight(ParamList& list, const HeadBenchOptions& o) {
    return list.add(
        {.name = "head.weight", .shape = {o.vocab, o.width}, .role = ParamRole::kHead, .init_std = 0.02});
  }
  static size_t operand_bytes(const HeadBenchOptions& o) {
    return static_cast<size_t>(o.tokens) * static_cast<size_t>(8 * o.width + 16) + 5 * Arena::kDeviceAlign;
  }

  void time_once(Candidate& candidate, bool is_counted) {
    LayerContext ctx{
        .params = params_, .region = region_, .scratch = candidate.scratch, .stream = stream_, .dropout = {}};
    ctx.fp8 = &*fp8_;
    synchronize(stream_);
    const auto start = bench::Clock::now();
    candidate.head.forward(ctx, {.losses = losses_, .is_correct = correct_, .dx = dx_}, x_,
                           {.tokens = {}, .targets = targets_, .doc_start = {}},
                           1.0f / static_cast<float>(o_.tokens));
    synchronize(stream_);
    if (is_counted) candidate.times_ms.push_back(bench::milliseconds_since(start));
    const Tensor losses = staging_.read(losses_, stream_);
    candidate.loss = 0;
    for (int64_t n = 0; n < o_.tokens; ++n)
      candidate.loss += static_cast<double>(losses.as<float>()[n]) / static_cast<double>(o_.tokens);
  }

  HeadBenchOptions o_;
  DType compute_;
  Stream stream_;
  ParamList list_;
  int weight_;
  ResidentStore params_;
  Arena arena_;
  Staging staging_;
  Region region_;
  std::optional<Fp8State> fp8_;
  Tensor x_, dx_, losses_, correct_, targets_;
};

// The sizes must satisfy the same rule as a trainer's config (config/device_support.h).
void require_granules(const HeadBenchOptions& o) {
  if (o.device == Device::kCpu || o.precision != HeadPrecision::kFp8) return;
  for (const int64_t n : {o.tokens, o.vocab, o.width})
    if (n % 16 != 0)
      fail(ErrorKind::kUsage, "tokens, vocab and width must be multiples of 16 for fp8 on a GPU, got {}", n);
}

}  // namespace

std::vector<HeadBenchRow> bench_head(const HeadBenchOptions& o) {
  if (o.tokens < 1 || o.vocab < 1 || o.width < 1 || o.repetitions < 1)
    fail(ErrorKind::kUsage, "tokens, vocab, width and repetitions must be at least 1");
  RunConfig used;
  used.train.device = o.device;
  used.head.precision = o.precision;
  require_device(used);
  require_granules(o);
  std::vector<HeadBenchRow> rows;
  for (const Candidate& c : HeadBench(o).run())
    rows.push_back({c.name, c.scratch.capacity_bytes(), median(c.times_ms), c.loss});
  return rows;
}

}  // namespace ingot
