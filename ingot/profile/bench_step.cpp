#include "ingot/profile/bench_step.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/machine.h"
#include "ingot/core/median.h"
#include "ingot/core/timeline.h"
#include "ingot/ops/fill_normal.h"
#include "ingot/ops/matmul.h"
#include "ingot/ops/tf32.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/profile/bench_data.h"
#include "ingot/run/peak.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

constexpr int kTimedProducts = 3;

using bench::Clock;
using bench::milliseconds_since;

// A matrix product of one step, and how often it is computed.
struct Product {
  MatmulForm form;
  int64_t M, N, K;
  int64_t count;
  DType out;
};

std::vector<Product> step_products(const Transformer& model, const RunConfig& config) {
  const ModelConfig& c = model.config();
  const int64_t rows = config.train.batch_size * c.context;
  std::vector<Product> products;
  const DType compute = config.precision.compute;
  std::map<std::pair<int64_t, int64_t>, int64_t> linears;  // from outputs and inputs to their number
  for (const ParamSpec& spec : model.params().specs())
    if (spec.role == ParamRole::kMatrix) ++linears[{spec.shape[0], spec.shape[1]}];
  for (const auto& [shape, count] : linears) {
    const auto [out, in] = shape;
    products.push_back({MatmulForm::kNT, rows, out, in, count, compute});
    products.push_back({MatmulForm::kNN, rows, in, out, count, compute});
    products.push_back({MatmulForm::kTN, out, in, rows, count, DType::f32});
  }
  const int64_t chunk = model.head_chunk(rows, config.train.device), chunks = (rows + chunk - 1) / chunk;
  const bool is_half =
      config.head.loss_dtype == LossDtype::kBf16Logits && config.train.device == Device::kCuda;
  products.push_back(
      {MatmulForm::kNT, chunk, c.vocab_padded(), c.width, chunks, is_half ? DType::bf16 : DType::f32});
  products.push_back({MatmulForm::kNN, chunk, c.width, c.vocab_padded(), chunks, compute});
  products.push_back({MatmulForm::kTN, c.vocab_padded(), c.width, chunk, chunks, DType::f32});
  for (Product& p : products) p.count *= config.train.grad_accum;
  return products;
}

// Returns the milliseconds of the step's products, warm and on separate memory.
double time_products(const std::vector<Product>& products, const RunConfig& config) {
  const DType dtype = config.precision.compute;
  const Device device = config.train.device;
  size_t a_bytes = 0, b_bytes = 0, c_bytes = 0;
  for (const Product& p : products) {
    a_bytes = std::max(a_bytes, static_cast<size_t>(p.M * p.K) * 4);
    b_bytes = std::max(b_bytes, static_cast<size_t>(p.N * p.K) * 4);
    c_bytes = std::max(c_bytes, static_cast<size_t>(p.M * p.N) * 4);
  }
  Arena arena("products", a_bytes + b_bytes + c_bytes + 3 * Arena::kDeviceAlign, memory_of(device));
  void* a = arena.alloc(DType::u8, {static_cast<int64_t>(a_bytes)}).data;
  void* b = arena.alloc(DType::u8, {static_cast<int64_t>(b_bytes)}).data;
  void* c = arena.alloc(DType::u8, {static_cast<int64_t>(c_bytes)}).data;
  Stream stream = make_stream(device);
  allow_tf32(stream, config.precision.allows_tf32);
  double total_ms = 0;
  for (const Product& p : products) {
    const bool is_weight_gradient = p.form == MatmulForm::kTN;
    const Tensor ta(a, dtype, is_weight_gradient ? Shape{p.K, p.M} : Shape{p.M, p.K}, device);
    const Tensor tb(b, dtype, p.form == MatmulForm::kNT ? Shape{p.N, p.K} : Shape{p.K, p.N}, device);
    const Tensor tc(c, p.out, {p.M, p.N}, device);
    fill_normal(ta, 1, stream);  // a GPU would multiply zeros faster
    fill_normal(tb, 1, stream);
    matmul(tc, ta, tb, p.form, is_weight_gradient, stream);  // chooses the kernel
    Timeline timeline(stream);                               // its events spare the host's wait per product
    for (int i = 0; i < kTimedProducts; ++i) {
      timeline.begin("product");
      matmul(tc, ta, tb, p.form, is_weight_gradient, stream);
      timeline.end();
    }
    std::vector<double> times;
    for (const Timeline::Row& row : timeline.rows()) times.push_back(1e3 * (row.end_s - row.begin_s));
    total_ms += median(times) * static_cast<double>(p.count);
  }
  return total_ms;
}

