// ingot bench head: time and working memory of the dense, chunked and recomputing heads.
#include "apps/bench_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/nn/loss_head.h"
#include "ingot/train/console.h"

namespace ingot {
namespace {

struct Kind {
  const char* name;
  HeadKind kind;
};
constexpr Kind kKinds[] = {
    {"dense", HeadKind::kDense}, {"chunked", HeadKind::kChunked}, {"recompute", HeadKind::kRecompute}};

HeadDtype dtype_of_name(const std::string& precision) {
  if (precision == "f32") return HeadDtype::kF32;
  if (precision == "bf16") return HeadDtype::kBf16;
  if (precision == "fp8") return HeadDtype::kFp8;
  fail(ErrorKind::kUsage, "--precision must be f32, bf16 or fp8, got {}", precision);
}

// One head with its working memory, on operands that all heads share.
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
        compute_(o.precision == "f32" ? DType::f32 : DType::bf16),
        weight_(add_weight(list_, o)),
        params_(list_, compute_),
        arena_("operands", static_cast<size_t>(o.tokens) * static_cast<size_t>(8 * o.width + 16) + 4096) {
    init_params(params_, 1);
    params_.refresh_compute(stream_);
    x_ = arena_.alloc(compute_, {o.tokens, o.width});
    dx_ = arena_.alloc(compute_, x_.shape);
    losses_ = arena_.alloc(DType::f32, {o.tokens});
    correct_ = arena_.alloc(DType::u8, {o.tokens});
    targets_ = arena_.alloc(DType::i32, {o.tokens});
    const RandomKey key{.seed = 1, .purpose = Purpose::kSample, .stream = 0, .step = 0};
    for (int64_t i = 0; i < x_.elements(); ++i) {
      const float value = random_normal(key, static_cast<uint64_t>(i));
      if (compute_ == DType::f32)
        x_.as<float>()[i] = value;
      else
        x_.as<bf16>()[i] = bf16(value);
    }
    for (int64_t n = 0; n < o.tokens; ++n)
      targets_.as<int32_t>()[n] =
          static_cast<int32_t>(random_word(key, static_cast<uint64_t>(n)) % static_cast<uint64_t>(o.vocab));
  }

  std::vector<Candidate> run() {
    const ModelConfig model{.width = o_.width, .vocab = o_.vocab, .vocab_multiple = 1};
    std::vector<Candidate> candidates;
    for (const Kind& kind : kKinds) {
      HeadConfig config{.kind = kind.kind, .precision = dtype_of_name(o_.precision)};
      config.raw_ce_every = 0;
      LossHead head(model, config, compute_, weight_);
      Arena plan("plan");
      head.plan(plan, o_.tokens, true);
      candidates.push_back({kind.name, head, Arena("head scratch", plan.peak_bytes()), {}});
    }
    // In turn, so that what else the machine does falls on all alike; the first round is not counted.
    for (int64_t i = 0; i <= o_.repetitions; ++i)
      for (Candidate& candidate : candidates) time_once(candidate, i > 0);
    return candidates;
  }

 private:
  static int add_weight(ParamList& list, const HeadBenchOptions& o) {
    return list.add(
        {.name = "head.weight", .shape = {o.vocab, o.width}, .role = Role::kHead, .init_std = 0.02});
  }

  void time_once(Candidate& candidate, bool is_counted) {
    LayerContext ctx{
        .params = params_, .region = region_, .scratch = candidate.scratch, .stream = stream_, .dropout = {}};
    const auto start = std::chrono::steady_clock::now();
    candidate.head.forward(ctx, {.losses = losses_, .is_correct = correct_, .dx = dx_}, x_, targets_,
                           1.0f / static_cast<float>(o_.tokens));
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (is_counted) candidate.times_ms.push_back(ms);
    candidate.loss = 0;
    for (int64_t n = 0; n < o_.tokens; ++n)
      candidate.loss += static_cast<double>(losses_.as<float>()[n]) / static_cast<double>(o_.tokens);
  }

  HeadBenchOptions o_;
  DType compute_;
  ParamList list_;
  int weight_;
  ResidentStore params_;
  Arena arena_;
  Region region_;
  Stream stream_;
  Tensor x_, dx_, losses_, correct_, targets_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void bench_head(const HeadBenchOptions& o) {
  if (o.tokens < 1 || o.vocab < 1 || o.width < 1 || o.repetitions < 1)
    fail(ErrorKind::kUsage, "--tokens, --vocab, --width and --repetitions must be at least 1");
  const std::vector<Candidate> candidates = HeadBench(o).run();
  const double dense_ms = median(candidates[0].times_ms);
  const double dense_bytes = static_cast<double>(candidates[0].scratch.capacity_bytes());
  nlohmann::ordered_json json = {{"tokens", o.tokens},       {"vocab", o.vocab},
                                 {"width", o.width},         {"precision", o.precision},
                                 {"threads", num_threads()}, {"rows", nlohmann::ordered_json::array()}};
  if (!o.is_json)
    fmt::print("loss and gradients of {} tokens, vocabulary {}, width {}, {}, {} threads\n", o.tokens,
               o.vocab, o.width, o.precision, num_threads());
  for (const Candidate& c : candidates) {
    const double ms = median(c.times_ms), bytes = static_cast<double>(c.scratch.capacity_bytes());
    json["rows"].push_back({{"kind", c.name},
                            {"scratch_bytes", c.scratch.capacity_bytes()},
                            {"scratch_ratio", bytes / dense_bytes},
                            {"ms", ms},
                            {"time_ratio", ms / dense_ms},
                            {"loss", c.loss}});
    if (!o.is_json)
      fmt::print("{:<10} scratch {:>10} {:6.2f}%   {:9.1f} ms {:6.3f}x   loss {:.6f}\n", c.name,
                 format_bytes(bytes), 100 * bytes / dense_bytes, ms, ms / dense_ms, c.loss);
  }
  if (o.is_json) fmt::print("{}\n", json.dump());
}

}  // namespace ingot
