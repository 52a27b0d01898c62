#include "ingot/ops/attention/attention_cudnn.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/ops/attention/attention_graph.h"
#include "ingot/ops/attention/window_starts.h"
#include "ingot/ops/cuda/cuda_libraries.h"
#include "ingot/ops/cuda/fastest.h"
#include "ingot/ops/cuda/plan_cudnn.h"
#include "ingot/ops/deterministic.h"

namespace ingot::cudnn {
namespace {

constexpr size_t kAlign = 256;     // alignment of the buffers in the scratch, in bytes
constexpr size_t kTimedPlans = 4;  // as many of the plans that cuDNN proposes are timed

// Returns everything that the choice of a plan depends on, as text.
std::string key_of(const FusedAttention& p, const char* pass) {
  std::string key = fmt::format("{}.{}.{}.{}.{}.{}.{}.{}.{}.{}", pass, name(p.dtype), p.B, p.T, p.H, p.K, p.D,
                                p.scale, p.has_documents, p.masks_with_infinity);
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
    std::optional<Plan> plan;  // nullopt if cuDNN has no kernel
  };
  using Run = std::function<void(const AttentionGraph&, const Plan&)>;
  // Return the plan for a problem; null if there is none within workspace_bytes. The first call for a problem runs the
  // first plans that cuDNN proposes and chooses the fastest (ops/cuda/kernel_choices.h).
  const Entry* forward(const FusedAttention& problem, size_t workspace_bytes, const Run& run) {
    return find(forward_, problem, {"forward", attention_forward_graph}, workspace_bytes, run);
  }
  const Entry* backward(const FusedAttention& problem, size_t workspace_bytes, const Run& run) {
    return find(backward_, problem, {"backward", attention_backward_graph}, workspace_bytes, run);
  }
  bool is_right(const FusedAttention& backward) const {
    return library_ && has_right_gradients(backward, library_->version());
  }
  cudnnHandle_t device() const { return device_; }

 private:
  using Cache = std::map<FusedAttention, Entry>;
  struct Pass {
    const char* name;
    AttentionGraph (*graph)(const FusedAttention&);
  };
  const Entry* find(Cache& cache, const FusedAttention& problem, const Pass& pass, size_t workspace_bytes,
                    const Run& run) {
    if (!library_) return nullptr;
    auto found = cache.find(problem);
    if (found == cache.end()) {
      Entry entry{pass.graph(problem), std::nullopt};
      choose(entry, key_of(problem, pass.name), workspace_bytes, run);
      found = cache.emplace(problem, std::move(entry)).first;
    }
    const std::optional<Plan>& plan = found->second.plan;
    return plan && plan->workspace_bytes() <= workspace_bytes ? &found->second : nullptr;
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
    if (plans.empty()) return;
    size_t best = 0;
    if (!stream_.graph) {  // a graph is no place for timing
      const auto submit = [&](size_t i) {
        run(entry.graph, plans[i]);
        return true;
      };
      best = cuda::fastest(plans.size(), submit, stream_).value_or(0);
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

}  // namespace

namespace {

// Returns the first key that each query sees, as doc_start: with a window in memory of `place`.
Tensor first_keys(const Tensor& doc_start, const Tensor& q, const AttentionConfig& config, Scratch& place,
                  Stream& stream) {
  const int64_t B = q.dim(0), T = q.dim(1);
  if (config.window == 0 || config.window >= T) return doc_start;
  const Tensor starts(place.take(B * T), DType::i32, {B, T}, Device::kCuda);
  cuda::window_starts(starts, doc_start, config.window, stream);
  return starts;
}

int64_t starts_bytes(const Tensor& q, const AttentionConfig& config) {
  return config.window == 0 ? 0 : q.dim(0) * q.dim(1) * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

bool is_available() {
  static const bool is_there = Library::load() != nullptr;  // does not change while the process runs
  return is_there;
}

bool attention_forward(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& doc_start, const AttentionConfig& config,
                       const Tensor& scratch, Stream& stream) {
  auto problem = fused_attention(q, k, v, out, doc_start, config);
  if (!problem || !lse || !scratch ||
      scratch.bytes() < fused_forward_bytes() + static_cast<size_t>(starts_bytes(q, config)))
    return false;
  Scratch place(scratch);
  const Tensor starts = first_keys(doc_start, q, config, place, stream);
  problem->masks_with_infinity = cuda::libraries_of(stream).masks_with_infinity;
  Plans& plans = plans_of(stream);
  const auto run = [&](const AttentionGraph& g, const Plan& plan) {
    std::array<Place, 6> places{
        {{g.q, q.data}, {g.k, k.data}, {g.v, v.data}, {g.out, out.data}, {g.lse, lse.data}}};
    size_t count = 5;
    if (starts) places[count++] = {g.doc_start, starts.data};
    plan.run(plans.device(), std::span(places).first(count), place.rest());
  };
  const Plans::Entry* entry = plans.forward(*problem, place.left_bytes(), run);
  if (!entry) return false;
  run(entry->graph, *entry->plan);
  return true;
}

bool attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_out,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, const Tensor& doc_start, const AttentionConfig& config,
                        const Tensor& scratch, Stream& stream) {
  if (is_deterministic(stream)) return false;
  auto problem = fused_attention(q, k, v, out, doc_start, config);
  if (!problem || !add_gradients(*problem, dq, dk, dv, d_out)) return false;
  if (!plans_of(stream).is_right(*problem)) return false;
  const AttentionShape shape{problem->B, problem->T, problem->T, problem->H, problem->K, problem->D};
  if (scratch.bytes() < fused_backward_bytes(shape) + static_cast<size_t>(starts_bytes(q, config)))
    return false;
  Scratch place(scratch);
  const Tensor starts = first_keys(doc_start, q, config, place, stream);
  float* delta = place.take(lse.elements());
  float* dq_sum = place.take(lse.elements() * problem->D);
  problem->masks_with_infinity = cuda::libraries_of(stream).masks_with_infinity;
  Plans& plans = plans_of(stream);
  const auto run = [&](const AttentionGraph& g, const Plan& plan) {
    std::array<Place, 12> places{{{g.q, q.data},
                                  {g.k, k.data},
                                  {g.v, v.data},
                                  {g.out, out.data},
                                  {g.lse, lse.data},
                                  {g.d_out, d_out.data},
                                  {g.dq, dq.data},
                                  {g.dk, dk.data},
                                  {g.dv, dv.data},
                                  {g.delta, delta},
                                  {g.dq_sum, dq_sum}}};
    size_t count = 11;
    if (starts) places[count++] = {g.doc_start, starts.data};
    plan.run(plans.device(), std::span(places).first(count), place.rest());
  };
  const Plans::Entry* entry = plans.backward(*problem, place.left_bytes(), run);
  if (!entry) return false;
  run(entry->graph, *entry->plan);
  return true;
}

}  // namespace ingot::cudnn
