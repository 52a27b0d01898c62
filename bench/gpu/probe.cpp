// Asks the libraries of a GPU whether they have kernels for all that Ingot gives them, in 20 seconds:
//   gpu_probe [--json FILE.jsonl] [--tiny] [--seconds N]
//
// 1. The products of a training step: for several models in every precision, a trainer with one layer makes a
//    step in which each product is only described to cuBLASLt's heuristics (Libraries::survey), so the
//    descriptors are those of training. A line per kind says how many kernels there are, or which single
//    change the library accepts.
// 2. One small product of each kind that adds to a matrix, whose refusals the heuristics cannot foresee, and
//    of each 8-bit kind, against sums in double precision.
// 3. The plans of cuDNN for the models' attention.
//
// A part that fails is reported, and the next one runs. Every line is written at once, and as a JSON object
// in FILE. Exits with 0 if the library has a kernel for every kind, or for what replaces it; with 1
// otherwise, or when the time is up.
// --tiny asks for small shapes, to try the program itself.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/gpu/probe_product.h"
#include "ingot/config/config_toml.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/ops/attention/attention_graph.h"
#include "ingot/ops/cuda/cuda_libraries.h"
#include "ingot/ops/matmul/cublaslt_product.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/profile/bench_data.h"
#include "ingot/train/trainer.h"
#ifdef INGOT_WITH_CUDNN
#include "ingot/ops/cuda/plan_cudnn.h"
#endif

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

// The fractions of the time after which parts of each kind are left out.
constexpr double kSurveyEnds = 0.45, kProductsEnd = 0.7;
[[maybe_unused]] constexpr double kAttentionEnds = 0.95;  // It is used in builds with cuDNN.

class Report {
 public:
  Report(const std::string& file, double limit_s) : limit_s_(limit_s) {
    if (!file.empty()) json_.open(file);
    if (!file.empty() && !json_) fail(ErrorKind::kDisk, "{} cannot be written", file);
  }
  void line(const std::string& text, const Json& json) {
    fmt::print("{:6.2f} s  {}\n", seconds(), text);
    std::fflush(stdout);
    if (json_.is_open()) json_ << json.dump() << std::endl;
  }
  // As line, for what makes the program fail.
  void failure(const std::string& text, Json json) {
    json["failed"] = true;
    line("FAILED: " + text, json);
    ++failures_;
  }
  // Runs a part, and reports its error; leaves it out once this fraction of the time is gone.
  void part(const std::string& name, double ends, const std::function<void()>& run) {
    try {
      if (seconds() > ends * limit_s_) fail(ErrorKind::kInternal, "left out for want of time");
      run();
    } catch (const std::exception& error) {
      failure(name + ": " + error.what(), {{"part", name}, {"error", error.what()}});
    }
  }
  int failures() const { return failures_; }

 private:
  double seconds() const { return 1e-3 * bench::milliseconds_since(start_); }

  bench::Clock::time_point start_ = bench::Clock::now();
  double limit_s_;
  std::ofstream json_;
  int failures_ = 0;
};

struct Model {
  const char* name;
  Keys keys;
};

std::vector<Model> models(bool is_tiny) {
  const Keys llama{"model.norm=rmsnorm", "model.positions=rope", "model.mlp=swiglu", "model.tied=false"};
  const Keys gpt2{"model.norm=layernorm", "model.positions=learned", "model.mlp=gelu_tanh", "model.bias=true",
                  "model.tied=true"};
  const auto make = [](const char* name, Keys kind, const Keys& dims) {
    kind.insert(kind.end(), dims.begin(), dims.end());
    return Model{name, kind};
  };
  const Keys small{"model.heads=2",    "model.width=32",  "model.ffn=64",
                   "model.context=16", "model.vocab=128", "train.batch_size=2"};
  if (is_tiny) return {make("tiny-gpt2", gpt2, small), make("tiny-llama", llama, small)};
  return {make("gpt2-124m", gpt2,
               {"model.heads=12", "model.width=768", "model.ffn=3072", "model.context=1024",
                "model.vocab=50257", "train.batch_size=64"}),
          make("llama-1.3b", llama,
               {"model.heads=16", "model.width=2048", "model.ffn=5632", "model.context=2048",
                "model.vocab=32000", "train.batch_size=8"}),
          make("llama-350m", llama,
               {"model.heads=16", "model.width=1024", "model.ffn=2816", "model.context=2048",
                "model.vocab=32000", "train.batch_size=16"}),
          make("llama-1b", llama,
               {"model.heads=14", "model.width=1792", "model.ffn=4800", "model.context=2048",
                "model.vocab=131072", "train.batch_size=4"})};
}

