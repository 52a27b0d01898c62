#include "ingot/train/pass_runner.h"

#include <utility>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/trace.h"
#include "ingot/ops/dropout.h"

namespace ingot {

void PassRunner::clear() {
  chosen_.clear();
  running_.clear();
  evaluated_.clear();
  graphs_.clear();
}

void PassRunner::begin_step(const ExecutorStep& step) {
  const int64_t window = step.context(0).window;
  if (std::exchange(window_, window) != window) clear();
  chosen_.merge(running_);
  running_.clear();
  uses_graphs_ = has_graphs_ && step.results && !chosen_.empty();
  step.params.begin_step();
  if (!uses_graphs_) return;
  step.params.begin_graphs();
  if (std::exchange(micros_, step.micros) != step.micros ||
      std::exchange(grad_scale_, step.grad_scale) != step.grad_scale)
    graphs_.clear();
}

bool PassRunner::is_ready(const MicroPass& pass) const {
  const Kernels kernels{pass.documents, pass.is_first};
  return chosen_.contains(kernels) && (!uses_graphs_ || graphs_.contains({kernels, pass.graph}));
}

bool PassRunner::is_evaluation_ready(int64_t documents) {
  chosen_.merge(running_);
  running_.clear();
  if (chosen_.empty()) return false;
  return chosen_.contains({documents, true}) || chosen_.contains({documents, false}) ||
         !evaluated_.insert(documents).second;
}

void PassRunner::run(const MicroPass& pass, const ExecutorStep& step,
                     const std::function<void(LayerContext&)>& operations) {
  LayerContext ctx = step.context(pass.micro);
  const Kernels kernels{pass.documents, pass.is_first};
  running_.insert(kernels);
  if (uses_graphs_ && pass.can_be_captured && chosen_.contains(kernels))
    replay(graphs_[{kernels, pass.graph}], step, ctx, operations);
  else
    operations(ctx);
}

// Lets dropout read from memory which step and micro-batch it is for.
void PassRunner::place_dropout(LayerContext& ctx) const {
  DropoutState& dropout = ctx.dropout;
  dropout.place = feed_.dropout_place();
  set_dropout_place(dropout.place, dropout.step, dropout.first_row, dropout.first_row / context_, ctx.stream);
  dropout.step = 0;
  dropout.first_row = 0;
}

// Launches the graph of a pass, and captures it before if it is new.
void PassRunner::replay(Captured& captured, const ExecutorStep& step, LayerContext& ctx,
                        const std::function<void(LayerContext&)>& operations) {
  if constexpr (kHasCuda) {
    const Span span(step.stream.trace, "graph");
    step.params.wait_messages();
    if (ctx.dropout.p > 0) place_dropout(ctx);
    if (captured.graph) {
      ctx.fp8->add_elements(captured.elements);
      INGOT_CHECK(step.params.state() == captured.before,
                  "PassRunner: a graph was captured with other weights or gradients in memory");
      step.params.replayed(captured.after);
    } else {
      captured.elements = ctx.fp8->elements();
      captured.before = step.params.state();
      captured.graph = std::make_shared<cuda::Graph>(step.stream, [&] {
        operations(ctx);
        step.params.wait_messages();
      });
      for (size_t t = 0; t < captured.elements.size(); ++t)
        captured.elements[t] = ctx.fp8->elements()[t] - captured.elements[t];
      captured.after = step.params.state();
    }
    captured.graph->launch(step.stream);
  }
}

}  // namespace ingot
