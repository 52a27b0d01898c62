#include "ingot/parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "ingot/comm/device_group.h"
#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/train/step_result_ring.h"

namespace ingot {
namespace {

using Kind = PipelineOp::Kind;

Pending send(Communicator& group, const Tensor& t, int to) { return group.start_send(group.name(), t, to); }

const char* kind_name(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::kGpipe:
      return "gpipe";
    case PipelineKind::kOneFOneB:
      return "1f1b";
    case PipelineKind::kInterleaved:
      return "interleaved";
  }
  return "";
}

}  // namespace

// step: each rank sends to the rank this much further on.
Pipeline::Route Pipeline::make_route(Communicator& group, int step, std::string name, Stream& stream) {
  Route route{.host = group.split(0, group.rank(), std::move(name)), .staged = {}, .direct = {}};
  if (stream.device == Device::kCpu || stream.backing != Backing::kMemory) return route;
  route.staged = staged_group(*route.host, stream);
  route.direct = device_ring(*route.host, step, stream);
  return route;
}

Pipeline::Pipeline(const Transformer& model, const PipelineConfig& config, Communicator& group,
                   Stream& stream)
    : model_(model),
      config_(config),
      group_(group),
      rank_(group.rank()),
      feed_(stream.device, config.batch, config.shape.micros, stream.backing),
      clocks_{StageClock(stream), StageClock(stream)} {
  const PipelineShape& shape = config.shape;
  shape.validate();
  INGOT_CHECK(group.size() == shape.ranks && config.plan.ranks == shape.ranks &&
                  config.plan.stages() == shape.stages(),
              "Pipeline: {} ranks and {} stages for a shape of {} and {}", group.size(), config.plan.stages(),
              shape.ranks, shape.stages());
  activations_ = make_route(group, 1, "pp activations", stream);
  gradients_ = make_route(group, -1, "pp gradients", stream);
  list_ = schedule(shape);
  choose_plans();
  Arena measure("pipeline plan", arena_memory());
  make_memory(measure);
  arena_ = std::make_unique<Arena>("activations", measure.peak_bytes(), arena_memory(), stream.backing);
  memory_ = make_memory(*arena_);
  const auto inbox = [&](int from, const Tensor& memory, bool is_input) {
    Inbox made{.from = from, .memory = memory, .of_chunk = {}, .shapes = {}, .message = {}, .pending = {}};
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const int first = is_input ? units(chunk).first : units(chunk).end;
      const bool has_message = is_input ? stage(chunk) > 0 : !is_last(stage(chunk));
      made.of_chunk.push_back(
          has_message ? model.message_shape(first, config.batch.batch, config.batch.context) : Shape{});
    }
    return made;
  };
  activation_inbox_ = inbox(previous(), memory_.activation, true);
  gradient_inbox_ = inbox(next(), memory_.gradient, false);
  arenas_.push_back(arena_.get());
  for (const Arena* arena : feed_.arenas()) arenas_.push_back(arena);
  if (feed_.is_on_device() && config.batch.document_mask)
    documents_.resize(static_cast<size_t>(config.shape.micros));
  pipeline_ = {.layout = fmt::format("{}, {}", kind_name(shape.kind), config.plan.to_string()),
               .ideal_bubble = shape.bubble()};
}

// Does not wait while an exception propagates, because the receiving rank may be gone. The groups end before the memory
// that their messages use.
Pipeline::~Pipeline() {
  if (std::uncaught_exceptions() == 0) wait_for_sends();
  for (Route* route : {&activations_, &gradients_}) {
    route->direct.reset();
    route->staged.reset();
    route->host.reset();
  }
}

// Micro-batches in flight in a chunk have consecutive indices, so their slots differ.
Pipeline::Slot& Pipeline::slot(const PipelineOp& op) {
  std::vector<Slot>& own = memory_.slots[static_cast<size_t>(op.chunk)];
  return own[static_cast<size_t>(op.micro) % own.size()];
}

