#include "ingot/ops/attention/attention_cudnn.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/ops/attention/attention_graph.h"
#include "ingot/ops/attention/document_table.h"
#include "ingot/ops/cuda/cuda_libraries.h"
#include "ingot/ops/cuda/fastest.h"
#include "ingot/ops/cuda/plan_cudnn.h"
#include "ingot/ops/deterministic.h"

namespace ingot::cudnn {
namespace {

constexpr size_t kAlign = 256;  // alignment of the buffers in the scratch, in bytes
constexpr const char* kNoLibrary = "libcudnn.so.9 cannot be loaded, or is a version whose attention is wrong";
constexpr const char* kNoGraph =
    "it has no kernel for such a call (f32, dropout, not causal, or rows off 16 bytes)";
constexpr const char* kLittleScratch = "the caller's scratch is too small";
constexpr size_t kTimedPlans = 4;  // as many of the plans that cuDNN proposes are timed

// Returns everything that the choice of a plan depends on, as text.
std::string key_of(const FusedAttention& p, const char* pass) {
  std::string key = fmt::format("{}.{}.{}.{}.{}.{}.{}.{}.{}.{}", pass, name(p.dtype), p.B, p.T, p.H, p.K, p.D,
                                p.scale, p.has_documents, p.masks_with_infinity);
  if (p.window > 0) key += fmt::format(".window.{}", p.window);
  if (p.documents > 0) key += fmt::format(".documents.{}", p.documents);
  for (const FusedAttention::Strides* strides : {&p.q, &p.k, &p.v, &p.out, &p.dq, &p.dk, &p.dv, &p.d_out})
    for (const int64_t stride : *strides) key += fmt::format(".{}", stride);
  return key;
}

// The library and the plans made so far; destroyed with the stream.
class Plans final : public StreamResource {
 public:
  explicit Plans(Stream& stream) : stream_(stream), library_(Library::load()) {
    if (!library_) return;
    choices_ = &cuda::choices_of("attention", library_->version());
    library_->check(library_->create(&device_), "Create");
    library_->check(library_->set_stream(device_, cuda::queue_of(stream)), "SetStream");
  }
  ~Plans() override {
    forward_.clear();
    backward_.clear();
    if (device_) library_->destroy(device_);
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  struct Entry {
    AttentionGraph graph;
    std::optional<Plan> plan;  // nullopt if there is none; why_not says why
    std::string why_not = {};
  };
  using Run = std::function<void(const AttentionGraph&, const Plan&)>;
  // Return the plan for a problem; null if there is none within workspace_bytes, and why_not() says why. The
  // first call for a problem runs the first plans that cuDNN proposes and chooses the fastest
  // (ops/cuda/kernel_choices.h).
  const Entry* forward(const FusedAttention& problem, size_t workspace_bytes, const Run& run) {
    return find(forward_, problem, {"forward", attention_forward_graph}, workspace_bytes, run);
  }
  const Entry* backward(const FusedAttention& problem, size_t workspace_bytes, const Run& run) {
    return find(backward_, problem, {"backward", attention_backward_graph}, workspace_bytes, run);
  }
  bool is_right(const FusedAttention& backward) const {
    return has_right_gradients(backward, library_->version());
  }
  const std::string& why_not() const { return why_not_; }
  bool is_loaded() const { return library_ != nullptr; }
  size_t version() const { return library_ ? library_->version() : 0; }
  cudnnHandle_t device() const { return device_; }

 private:
  using Cache = std::map<FusedAttention, Entry>;
  struct Pass {
    const char* name;
    AttentionGraph (*graph)(const FusedAttention&);
  };
  const Entry* find(Cache& cache, const FusedAttention& problem, const Pass& pass, size_t workspace_bytes,
                    const Run& run) {
    auto found = cache.find(problem);
    if (found == cache.end()) {
      if (stream_.graph) ++cuda::libraries_of(stream_).report.met_in_graphs;
      Entry entry{pass.graph(problem), std::nullopt};
      choose(entry, key_of(problem, pass.name), workspace_bytes, run);
      found = cache.emplace(problem, std::move(entry)).first;
    }
    const std::optional<Plan>& plan = found->second.plan;
    why_not_ = plan ? too_large(*plan, workspace_bytes) : found->second.why_not;
    return plan && plan->workspace_bytes() <= workspace_bytes ? &found->second : nullptr;
  }
  static std::string too_large(const Plan& plan, size_t workspace_bytes) {
    return fmt::format("its plan wants {} bytes of scratch, and {} are left for it", plan.workspace_bytes(),
                       workspace_bytes);
  }

  std::vector<Plan> make(const Entry& entry, size_t workspace_bytes, const Plan::Wanted& wanted) const {
    return Plan::make(*library_, entry.graph.graph, {.device = device_}, workspace_bytes, wanted);
  }

  // Sets entry.plan to the plan that was chosen before, or to the fastest one.
  void choose(Entry& entry, const std::string& key, size_t workspace_bytes, const Run& run) {
    if (const auto choice = choices_->find(key)) {
      const int64_t number = std::atoll(choice->c_str());
      std::vector<Plan> chosen = make(entry, workspace_bytes, {.first = number, .most = 1});
      if (!chosen.empty() && chosen.front().number() == number) {
        entry.plan.emplace(std::move(chosen.front()));
        return;
      }
    }
    std::vector<Plan> plans = make(entry, workspace_bytes, {.first = 0, .most = kTimedPlans});
    if (plans.empty()) {
      const std::vector<Plan> any = make(entry, SIZE_MAX, {.first = 0, .most = 1});
      entry.why_not = any.empty() ? "it has no plan" : too_large(any.front(), workspace_bytes);
      return;
    }
    size_t best = 0;
    if (!stream_.graph) {  // a graph is no place for timing
      const auto submit = cuda::without_errors([&](size_t i) { run(entry.graph, plans[i]); }, entry.why_not);
      const auto able = cuda::fastest(plans.size(), submit, stream_);
      if (!able) return;
      best = *able;
      const std::string number = choices_->keep(key, fmt::format("{}", plans[best].number()));
      const auto first = std::ranges::find(plans, std::atoll(number.c_str()), &Plan::number);
      if (first != plans.end()) best = static_cast<size_t>(first - plans.begin());
    }
    entry.plan.emplace(std::move(plans[best]));
  }

  Stream& stream_;
  std::unique_ptr<Library> library_;
  KernelChoices* choices_ = nullptr;  // null without the library
  cudnnHandle_t device_ = nullptr;
  Cache forward_, backward_;
  std::string why_not_;
};

Plans& plans_of(Stream& stream) {
  std::unique_ptr<StreamResource>& place = cuda::libraries_of(stream).attention;
  if (!place) place = std::make_unique<Plans>(stream);
  return static_cast<Plans&>(*place);
}

// Allocates buffers from the scratch, front to back.
class Scratch {
 public:
  explicit Scratch(const Tensor& t) : next_(t.as<float>()), end_(t ? next_ + t.elements() : next_) {
    align();
  }
  float* take(int64_t numbers) {
    INGOT_CHECK(end_ - next_ >= numbers, "attention: scratch of {} numbers, {} wanted", end_ - next_,
                numbers);
    float* first = next_;
    next_ += numbers;
    align();
    return first;
  }
  size_t left_bytes() const { return static_cast<size_t>(end_ - next_) * sizeof(float); }
  void* rest() const { return next_; }