struct Precision {
  const char* name;
  Keys keys;
};
const Precision kPrecisions[] = {
    {"bf16", {"precision.compute=bf16", "head.loss_dtype=bf16_logits"}},
    {"bf16, fp8 tensorwise",
     {"precision.compute=bf16", "precision.fp8=tensorwise", "head.precision=fp8", "head.kind=chunked"}},
    {"bf16, fp8 rowwise", {"precision.compute=bf16", "precision.fp8=rowwise"}},
    {"bf16, fp8 rowwise_gw_hp, head recomputed",
     {"precision.compute=bf16", "precision.fp8=rowwise_gw_hp", "head.precision=fp8", "head.kind=recompute"}},
    {"f32", {"precision.compute=f32"}},
    {"f32, fp8 tensorwise", {"precision.compute=f32", "precision.fp8=tensorwise"}},
    {"f32, fp8 rowwise", {"precision.compute=f32", "precision.fp8=rowwise"}},
    {"tf32", {"precision.compute=f32", "precision.tf32=true"}},
    {"f16", {"precision.compute=f16"}},
    {"f16, fp8 rowwise", {"precision.compute=f16", "precision.fp8=rowwise"}},
    {"bf16, muon", {"precision.compute=bf16", "[[optimizer.group]]\nroles = [\"matrix\"]\nkind = \"muon\""}},
};
constexpr size_t kMaxUsed = 3;  // the first of them are asked for every model, the others for two

struct Change {
  std::string name;
  cuda::Product product;
};
// Returns the product with one change each.
std::vector<Change> changes_of(const cuda::Product& product) {
  std::vector<Change> changes;
  const auto add = [&](const std::string& name, const std::function<void(cuda::Product&)>& change) {
    cuda::Product changed = product;
    change(changed);
    if (changed.key() != product.key()) changes.push_back({name, changed});
  };
  add("no epilogue", [](auto& p) { p.epilogue = {}; });
  add("a bias as the epilogue", [](auto& p) {
    if (p.epilogue.bias) p.epilogue = {.kind = MatmulEpilogue::Kind::kBias, .bias = p.epilogue.bias};
  });
  for (const DType out : {DType::bf16, DType::f16, DType::f32})
    add(fmt::format("results of {}", name(out)), [&](auto& p) { p.problem.out = out; });
  add("no addend", [](auto& p) { p.problem.addend = nullptr; });
  add("one scale for each operand", [](auto& p) { p.fp8.is_by_row = false; });
  add("exact sums", [](auto& p) { p.fp8.is_fast = false; });
  add("no tf32", [](auto& p) { p.is_tf32 = false; });
  add("addresses on 256 bytes", [](auto& p) {
    const auto align = [](auto* place) {
      return reinterpret_cast<decltype(place)>(reinterpret_cast<uintptr_t>(place) & ~uintptr_t{255});
    };
    MatmulProblem& m = p.problem;
    m.a = align(m.a), m.b = align(m.b), m.c = align(m.c), m.addend = align(m.addend);
    p.epilogue.bias = align(p.epilogue.bias), p.epilogue.aux = align(p.epilogue.aux);
  });
  return changes;
}

// The heuristics' answers about the products of one kind.
struct Kind {
  cuda::Product first;
  std::set<std::string> asked = {};  // keys
  int fewest = 0, refused = 0, not_replaced = 0;
  size_t workspace_bytes = 0;
};

class Survey {
 public:
  Survey(Report& report, bool is_tiny) : report_(report), is_tiny_(is_tiny) {}

  void run() {
    const std::vector<Model> all = models(is_tiny_);
    for (size_t m = 0; m < all.size(); ++m)
      for (size_t i = 0; i < (m < 2 ? std::size(kPrecisions) : kMaxUsed); ++i) {
        const std::string name = fmt::format("{}, {}", all[m].name, kPrecisions[i].name);
        report_.part(name, kSurveyEnds, [&] { make_step(name, all[m].keys, kPrecisions[i].keys); });
      }
    for (const auto& [name, kind] : kinds_) {
      const int shapes = static_cast<int>(kind.asked.size());
      const Json json = {{"part", "heuristics"},
                         {"kind", name},
                         {"shapes", shapes},
                         {"refused", kind.refused},
                         {"not_replaced", kind.not_replaced},
                         {"fewest_kernels", kind.fewest},
                         {"workspace_bytes", kind.workspace_bytes}};
      const std::string numbers =
          fmt::format("{}: {} of {} shapes have kernels, at least {}; workspace {} KiB", name,
                      shapes - kind.refused, shapes, kind.fewest, kind.workspace_bytes >> 10);
      if (kind.not_replaced > 0)
        report_.failure(numbers + ", and nothing replaces the rest", json);
      else
        report_.line((kind.refused > 0 ? "replaced  " : "accepted  ") + numbers, json);
    }
  }
  const std::map<std::string, Kind>& kinds() const { return kinds_; }