// Free memory of the device, 0 on the CPU.
size_t free_device_bytes(Device device) {
  if constexpr (kHasCuda)
    if (device == Device::kCuda) return cuda::free_memory_bytes();
  return 0;
}

// Runs steps. On a device, steps are asynchronous if possible: each is collected after the next was
// submitted.
class Steps {
 public:
  Steps(Trainer& trainer, Loader& loader, const RunConfig& config)
      : trainer_(trainer),
        loader_(loader),
        micros_(config.train.grad_accum),
        inputs_{.lr = config.optimizer.lr * 0.1} {}

  void make(int64_t steps) {
    last_ = Clock::now();
    for (int64_t i = 0; i < steps; ++i) {
      const size_t depth = trainer_.depth(inputs_);
      collect_until(depth);
      trainer_.submit(loader_, {.micros = micros_, .inputs = inputs_, .is_asynchronous = depth > 0});
      ++in_flight_;
      collect_until(depth);
    }
    collect_until(0);
  }
  double loss() const { return loss_; }
  const std::vector<double>& times_ms() const { return times_ms_; }  // from one result to the next

 private:
  void collect_until(size_t in_flight) {
    for (; in_flight_ > in_flight; --in_flight_) collect();
  }
  void collect() {
    const StepResult result = trainer_.collect(loader_);
    if (result.is_repeated || result.non_finite) fail(ErrorKind::kNumerics, "a step is not finite");
    if (result.lowered_scale)
      trainer_.discard();
    else
      trainer_.update(result);
    if (in_flight_ == 1) synchronize(*trainer_.layout().stream);  // includes the update
    loss_ = result.loss;
    times_ms_.push_back(milliseconds_since(last_));
    last_ = Clock::now();
  }

  Trainer& trainer_;
  Loader& loader_;
  int64_t micros_;
  StepInputs inputs_;
  Clock::time_point last_;
  size_t in_flight_ = 0;  // steps submitted and not collected
  double loss_ = 0;
  std::vector<double> times_ms_;
};

// Makes the timed steps in a range of their own, which a profiler can wait for, and counts their launches.
StepBench::Launches make_timed(Steps& steps, int64_t count, const Trace& trace) {
  const NamedRange range(&trace, "timed steps");
  if constexpr (kHasCuda) {
    const cuda::LaunchCounts before = cuda::launch_counts();
    steps.make(count);
    const cuda::LaunchCounts after = cuda::launch_counts();
    const auto per_step = [&](int64_t cuda::LaunchCounts::*kind) {
      return static_cast<double>(after.*kind - before.*kind) / static_cast<double>(count);
    };
    return {.kernels = per_step(&cuda::LaunchCounts::kernels),
            .libraries = per_step(&cuda::LaunchCounts::libraries),
            .copies = per_step(&cuda::LaunchCounts::copies),
            .graphs = per_step(&cuda::LaunchCounts::graphs)};
  }
  steps.make(count);
  return {};
}

// Returns the dense peak of the device's data sheet; 0 if there is no description of the device.
double data_sheet_gflops([[maybe_unused]] const RunConfig& config) {
  if constexpr (kHasCuda) {
    if (config.train.device == Device::kCuda)
      return bench::data_sheet_gflops(cuda::devices().front().name, config.precision.compute);
  }
  return 0;
}

std::string traced_step(Trainer& trainer, Loader& loader, double lr) {
  SpanListener* const usual = trainer.trace().listener();
  Timeline timeline(*trainer.layout().stream);
  trainer.trace().set_listener(&timeline);
  trainer.step(loader, {.lr = lr});
  trainer.trace().set_listener(usual);
  return timeline.chrome_trace("step");
}

