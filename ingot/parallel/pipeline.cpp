#include "ingot/parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "ingot/comm/device_group.h"
#include "ingot/core/copy.h"
#include "ingot/core/error.h"
#include "ingot/train/step_results.h"

namespace ingot {
namespace {

using Kind = PipelineOp::Kind;

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

Pipeline::Pipeline(const Transformer& model, const PipelineConfig& config, Communicator& group,
                   Stream& stream)
    : model_(model),
      config_(config),
      group_(group),
      feed_(stream.device, config.batch, config.shape.micros, stream.backing),
      clock_(stream) {
  const PipelineShape& shape = config.shape;
  shape.validate();
  INGOT_CHECK(group.size() == shape.ranks && config.plan.ranks == shape.ranks &&
                  config.plan.stages() == shape.stages(),
              "Pipeline: {} ranks and {} stages for a shape of {} and {}", group.size(), config.plan.stages(),
              shape.ranks, shape.stages());
  list_ = schedule(shape);
  choose_plans();
  Arena measure("pipeline plan", arena_memory());
  make_memory(measure);
  arena_ = std::make_unique<Arena>("activations", measure.peak_bytes(), arena_memory(), stream.backing);
  memory_ = make_memory(*arena_);
  activations_ = make_link(Kind::kReceiveActivation, "pp activations", stream);
  gradients_ = make_link(Kind::kReceiveGradient, "pp gradients", stream);
  arenas_.push_back(arena_.get());
  for (const Arena* arena : feed_.arenas()) arenas_.push_back(arena);
  pipeline_ = {.layout = fmt::format("{}, {}", kind_name(shape.kind), config.plan.to_string()),
               .ideal_bubble = shape.bubble()};
}

Pipeline::Link Pipeline::make_link(Kind kind, std::string name, Stream& stream) {
  const bool is_activation = kind == Kind::kReceiveActivation;
  const int ranks = group_.size(), step = is_activation ? 1 : -1;
  Link link{.host = group_.split(0, group_.rank(), std::move(name)),
            .staged = nullptr,
            .direct = nullptr,
            .from = (group_.rank() - step + ranks) % ranks,
            .to = (group_.rank() + step + ranks) % ranks,
            .memory = is_activation ? memory_.activation : memory_.gradient};
  if (stream.device == Device::kCuda && stream.backing == Backing::kMemory) {
    link.staged = staged_group(*link.host, stream);
    link.direct = device_ring(*link.host, step, stream);
  }
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk) {
    const int first = is_activation ? units(chunk).first : units(chunk).end;
    const bool has_message = is_activation ? stage(chunk) > 0 : !is_last(stage(chunk));
    link.of_chunk.push_back(
        has_message ? model_.message_shape(first, config_.batch.batch, config_.batch.context) : Shape{});
  }
  return link;
}

// Does not wait while an exception propagates, because the receiving rank may be gone. The groups end before
// the memory that their messages use.
Pipeline::~Pipeline() {
  if (std::uncaught_exceptions() == 0) wait_for_sends();
  for (Link* link : {&activations_, &gradients_}) {
    link->direct.reset();
    link->staged.reset();
    link->host.reset();
  }
}

// Micro-batches in flight in a chunk have consecutive indices, so their slots differ.
Pipeline::Slot& Pipeline::slot(const PipelineOp& op) {
  std::vector<Slot>& own = memory_.slots[static_cast<size_t>(op.chunk)];
  return own[static_cast<size_t>(op.micro) % own.size()];
}

// Reads a micro-batch when a pass first needs it and keeps it for the other passes.
const MicroBatch& Pipeline::batch(const ExecutorStep& step, int64_t micro) {
  const int64_t first = std::max<int64_t>(0, step.only);
  while (std::ssize(read_) <= micro - first) {
    MicroBatch kept = memory_.batches[read_.size() + static_cast<size_t>(first)];
    const MicroBatch from = feed_.send(step.next(), step.stream);
    kept.cu_seqlens = from.documents() > 0 ? kept.cu_seqlens.rows(0, from.documents()) : Tensor{};
    if (!from.doc_start) kept.doc_start = {};
    for (const auto field :
         {&MicroBatch::tokens, &MicroBatch::targets, &MicroBatch::doc_start, &MicroBatch::cu_seqlens})
      if (from.*field) copy(kept.*field, from.*field, step.stream);
    read_.push_back(kept);
  }
  return read_[static_cast<size_t>(micro - first)];
}

MicroPass Pipeline::pass(const ExecutorStep& step, const PipelineOp& op) {
  const int64_t graph = op.micro * config_.shape.chunks + op.chunk;
  return {.micro = op.micro,
          .is_first = op.micro == std::max<int64_t>(0, step.only),
          .documents = memory_.batches.front().cu_seqlens ? batch(step, op.micro).documents() : 0,
          .graph = 2 * graph + (op.kind == Kind::kBackward ? 1 : 0)};
}

// Returns true if the host need not wait during the step. All ranks have read the same micro-batches.
bool Pipeline::waits_for_nothing(const ExecutorStep& step) {
  if (!activations_.direct || step.only >= 0 || step.after_forward || step.checked_tokens > 0) return false;
  for (int64_t micro = 0; micro < step.micros; ++micro)
    if (!runner_.is_ready(pass(step, {.kind = Kind::kForward, .micro = micro}))) return false;
  return true;
}

void Pipeline::expect(Link& link, Kind kind, const std::vector<PipelineOp>& list) {
  link.shapes.clear();
  link.posted = 0;
  for (const PipelineOp& op : list)
    if (op.kind == kind) link.shapes.push_back(link.of_chunk[static_cast<size_t>(op.chunk)]);
  post(link);
}

void Pipeline::post(Link& link) {
  if (link.posted == link.shapes.size()) return;
  const Shape& shape = link.shapes[link.posted++];
  Communicator& group = link.group(is_direct_);
  link.message = link.memory.rows(0, shape.elements()).reshape(shape);
  link.pending = group.start_receive(group.name(), link.message, link.from);
}

void Pipeline::take(Link& link, const Tensor& t, Stream& stream) {
  const Span span(stream.trace, "communication");
  clock_.begin_wait();
  link.pending.wait();
  clock_.end_wait();
  copy(t, link.message, stream);
  post(link);
}

Pending Pipeline::send(const Link& link, const Tensor& t) {
  Communicator& group = link.group(is_direct_);
  return group.start_send(group.name(), t, link.to);
}

LossSums Pipeline::forward_pass(const PipelineOp& op, const ExecutorStep& step) {
  Slot& own = slot(op);
  const MicroBatch& micro = batch(step, op.micro);
  own.activation.wait();
  LossSums sums;
  runner_.run(pass(step, op), step, [&](LayerContext& ctx) {
    const Span span(ctx.stream.trace, "forward");
    sums = model_.forward(ctx, micro, own.saved, step.grad_scale, op.micro == 0 ? step.checked_tokens : 0);
    if (step.after_forward) step.after_forward(own.saved, micro, sums);
  });
  copy_to_host(own.saved.in_training.sums, op.chunk, step.results, step.stream);
  return sums;
}

// On a device the last stage has the losses there.
void Pipeline::copy_to_host(const Tensor& sums, int chunk, StepResults* results, Stream& stream) {
  if (!is_last(stage(chunk))) return;
  if (results)
    results->add(sums, stream);
  else
    feed_.copy_to_host(sums, stream);
}

void Pipeline::backward_pass(const PipelineOp& op, const ExecutorStep& step) {
  Slot& own = slot(op);
  const MicroBatch& micro = batch(step, op.micro);
  own.activation.wait();
  step.params.begin_micro(step.only < 0 && op.micro == step.micros - 1);
  runner_.run(pass(step, op), step, [&](LayerContext& ctx) {
    const Span span(ctx.stream.trace, "backward");
    model_.backward(ctx, micro, own.saved);
  });
}

LossSums Pipeline::perform(const PipelineOp& op, const ExecutorStep& step) {
  Slot& own = slot(op);
  switch (op.kind) {
    case Kind::kReceiveActivation:
      own.gradient.wait();
      take(activations_, own.saved.in_training.input, step.stream);
      break;
    case Kind::kForward:
      return forward_pass(op, step);
    case Kind::kSendActivation:
      own.activation = send(activations_, own.saved.in_training.x);
      break;
    case Kind::kReceiveGradient:
      own.activation.wait();
      take(gradients_, own.saved.in_training.d_x, step.stream);
      break;
    case Kind::kBackward:
      backward_pass(op, step);
      break;
    case Kind::kSendGradient:
      own.gradient = send(gradients_, own.saved.in_training.d_input);
      break;
  }
  return {};
}

std::vector<PipelineOp> Pipeline::schedule(const PipelineShape& shape) const {
  std::vector<PipelineOp> list = pipeline_schedule(shape, group_.rank());
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

// Returns the list of a step that differs from list_: it has another number of micro-batches (a batch ramp),
// or runs only one.
std::vector<PipelineOp> Pipeline::list_for(const ExecutorStep& step) {
  PipelineShape shape = config_.shape;
  shape.micros = step.micros;
  pipeline_->ideal_bubble = shape.bubble();
  if (step.only < 0) return step.micros == config_.shape.micros ? list_ : schedule(shape);
  std::vector<PipelineOp> list = lone_micro_schedule(shape, group_.rank(), step.only);
  drop_unused(list);
  return list;
}

bool Pipeline::run(const ExecutorStep& step) {
  INGOT_CHECK(step.micros <= config_.shape.micros && step.only < step.micros && step.grad_scale != 0,
              "Pipeline::run: {} micro-batches, at most {}", step.micros, config_.shape.micros);
  const std::vector<PipelineOp> list = list_for(step);
  feed_.begin_step(step.slot);
  clock_.begin_step(step.slot);
  runner_.begin_step(step);
  read_.clear();
  is_direct_ = waits_for_nothing(step);
  has_checked_loss_ = step.checked_tokens > 0;
  expect(activations_, Kind::kReceiveActivation, list);
  expect(gradients_, Kind::kReceiveGradient, list);
  sums_ = {};
  for (const PipelineOp& op : list) sums_.add(perform(op, step));
  wait_for_sends();
  clock_.end_step();
  return true;
}

void Pipeline::wait_for_sends() {
  for (std::vector<Slot>& chunk : memory_.slots)
    for (Slot& own : chunk) {
      own.activation.wait();
      own.gradient.wait();
    }
}

void Pipeline::report(size_t slot) {
  const StageClock::Times times = clock_.times(slot);
  pipeline_->wait_s = times.wait_s;
  pipeline_->step_s = times.step_s;
}

// The last rank holds the head and broadcasts the checked loss.
LossSums Pipeline::losses(Stream& stream) {
  for (const LossSums& micro : feed_.receive(stream)) sums_.add(micro);
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
  is_direct_ = runner_.is_evaluation_ready(micro.documents());
  Communicator& messages = activations_.group(is_direct_);
  LossSums sums;
  for (int chunk = 0; chunk < config_.shape.chunks; ++chunk) {
    Slot& own = slot({.kind = Kind::kForward, .micro = evaluated_, .chunk = chunk});
    own.activation.wait();
    if (stage(chunk) > 0) messages.receive(messages.name(), own.saved.in_evaluation.input, activations_.from);
    sums.add(model_.forward(ctx, micro, own.saved, 0));
    copy_to_host(own.saved.in_evaluation.sums, chunk, nullptr, ctx.stream);
    if (!is_last(stage(chunk))) own.activation = send(activations_, own.saved.in_evaluation.x);
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
  Communicator& messages = activations_.group(false);
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
    if (in) messages.receive(messages.name(), in, activations_.from);
    model_.infer_units(ctx, batch, units(chunk), in, out, caches, logits);
    if (out) messages.send(messages.name(), out, activations_.to);
  }
  if (batch.outputs_count() > 0) messages.broadcast("logits", logits, config_.shape.ranks - 1);
}

}  // namespace ingot