 private:
  void make_step(const std::string& name, const Keys& model, const Keys& precision) {
    ConfigBuilder builder;
    for (const Keys& keys : {Keys{"train.device=cuda", "model.layers=1", "train.grad_accum=2",
                                  "activations.policy=none", "data.tokenizer=bpe", "model.vocab_multiple=64"},
                             model, precision})
      for (const std::string& key : keys)
        key.starts_with("[[") ? builder.add_toml(key, "table") : builder.add_override(key);
    const RunConfig config = bench::runnable(builder.build());
    Trainer trainer(config, parallelize(config));  // its weights stay zero
    Stream& stream = *trainer.layout().stream;
    int products = 0;
    cuda::libraries_of(stream).survey = [&](const cuda::Product& product) {
      ++products;
      ask(product, stream);
    };
    const TokenSource tokens = bench::random_tokens(config);
    const Sampler sampler(SampleOrder::kRandom, 1, tokens.tokens(), config.model.context);
    Loader loader(tokens, sampler, {.shape = trainer.layout().batch_shape, .prefetch = 1});
    try {
      trainer.step(loader, {.lr = 0});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kNumerics) throw;  // without products there are no numbers to check
    }
    report_.line(fmt::format("{}: {} products", name, products),
                 {{"part", "step"}, {"name", name}, {"products", products}});
  }

  void ask(const cuda::Product& product, Stream& stream) {
    const auto [entry, is_new] = kinds_.try_emplace(product.kind(), Kind{.first = product});
    Kind& kind = entry->second;
    if (!kind.asked.insert(product.key()).second) return;
    const cuda::ProductAnswer answer = cuda::ask(product, stream);
    kind.fewest = is_new ? answer.kernels : std::min(kind.fewest, answer.kernels);
    kind.workspace_bytes = std::max(kind.workspace_bytes, answer.workspace_bytes);
    if (answer.kernels > 0) return;
    ++kind.refused;
    const bool is_replaced = product.is_special() && cuda::ask(stripped(product), stream).kernels > 0;
    if (!is_replaced) ++kind.not_replaced;
    std::string accepted;
    for (const Change& change : changes_of(product))
      if (cuda::ask(change.product, stream).kernels > 0)
        accepted += (accepted.empty() ? "" : "; ") + change.name;
    const MatmulProblem& p = product.problem;
    const std::string shape = fmt::format("{} x {} x {}", p.M, p.N, p.K);
    report_.line(fmt::format("refused   {}, {} ({}); accepted with: {}", product.kind(), shape, answer.status,
                             accepted.empty() ? "no single change" : accepted),
                 {{"part", "refusal"},
                  {"kind", product.kind()},
                  {"shape", shape},
                  {"status", answer.status},
                  {"accepted_with", accepted}});
  }

  Report& report_;
  bool is_tiny_;
  std::map<std::string, Kind> kinds_;
};

void compute_one(Report& report, const std::string& name, const cuda::Product& kind, Stream& stream) {
  SmallProduct small(kind, stream);
  const auto say = [&](const char* what, const std::optional<double>& error) {
    const bool is_right = error && *error <= 1;
    const Json json = {
        {"part", "product"}, {"kind", name}, {"computed", what}, {"error", error.value_or(-1)}};
    const std::string text = fmt::format("{}: {}", name, what);
    if (is_right)
      report.line(fmt::format("right     {}, {:.2f} of the bound", text, *error), json);
    else
      report.failure(error ? fmt::format("{} is wrong, {:.1f} times the bound", text, *error) : text, json);
  };
  if (const auto error = small.error(small.product())) return say("computed", error);
  if (!kind.is_special()) return say("refused when computed", std::nullopt);
  say("refused when computed; what replaces it", small.error(stripped(small.product())));
}

void compute(Report& report, const std::map<std::string, Kind>& kinds) {
  Stream stream = cuda::make_stream();
  const auto compute_those = [&](bool adds, bool is_fp8) {
    for (const auto& [name, kind] : kinds) {
      const MatmulProblem& p = kind.first.problem;
      const bool is_one = (p.accumulate || p.addend) == adds && (kind.first.fp8.a != nullptr) == is_fp8;
      if (is_one && kind.not_replaced == 0)
        report.part(name, kProductsEnd, [&] { compute_one(report, name, kind.first, stream); });
    }
  };
  compute_those(true, true);  // The least known kinds come first.
  compute_those(true, false);
  compute_those(false, true);
}