 private:
  void align() {
    const size_t over = reinterpret_cast<uintptr_t>(next_) % kAlign;
    const size_t skipped = over ? (kAlign - over) / sizeof(float) : 0;
    next_ += std::min(end_ - next_, static_cast<ptrdiff_t>(skipped));
  }

  float *next_, *end_;
};

// Documents holds the table that graphs of documents read instead of doc_start, and the place of their lse.
struct Documents {
  cuda::DocumentTable table = {};
  Tensor lse_by_token = {};  // (B*T, H) f32

  void add_places(const AttentionGraph& g, std::vector<Binding>& places) const {
    if (!lse_by_token) return;
    places.push_back({g.lengths, table.lengths.data});
    places.push_back({g.qkv_at, table.qkv_at.data});
    places.push_back({g.out_at, table.out_at.data});
    places.push_back({g.lse_at, table.lse_at.data});
  }
};

Documents lay_out_documents(const FusedAttention& p, const Tensor& cu_seqlens, Scratch& place,
                            Stream& stream) {
  const int64_t D = p.documents;
  const auto take = [&](DType dtype, const Shape& shape, int64_t numbers) {
    return Tensor(place.take(numbers), dtype, shape, Device::kCuda);
  };
  Documents documents;
  documents.table = {take(DType::i32, {D}, D), take(DType::i32, {D + 1}, D + 1),
                     take(DType::i32, {D + 1}, D + 1), take(DType::i32, {D + 1}, D + 1)};
  documents.lse_by_token = take(DType::f32, {p.B * p.T, p.H}, p.B * p.T * p.H);
  cuda::document_table(documents.table, cu_seqlens, {.qkv = p.q[1], .out = p.out[1], .lse = p.H}, stream);
  return documents;
}

AttentionShape shape_of(const FusedAttention& p) { return {p.B, p.T, p.T, p.H, p.K, p.D}; }

// Returns true if the rows of q, k and v are as far apart as in one buffer, which the scratch for documents
// is planned for.
bool is_packed(const FusedAttention& p) { return p.q[1] == (p.H + 2 * p.K) * p.D; }

// Completes the problem of a pass that needs `bytes` of scratch, and lays out its documents if cuDNN takes
// them as the batch. Returns nullopt if there is no room even without documents.
std::optional<Documents> prepare(FusedAttention& p, const AttentionConfig& config,
                                 size_t (*bytes)(const AttentionShape&, bool), const Tensor& scratch,
                                 Scratch& place, Stream& stream) {
  const auto has_room = [&](bool has_documents) {
    return scratch.bytes() >= bytes(shape_of(p), has_documents);
  };
  if (!has_room(false)) return std::nullopt;
  p.masks_with_infinity = cuda::libraries_of(stream).masks_with_infinity;
  if (is_packed(p) && has_room(true) && take_documents(p, config, plans_of(stream).version()))
    return lay_out_documents(p, config.cu_seqlens, place, stream);
  return Documents{};
}

// Without a kernel for documents, the mask remains.
AttentionConfig with_mask_only(AttentionConfig config) {
  config.cu_seqlens = {};
  return config;
}

}  // namespace

bool is_available() {
  static const bool is_there = Library::load() != nullptr;  // does not change while the process runs
  return is_there;
}

std::string version() {
  static const std::string version = [] {
    const auto library = Library::load();
    const size_t number = library ? library->version() : 0;
    return library ? fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100) : "";
  }();
  return version;
}

std::string attention_forward(const AttentionOperands& t, const AttentionConfig& config,
                              const Tensor& scratch, Stream& stream) {
  auto problem = fused_attention(t, config);
  if (!problem) return kNoGraph;
  if (!t.lse || !scratch) return "without statistics or scratch, as in generation";
  Plans& plans = plans_of(stream);
  if (!plans.is_loaded()) return kNoLibrary;
  Scratch place(scratch);
  const std::optional<Documents> documents =
      prepare(*problem, config, fused_forward_bytes, scratch, place, stream);
  if (!documents) return kLittleScratch;
  const bool has_documents = problem->documents > 0;
  const Tensor& kept_lse = has_documents ? documents->lse_by_token : t.lse;
  const auto run = [&](const AttentionGraph& g, const Plan& plan) {
    std::vector<Binding> places{
        {g.q, t.q.data}, {g.k, t.k.data}, {g.v, t.v.data}, {g.out, t.out.data}, {g.lse, kept_lse.data}};
    if (g.doc_start != OpGraph::kNone) places.push_back({g.doc_start, t.doc_start.data});
    documents->add_places(g, places);
    plan.run(plans.device(), places, place.rest());
  };
  const Plans::Entry* entry = plans.forward(*problem, place.left_bytes(), run);
  if (!entry && has_documents) return cudnn::attention_forward(t, with_mask_only(config), scratch, stream);
  if (!entry) return plans.why_not();
  run(entry->graph, *entry->plan);
  if (has_documents) cuda::lse_from_tokens(t.lse, kept_lse, stream);
  return "";
}

std::string attention_backward(const AttentionGradients& d, const AttentionOperands& t,
                               const AttentionConfig& config, const Tensor& scratch, Stream& stream) {
  if (is_deterministic(stream)) return "its gradients are not deterministic";
  auto problem = fused_attention(t, config);
  if (!problem || !add_gradients(*problem, d)) return kNoGraph;
  Plans& plans = plans_of(stream);
  if (!plans.is_loaded()) return kNoLibrary;
  if (!plans.is_right(*problem)) return "this version gets such gradients wrong";
  Scratch place(scratch);
  const std::optional<Documents> documents =
      prepare(*problem, config, fused_backward_bytes, scratch, place, stream);
  if (!documents) return kLittleScratch;
  const bool has_documents = problem->documents > 0;
  const Tensor& kept_lse = has_documents ? documents->lse_by_token : t.lse;
  if (has_documents) cuda::lse_to_tokens(kept_lse, t.lse, stream);
  const int64_t rows = problem->B * problem->T;
  float* delta = place.take(t.lse.elements());
  float* dq_sum = place.take(has_documents ? rows * problem->dq[1] : t.lse.elements() * problem->D);
  float *dk_heads = nullptr, *dv_heads = nullptr;
  if (has_documents && problem->H > problem->K) {
    // The scratch counts f32 numbers, and these have 16 bits.
    const int64_t numbers = (rows * problem->dq[1] * (problem->H / problem->K) + 1) / 2;
    dk_heads = place.take(numbers);
    dv_heads = place.take(numbers);
  }
  const auto run = [&](const AttentionGraph& g, const Plan& plan) {
    std::vector<Binding> places{{g.q, t.q.data},     {g.k, t.k.data},        {g.v, t.v.data},
                                {g.out, t.out.data}, {g.lse, kept_lse.data}, {g.d_out, d.d_out.data},
                                {g.dq, d.dq.data},   {g.dk, d.dk.data},      {g.dv, d.dv.data},
                                {g.delta, delta},    {g.dq_sum, dq_sum}};
    if (g.doc_start != OpGraph::kNone) places.push_back({g.doc_start, t.doc_start.data});
    documents->add_places(g, places);
    if (dk_heads) places.insert(places.end(), {{g.dk_heads, dk_heads}, {g.dv_heads, dv_heads}});
    plan.run(plans.device(), places, place.rest());
  };
  const Plans::Entry* entry = plans.backward(*problem, place.left_bytes(), run);
  if (!entry && has_documents)
    return cudnn::attention_backward(d, t, with_mask_only(config), scratch, stream);
  if (!entry) return plans.why_not();
  run(entry->graph, *entry->plan);
  return "";
}

}  // namespace ingot::cudnn
