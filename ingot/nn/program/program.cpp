#include "ingot/nn/program/program.h"

#include <memory>
#include <utility>

namespace ingot {
namespace {

Tensor at(const ProgramMemory& memory, const Addresses::Place& place, DType dtype, const Shape& shape) {
  const Tensor& block = place.is_in_slot ? memory.slot : memory.scratch;
  return Tensor(block ? static_cast<char*>(block.data) + place.offset : nullptr, dtype, shape, block.device);
}

// Opens and closes the ranges of blocks and the spans of recomputation in a trace.
class TraceRanges {
 public:
  explicit TraceRanges(Trace* trace) : trace_(trace) {}

  void enter(const Op& op) {
    if (!trace_) return;
    const bool is_recompute = op.cause == Cause::kRecompute;
    if (is_recompute_ && (!is_recompute || op.block != block_)) recompute_.reset();
    if (op.block != block_) {
      range_.reset();
      if (op.block >= 0)
        range_ = std::make_unique<NamedRange>(trace_, "block", static_cast<size_t>(op.block));
    }
    if (is_recompute && !recompute_) recompute_ = std::make_unique<Span>(trace_, "recompute");
    block_ = op.block;
    is_recompute_ = is_recompute;
  }

 private:
  Trace* trace_;
  int block_ = -1;
  bool is_recompute_ = false;
  std::unique_ptr<NamedRange> range_;
  std::unique_ptr<Span> recompute_;
};

}  // namespace

Program::Program(Builder builder, size_t border, const std::vector<Pinned>& pinned, size_t least_slot_bytes)
    : border_(border), addresses_(assign_addresses(builder, border, pinned, least_slot_bytes)) {
  values_ = std::move(builder.values());
  ops_ = std::move(builder.ops());
}

Tensor ProgramMemory::operator[](ValueId id) const {
  if (id == kNoValue) return {};
  const Value& value = program.values()[static_cast<size_t>(id)];
  return at(*this, program.addresses().values[static_cast<size_t>(id)], value.dtype, value.shape);
}

Tensor Program::tensor(ValueId id, const Tensor& slot) const {
  INGOT_CHECK(id == kNoValue || addresses_.values[static_cast<size_t>(id)].is_in_slot,
              "Program::tensor: {} lies in scratch", values_[static_cast<size_t>(id)].name);
  return ProgramMemory{*this, slot, {}}[id];
}

void Program::run(Section section, const Tensor& slot, LayerContext& ctx, const PassArguments& args) const {
  if (section == Section::kForward)
    run(0, border_, slot, ctx, args);
  else
    run(border_, ops_.size(), slot, ctx, args);
}

void Program::run(size_t begin, size_t end, const Tensor& slot, LayerContext& ctx,
                  const PassArguments& args) const {
  const ScratchScope scope(ctx.scratch);
  const ProgramMemory memory{*this, slot,
                             ctx.scratch.alloc(DType::u8, {static_cast<int64_t>(addresses_.scratch_bytes)})};
  TraceRanges ranges(ctx.stream.trace);
  bool overwrites_gradients = false;
  for (size_t i = begin; i < end; ++i) {
    const Op& op = ops_[i];
    ranges.enter(op);
    const auto bytes = static_cast<int64_t>(addresses_.scratch_sizes[i]);
    Arena own = Arena::over(at(memory, addresses_.scratch[i], DType::u8, {bytes}), ctx.scratch.memory());
    LayerContext op_ctx = ctx.with_scratch(own);
    op_ctx.overwrites_gradients = overwrites_gradients;
    op.primitive->run({op, memory, op_ctx, args});
    overwrites_gradients = op_ctx.overwrites_gradients;
  }
}

bool Program::is_intact(ValueId id) const {
  const Addresses::Place& place = addresses_.values[static_cast<size_t>(id)];
  return place.is_in_slot && place.end >= border_;
}

}  // namespace ingot