// Reads a micro-batch when a pass first needs it and keeps it for the other passes.
MicroBatch Pipeline::batch(const ExecutorStep& step, int64_t micro) {
  for (; read_ <= micro; ++read_) {
    const MicroBatch& kept = memory_.batches[static_cast<size_t>(read_)];
    const MicroBatch from = feed_.send(step.next(), step.stream);
    copy(kept.tokens, from.tokens, step.stream);
    copy(kept.targets, from.targets, step.stream);
    has_documents_ = static_cast<bool>(from.doc_start);
    if (has_documents_) copy(kept.doc_start, from.doc_start, step.stream);
    if (documents_.empty()) continue;
    const int64_t rows = from.first_rows ? from.first_rows.elements() : 0;
    documents_[static_cast<size_t>(read_)] = rows;
    if (rows > 0) copy(kept.first_rows.rows(0, rows), from.first_rows, step.stream);
  }
  MicroBatch batch = memory_.batches[static_cast<size_t>(micro)];
  if (!has_documents_) batch.doc_start = {};
  batch.first_rows = documents(micro) > 0 ? batch.first_rows.rows(0, documents(micro)) : Tensor{};
  return batch;
}

// Reads all micro-batches of a step with documents. Returns true if the host may have to wait for one of them, because
// attention chooses kernels for its documents or its passes are captured. All ranks read the same ones.
bool Pipeline::meets_new_documents(const ExecutorStep& step) {
  if (documents_.empty() || step.only >= 0) return false;
  batch(step, step.micros - 1);
  for (int64_t micro = 0; micro < step.micros; ++micro)
    if (!has_kernels(micro) || (has_graphs_ && !graphs_.holds(graph_key(Kind::kForward, 0, micro))))
      return true;
  return false;
}

void Pipeline::expect(Inbox& inbox, const Route& route, Kind kind, const std::vector<PipelineOp>& list) {
  inbox.group = &route.on(is_direct_);
  inbox.shapes.clear();
  inbox.posted = 0;
  for (const PipelineOp& op : list)
    if (op.kind == kind) inbox.shapes.push_back(inbox.of_chunk[static_cast<size_t>(op.chunk)]);
  post(inbox);
}

void Pipeline::post(Inbox& inbox) {
  if (inbox.posted == inbox.shapes.size()) return;
  const Shape& shape = inbox.shapes[inbox.posted++];
  inbox.message = inbox.memory.rows(0, shape.elements()).reshape(shape);
  inbox.pending = inbox.group->start_receive(inbox.group->name(), inbox.message, inbox.from);
}

void Pipeline::take(Inbox& inbox, const Tensor& t, Stream& stream) {
  const Span span(stream.trace, "communication");
  clock().begin_wait();
  inbox.pending.wait();
  clock().end_wait();
  copy(t, inbox.message, stream);
  post(inbox);
}

// Decides whether the step runs as graphs. A pass of another number of micro-batches may find other weights gathered
// (parallel/fsdp.h), so its graphs are others.
void Pipeline::begin_graphs(const ExecutorStep& step) {
  has_graphs_ = config_.has_graphs && is_warm_ && step.results;
  if (!has_graphs_) return;
  step.params.begin_graphs();
  if (step.micros == graph_micros_) return;
  graphs_.clear();
  graph_micros_ = step.micros;
}

// Submits a pass, whose tensors are the same in every step.
void Pipeline::submit(const PipelineOp& op, const ExecutorStep& step,
                      const std::function<void(LayerContext&)>& passes) {
  LayerContext ctx = step.context(op.micro);
  if (!has_graphs_ || !has_kernels(op.micro)) return passes(ctx);
  graphs_.run(graph_key(op.kind, op.chunk, op.micro), step, ctx, passes);
}

int64_t Pipeline::graph_key(Kind kind, int chunk, int64_t micro) const {
  const int64_t part = 2 * chunk + (kind == Kind::kBackward ? 1 : 0);
  return 2 * config_.shape.chunks * (documents(micro) * config_.shape.micros + micro) + part;
}

LossSums Pipeline::forward_pass(const PipelineOp& op, const ExecutorStep& step) {
  Slot& own = slot(op);
  const MicroBatch micro = batch(step, op.micro);
  own.activation.wait();
  LossSums sums;
  submit(op, step, [&](LayerContext& ctx) {
    const Span span(ctx.stream.trace, "forward");
    sums = model_.forward(ctx, micro, own.saved, step.grad_scale, op.micro == 0 ? step.checked_tokens : 0);
    if (step.after_forward) step.after_forward(own.saved, micro, sums);
  });
  bring_back(own.saved.in_training.sums, op.chunk, step.results, step.stream);
  return sums;
}

// On a device the last stage has the losses there.
void Pipeline::bring_back(const Tensor& sums, int chunk, StepResultRing* results, Stream& stream) {
  if (!is_last(stage(chunk))) return;
  if (results)
    results->add(sums, stream);
  else
    feed_.bring_back(sums, stream);
}

