// UpdateComm is the interface for the communication of an update between the ranks that train one model. All
// ranks make the same calls in the same order. LocalUpdate implements it for a single rank: sums and maxima
// are the rank's own values, and it updates every matrix of which it has elements.
#pragma once

#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/rect.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// A matrix whose update needs the whole matrix.
struct MatrixTask {
  std::string name;
  Shape shape;              // (R, C)
  std::vector<Rect> rects;  // where this rank's elements lie in the matrix, in their order; may be empty
  bool is_added = true;     // false if another rank has the same elements
  double flops = 0;         // what compute costs
};

// The steps of these matrices' updates; the optimizer implements them.
class MatrixWork {
 public:
  virtual ~MatrixWork() = default;
  // Writes u (n) f32, the direction's input for this rank's elements. Called once per task and step.
  virtual void prepare(size_t task, const Tensor& u) = 0;
  // Turns u (R, C) f32, the input of all elements, into the direction.
  virtual void compute(size_t task, const Tensor& u) = 0;
  // Moves this rank's elements along the direction (n), f32 or bf16.
  virtual void apply(size_t task, const Tensor& direction) = 0;
};

class UpdateComm {
 public:
  // StatePlacement names the state of a task that this rank must hold: that of its elements, which prepare
  // reads, and that of the whole matrix, which compute reads.
  struct StatePlacement {
    bool elements = true, whole = true;
  };

  virtual ~UpdateComm() = default;
  // t (f32) = its sum or maximum over the ranks that hold shards of the same parameters.
  virtual void sum(const Tensor& t) = 0;
  virtual void max(const Tensor& t) = 0;
  // Called once, before the other functions.
  virtual std::vector<StatePlacement> plan(std::vector<MatrixTask> tasks) = 0;
  virtual size_t scratch_bytes(Memory memory) const = 0;  // scratch that run needs in this memory
  // Prepares, computes and applies every task. scratch holds scratch_bytes plus what compute
  // allocates from it. On a device everything is ordered by the stream, and the host waits
  // only if a group copies through host memory (comm/device_group.h).
  virtual void run(MatrixWork& work, Arena& scratch, Stream& stream) = 0;
};

class LocalUpdate final : public UpdateComm {
 public:
  void sum(const Tensor& /*t*/) override {}
  void max(const Tensor& /*t*/) override {}
  std::vector<StatePlacement> plan(std::vector<MatrixTask> tasks) override;
  size_t scratch_bytes(Memory memory) const override;
  void run(MatrixWork& work, Arena& scratch, Stream& stream) override;

 private:
  std::vector<MatrixTask> tasks_;
};

}  // namespace ingot
