// Work: what an operation on tensors costs, as the operation itself says. Every operation tells it to the
// stream's WorkLog, and on a stream that only plans (Backing::kAddresses) it does nothing else. A training
// step that runs on such a stream therefore lists its operations without computing them.
#pragma once

#include <initializer_list>
#include <string_view>

#include "ingot/core/stream.h"

namespace ingot {

struct Work {
  double flops = 0;  // of products; a multiply-add counts as 2. Element-wise arithmetic is not counted
  double bytes = 0;  // traffic if every operand passes between memory and processor once
  DType dtype = DType::f32;    // of the products' operands
  std::string_view form = {};  // tells apart operations of one name that differ in speed: "nt", "backward"
};

// Returns the work of an operation without products that reads or writes each tensor once. Tensors may be
// absent.
inline Work traffic(std::initializer_list<Tensor> tensors) {
  Work work;
  for (const Tensor& t : tensors)
    if (t) work.bytes += static_cast<double>(t.bytes());
  return work;
}

// Receives the operations of a stream in order. Operations may nest: what an inner one says is not in the
// work of the outer one.
class WorkLog {
 public:
  virtual ~WorkLog() = default;
  virtual void begin(std::string_view operation, const Work& work) = 0;
  virtual void end() = 0;  // ends the innermost operation
};

// The lifetime of an operation.
class WorkSpan {
 public:
  WorkSpan(const Stream& stream, std::string_view name, const Work& work)
      : log_(stream.work), plans_(stream.backing == Backing::kAddresses) {
    if (log_) log_->begin(name, work);
  }
  ~WorkSpan() {
    if (log_) log_->end();
  }
  WorkSpan(const WorkSpan&) = delete;
  WorkSpan& operator=(const WorkSpan&) = delete;

  // True if the operation must return without touching its tensors.
  bool plans() const { return plans_; }

 private:
  WorkLog* log_;
  bool plans_;
};

// The lifetime of an operation that is a Span of the phase `name` as well.
class OpSpan : public WorkSpan {
 public:
  OpSpan(const Stream& stream, std::string_view name, const Work& work)
      : WorkSpan(stream, name, work), span_(stream.trace, name) {}

 private:
  Span span_;
};

}  // namespace ingot
