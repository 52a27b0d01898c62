#include "ingot/train/pass_runner.h"

#include <utility>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/trace.h"
#include "ingot/ops/dropout.h"

namespace ingot {

void PassRunner::clear() {
  chosen_ = running_ = {};
  evaluated_.clear();
  graphs_.clear();
}

// The passes of the last step have chosen their kernels.
void PassRunner::end_step() {
  chosen_.documents.merge(running_.documents);
  chosen_.are_first.merge(running_.are_first);
  running_ = {};
}

void PassRunner::begin_step(const ExecutorStep& step) {
  const int64_t window = step.context(0).window;
  if (std::exchange(window_, window) != window) clear();
  end_step();
  uses_graphs_ = has_graphs_ && step.results && !chosen_.documents.empty();
  step.params.begin_step();
  if (!uses_graphs_) return;
  step.params.begin_graphs();
  const bool has_other_micros = std::exchange(micros_, step.micros) != step.micros;
  const bool has_other_scale = std::exchange(grad_scale_, step.grad_scale) != step.grad_scale;
  if (has_other_micros || has_other_scale) graphs_.clear();
}

bool PassRunner::is_ready(const MicroPass& pass) const {
  return chosen_.has(pass) && (!uses_graphs_ || graphs_.contains(key_of(pass)));
}

bool PassRunner::is_evaluation_ready(int64_t documents) {
  end_step();
  if (chosen_.documents.empty()) return false;
  return chosen_.documents.contains(documents) || !evaluated_.insert(documents).second;
}

void PassRunner::run(const MicroPass& pass, const ExecutorStep& step,
                     const std::function<void(LayerContext&)>& operations) {
  LayerContext ctx = step.context(pass.micro);
  running_.documents.insert(pass.documents);
  running_.are_first.insert(pass.is_first);
  if (uses_graphs_ && pass.can_be_captured && chosen_.has(pass))
    replay(graphs_[key_of(pass)], step, ctx, operations);
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