void Pipeline::backward_pass(const PipelineOp& op, const ExecutorStep& step) {
  Slot& own = slot(op);
  const MicroBatch micro = batch(step, op.micro);
  own.activation.wait();
  step.params.begin_micro(step.only < 0 && op.micro == step.micros - 1);
  submit(op, step, [&](LayerContext& ctx) {
    const Span span(ctx.stream.trace, "backward");
    model_.backward(ctx, micro, own.saved);
  });
}

LossSums Pipeline::perform(const PipelineOp& op, const ExecutorStep& step) {
  Slot& own = slot(op);
  switch (op.kind) {
    case Kind::kReceiveActivation:
      own.gradient.wait();
      take(activation_inbox_, own.saved.in_training.input, step.stream);
      break;
    case Kind::kForward:
      return forward_pass(op, step);
    case Kind::kSendActivation:
      own.activation = send(activations_.on(is_direct_), own.saved.in_training.x, next());
      break;
    case Kind::kReceiveGradient:
      own.activation.wait();
      take(gradient_inbox_, own.saved.in_training.d_x, step.stream);
      break;
    case Kind::kBackward:
      backward_pass(op, step);
      break;
    case Kind::kSendGradient:
      own.gradient = send(gradients_.on(is_direct_), own.saved.in_training.d_input, previous());
      break;
  }
  return {};
}

std::vector<PipelineOp> Pipeline::schedule(const PipelineShape& shape) const {
  std::vector<PipelineOp> list = pipeline_schedule(shape, rank_);
  drop_unused(list);
  return list;
}

// Leaves out gradients that flow only to frozen parameters.
void Pipeline::drop_unused(std::vector<PipelineOp>& list) const {
  std::erase_if(list, [&](const PipelineOp& op) {
    const UnitRange own = units(op.chunk);
    if (op.kind == Kind::kSendGradient) return !model_.trains_below(own.first);
    const bool is_backward = op.kind == Kind::kReceiveGradient || op.kind == Kind::kBackward;
    return is_backward && !model_.trains_below(own.end);
  });
}

// Makes a new list only if the number of micro-batches changes (a batch ramp), or for step.only.
const std::vector<PipelineOp>& Pipeline::list_for(const ExecutorStep& step) {
  PipelineShape shape = config_.shape;
  shape.micros = step.micros;
  pipeline_->ideal_bubble = shape.bubble();
  if (step.only >= 0) {
    other_list_ = lone_micro_schedule(shape, rank_, step.only);
    drop_unused(other_list_);
    other_micros_ = 0;
    return other_list_;
  }
  if (step.micros == config_.shape.micros) return list_;
  if (step.micros != other_micros_) other_list_ = schedule(shape);
  other_micros_ = step.micros;
  return other_list_;
}

bool Pipeline::run(const ExecutorStep& step) {
  INGOT_CHECK(step.micros <= config_.shape.micros && step.only < step.micros && step.grad_scale != 0,
              "Pipeline::run: {} micro-batches, at most {}", step.micros, config_.shape.micros);
  const int64_t window = step.context(0).window;
  if (std::exchange(window_, window) != window) {  // libraries choose their kernels anew
    graphs_.clear();
    documents_seen_.clear();
    documents_evaluated_.clear();
    is_warm_ = has_run_ = false;
  }
  const std::vector<PipelineOp>& list = list_for(step);
  feed_.begin_step(step.steps_in_flight);
  ++runs_;
  in_flight_ = step.steps_in_flight + 1;
  is_asynchronous_ = step.results != nullptr;
  clock().begin_step();
  read_ = std::max<int64_t>(0, step.only);
  step.params.begin_step();
  begin_graphs(step);
  const bool captures = has_graphs_ && !graphs_.has_graphs(step.grad_scale);
  const bool is_new = meets_new_documents(step);
  is_direct_ =
      has_run_ && !captures && !is_new && step.only < 0 && !step.after_forward && step.checked_tokens == 0;
  has_run_ = true;
  expect(activation_inbox_, activations_, Kind::kReceiveActivation, list);
  expect(gradient_inbox_, gradients_, Kind::kReceiveGradient, list);
  sums_ = {};
  for (const PipelineOp& op : list) sums_.add(perform(op, step));
  wait_for_sends();
  if (step.only < 0) {
    is_warm_ = true;
    for (int64_t micro = 0; micro < step.micros; ++micro) documents_seen_.insert(documents(micro));
  }
  clock().end_step();
  has_checked_loss_ = step.checked_tokens > 0;
  return true;
}