#ifdef INGOT_WITH_CUDNN
void plan_attention(Report& report, const cudnn::Library& library, cudnnHandle_t device, const Model& model,
                    bool is_backward) {
  ConfigBuilder builder;
  for (const std::string& key : model.keys) builder.add_override(key);
  const RunConfig& config = builder.build();
  const ModelConfig& m = config.model;
  const AttentionShape s{config.train.batch_size,
                         m.context,
                         m.context,
                         m.heads,
                         m.kv_heads ? m.kv_heads : m.heads,
                         m.head_dim ? m.head_dim : m.width / m.heads};
  const int64_t width = (s.H + 2 * s.K) * s.D, flat = s.H * s.D;
  FusedAttention p{.dtype = DType::bf16, .B = s.B, .T = s.T, .H = s.H, .K = s.K, .D = s.D, .scale = 0.125f};
  p.q = p.k = p.v = p.dq = p.dk = p.dv = {s.T * width, width, s.D};  // one buffer, as in the layers
  p.out = p.d_out = {s.T * flat, flat, s.D};
  const AttentionGraph graph = is_backward ? attention_backward_graph(p) : attention_forward_graph(p);
  const size_t own = is_backward ? size_t(s.B * s.H * s.T) * 4 * size_t(1 + s.D) + 1024 : 0;
  const size_t room = (is_backward ? fused_backward_bytes(s, false) : fused_forward_bytes(s, false)) - own;
  const auto plans =
      cudnn::Plan::make(library, graph.graph, {.device = device}, SIZE_MAX, {.first = 0, .most = 1});
  const std::string name =
      fmt::format("attention {} of {}", is_backward ? "backward" : "forward", model.name);
  const size_t wanted = plans.empty() ? 0 : plans.front().workspace_bytes();
  const Json json = {{"part", "attention"},
                     {"name", name},
                     {"plans", plans.size()},
                     {"workspace_bytes", wanted},
                     {"room_bytes", room}};
  if (plans.empty() || wanted > room)
    report.failure(
        fmt::format("{}: {}", name,
                    plans.empty()
                        ? "no plan"
                        : fmt::format("its plan wants {} bytes of scratch, {} are planned", wanted, room)),
        json);
  else
    report.line(
        fmt::format("planned   {}: {} KiB of scratch, {} are planned", name, wanted >> 10, room >> 10), json);
}
#endif

void plan_attentions([[maybe_unused]] Report& report, [[maybe_unused]] bool is_tiny) {
#ifdef INGOT_WITH_CUDNN
  if (const auto library = cudnn::Library::load()) {
    Stream stream = cuda::make_stream();
    cudnnHandle_t device = nullptr;
    library->check(library->create(&device), "Create");
    for (const Model& model : models(is_tiny))
      for (const bool is_backward : {false, true})
        report.part(model.name, kAttentionEnds,
                    [&] { plan_attention(report, *library, device, model, is_backward); });
    library->destroy(device);
    return;
  }
#endif
  report.line("no cuDNN that can be used: attention runs on Ingot's f32 kernel",
              {{"part", "attention"}, {"plans", 0}});
}

[[noreturn]] void end_late(int) {
  constexpr char kWords[] = "FAILED: the time is up\n";
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, kWords, sizeof kWords - 1);
  _exit(1);
}

int run(const std::vector<std::string>& arguments) {
  std::string file;
  bool is_tiny = false;
  unsigned seconds = 20;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_next = i + 1 < arguments.size();
    if (arguments[i] == "--tiny") {
      is_tiny = true;
    } else if (arguments[i] == "--json" && has_next) {
      file = arguments[++i];
    } else if (arguments[i] == "--seconds" && has_next) {
      seconds = static_cast<unsigned>(std::stoul(arguments[++i]));
    } else {
      fail(ErrorKind::kUsage, "{} is no argument; gpu_probe [--json FILE.jsonl] [--tiny] [--seconds N]",
           arguments[i]);
    }
  }
  Report report(file, seconds);
  std::signal(SIGALRM, end_late);
  alarm(seconds);
  const auto devices = cuda::devices();
  if (devices.empty()) fail(ErrorKind::kUsage, "no GPU: {}", cuda::no_device_reason());
  report.line("on " + devices.front().name, {{"part", "device"}, {"name", devices.front().name}});
  Survey survey(report, is_tiny);
  report.part("heuristics", 1, [&] { survey.run(); });
  report.part("products", 1, [&] { compute(report, survey.kinds()); });
  report.part("attention", 1, [&] { plan_attentions(report, is_tiny); });
  report.line(report.failures() == 0 ? "every kind has a kernel or is replaced"
                                     : fmt::format("{} failures", report.failures()),
              {{"part", "end"}, {"failures", report.failures()}});
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  try {
    return ingot::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_probe: %s\n", error.what());
    return 1;
  }
}