// Evaluates batches of the steps' size, alternately with steps, and fills in the times of evaluation. Does
// nothing on a device, where spans cover the host alone, which does not wait for the work.
void time_evaluation(StepBench& result, Trainer& trainer, Steps& steps, const TokenSource& tokens,
                     const RunConfig& config) {
  if (config.train.device != Device::kCpu) return;
  constexpr int kRounds = 3;
  const Trace& trace = trainer.trace();
  const auto of_phase = [&](const char* phase, auto&& run) {
    const double outer = trace.time_s(phase), head = trace.time_s("head");
    run();
    const double all = trace.time_s(phase) - outer;
    return std::array{1e3 * all, 1e3 * (all - (trace.time_s("head") - head))};
  };
  std::vector<double> whole, blocks, trained;
  for (int i = 0; i < kRounds; ++i) {
    trained.push_back(of_phase("forward", [&] { steps.make(1); })[1] /
                      static_cast<double>(config.train.grad_accum));
    const auto times = of_phase("evaluation", [&] { trainer.evaluate(tokens, 1); });  // one batch
    whole.push_back(times[0]);
    blocks.push_back(times[1]);
  }
  result.evaluation_ms = median(whole);
  result.evaluation_blocks_ms = median(blocks);
  result.forward_blocks_ms = median(trained);
}

}  // namespace

StepBench bench_step(const RunConfig& given, const StepBenchOptions& options) {
  const Clock::time_point entered = Clock::now();
  bench::require_one_rank(given);
  const RunConfig config = bench::runnable(given);
  const size_t free_at_start = free_device_bytes(config.train.device);
  Trainer trainer(config, parallelize(config));
  trainer.initialise();
  const TokenSource tokens = bench::random_tokens(config);
  const Sampler sampler(SampleOrder::kRandom, config.train.seed, tokens.tokens(), config.model.context);
  Loader loader(tokens, sampler, {.shape = trainer.layout().batch_shape});

  StepBench result;
  result.preset = config.preset;
  result.dtype = name(config.precision.compute);
  result.engine = matmul_engine(config.precision.compute, config.train.device);
  result.steps = options.steps;
  result.batch_size = config.train.batch_size * config.train.grad_accum;
  result.context = config.model.context;
  result.parameters = trainer.layout().model->config().parameters();
  result.start_s = milliseconds_since(entered) * 1e-3;
  const auto steps = static_cast<double>(options.steps);
  Steps warm(trainer, loader, config), timed(trainer, loader, config);
  warm.make(1);
  result.loss_first = warm.loss();
  warm.make(1);  // memory, primitives, caches and graphs are ready after two
  trainer.trace().reset();
  result.launches = make_timed(timed, options.steps, trainer.trace());
  result.loss_last = timed.loss();
  result.device_bytes = free_at_start - std::min(free_at_start, free_device_bytes(config.train.device));
  result.step_ms = median(timed.times_ms());
  result.matmul_ms = trainer.trace().time_s("matmul") * 1e3 / steps;
  result.tokens_per_s = static_cast<double>(result.batch_size * result.context) / result.step_ms * 1e3;
  for (const Trace::Phase& phase : trainer.trace().phases())
    result.phases_ms.emplace_back(phase.name, phase.time_s * 1e3 / steps);
  if (options.wants_trace) result.trace = traced_step(trainer, loader, config.optimizer.lr * 0.1);
  for (const Trainer::ArenaUse& use : trainer.arenas()) result.arena_bytes.emplace_back(use.name, use.bytes);
  result.kernels = kernel_report(*trainer.layout().stream);
  result.peak_rss_bytes = peak_rss_bytes();
  time_evaluation(result, trainer, warm, tokens, config);
  result.gflops = trainer.layout().model->config().flops_per_token() * result.tokens_per_s * 1e-9;
  result.data_sheet_gflops = data_sheet_gflops(config);
  if (result.data_sheet_gflops > 0) result.data_sheet_mfu = result.gflops / result.data_sheet_gflops;
  if (!options.times_products) return result;
  result.products_alone_ms = time_products(step_products(*trainer.layout().model, config), config);
  ProductPeak peak(config.precision.compute, config.train.device, config.precision.allows_tf32);
  peak.measure(0.5);
  if (result.gflops > peak.gflops()) peak.measure(1);
  result.peak_gflops = peak.gflops();
  if (result.gflops <= peak.gflops()) result.mfu = result.gflops / peak.gflops();
  return result;
}

}  // namespace ingot