void Pipeline::wait_for_sends() {
  for (std::vector<Slot>& chunk : memory_.slots)
    for (Slot& own : chunk) {
      own.activation.wait();
      own.gradient.wait();
    }
}

// Reports the times of the oldest step in flight.
void Pipeline::report() {
  INGOT_CHECK(in_flight_ > 0, "Pipeline: losses of {} steps, {} have run", runs_ + 1, runs_);
  const StageClock::Times times = clocks_[(runs_ - in_flight_) % clocks_.size()].times();
  --in_flight_;
  pipeline_->wait_s = times.wait_s;
  pipeline_->step_s = times.step_s;
}

// The last rank holds the head and broadcasts the checked loss.
LossSums Pipeline::losses(Stream& stream) {
  if (is_asynchronous_) {
    report();
    return {};
  }
  for (const LossSums& micro : feed_.receive(stream)) sums_.add(micro);
  report();
  if (!has_checked_loss_) return sums_;
  RawLoss& raw = sums_.raw;
  std::array<double, 3> numbers{raw.ce, raw.objective, raw.trained};
  const int root = config_.shape.ranks - 1;
  group_.broadcast("checked loss", Tensor(numbers.data(), DType::f64, {std::ssize(numbers)}), root);
  raw = {.ce = numbers[0],
         .objective = numbers[1],
         .trained = numbers[2],
         .tokens = group_.broadcast_number(raw.tokens, root)};
  return sums_;
}

// A stage can begin the next micro-batch while the next stage still computes this one.
LossSums Pipeline::forward(LayerContext& ctx, const Batch& batch) {
  const MicroBatch micro = feed_.send(batch, ctx.stream);
  const int64_t rows = micro.first_rows ? micro.first_rows.elements() : 0;
  const bool is_new =
      !documents_.empty() && !documents_seen_.contains(rows) && documents_evaluated_.insert(rows).second;
  Communicator& messages = activations_.on(has_run_ && !is_new);
  LossSums sums;
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk) {
    Slot& own = slot({.kind = Kind::kForward, .micro = evaluated_, .chunk = chunk});
    own.activation.wait();
    if (stage(chunk) > 0) messages.receive(messages.name(), own.saved.in_evaluation.input, previous());
    sums.add(model_.forward(ctx, micro, own.saved, 0));
    bring_back(own.saved.in_evaluation.sums, chunk, nullptr, ctx.stream);
    if (!is_last(stage(chunk))) own.activation = send(messages, own.saved.in_evaluation.x, next());
  }
  ++evaluated_;
  if (!feed_.is_on_device()) return sums;
  wait_for_sends();  // the next stage has the activation; it still computes
  for (const LossSums& own : feed_.receive(ctx.stream)) sums.add(own);
  return sums;
}

std::vector<const Transformer::Saved*> Pipeline::parts() const {
  std::vector<const Transformer::Saved*> parts;
  for (const std::vector<Slot>& slots : memory_.slots) parts.push_back(&slots.front().saved);
  return parts;
}

void Pipeline::infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                     const Tensor& logits) {
  const ScratchScope scope(ctx.scratch);
  Communicator& messages = activations_.on(false);
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk) {
    const ScratchScope scope_of_chunk(ctx.scratch);
    const Shape none{0},
        first = stage(chunk) > 0 ? model_.message_shape(units(chunk).first, 1, batch.rows()) : none,
        last = is_last(stage(chunk)) ? none : model_.message_shape(units(chunk).end, 1, batch.rows());
    // The message that comes is read before the one that goes is written.
    const Tensor room = ctx.scratch.alloc(model_.compute(), {std::max(first.elements(), last.elements())});
    const auto message = [&](const Shape& shape) {
      return shape == none ? Tensor{} : room.rows(0, shape.elements()).reshape(shape);
    };
    const Tensor in = message(first), out = message(last);
    if (in) messages.receive(messages.name(), in, previous());
    model_.infer_units(ctx, batch, units(chunk), in, out, caches, logits);
    if (out) messages.send(messages.name(), out, next());
  }
  if (batch.outputs_count() > 0) messages.broadcast("logits", logits, config_.shape.ranks - 1);
}

}  // namespace ingot
