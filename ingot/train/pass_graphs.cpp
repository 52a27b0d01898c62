#include "ingot/train/pass_graphs.h"

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/trace.h"
#include "ingot/ops/dropout.h"

namespace ingot {

// Lets dropout read from memory which step and micro-batch it is for.
void PassGraphs::place_dropout(LayerContext& ctx) const {
  DropoutState& dropout = ctx.dropout;
  dropout.place = feed_.dropout_place();
  set_dropout_place(dropout.place, dropout.step, dropout.first_row, dropout.first_row / context_, ctx.stream);
  dropout.step = 0;
  dropout.first_row = 0;
}

void PassGraphs::run(int64_t key, const ExecutorStep& step, LayerContext& ctx,
                     const std::function<void(LayerContext&)>& passes) {
  if constexpr (kHasCuda) {
    const Span span(step.stream.trace, "graph");
    if (!has_graphs(step.grad_scale)) clear();
    grad_scale_ = step.grad_scale;
    step.params.wait_messages();
    if (ctx.dropout.p > 0) place_dropout(ctx);
    Captured& captured = graphs_[key];
    if (captured.graph) {
      ctx.fp8->add_elements(captured.elements);
      INGOT_CHECK(
          step.params.state() == captured.before,
          "PassGraphs: the passes of graph {} were captured with other weights or gradients in memory", key);
      step.params.replayed(captured.after);
    } else {
      captured.elements = ctx.fp8->elements();
      captured.before = step.params.state();
      captured.graph = std::make_shared<cuda::Graph>(step.stream, [&] {
        passes(ctx);
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
