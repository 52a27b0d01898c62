// Seam: what the ranks that train one model do together in an update. Alone (OwnUpdate), every number is this
// rank's, and every matrix that it has any of. All ranks call the same in the same order.
#pragma once

#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/box.h"
#include "ingot/core/stream.h"
#include "ingot/core/tensor.h"

namespace ingot {

// A matrix whose update is made from the whole of it.
struct MatrixTask {
  std::string name;
  Shape shape;             // (R, C)
  std::vector<Box> boxes;  // where this rank's elements lie in it, in their order; none: it has none
  bool is_counted = true;  // false: another rank has the same elements
  double flops = 0;        // of compute
};

// What the update of these matrices consists of.
class MatrixWork {
 public:
  virtual ~MatrixWork() = default;
  // u (n) f32: what the direction is made from, of this rank's elements. Once per task and step.
  virtual void prepare(size_t task, const Tensor& u) = 0;
  // u (R, C) f32 of all elements becomes the direction.
  virtual void compute(size_t task, const Tensor& u) = 0;
  // This rank's elements move along the direction (n), f32 or bf16.
  virtual void apply(size_t task, const Tensor& direction) = 0;
};

class SharedUpdate {
 public:
  // What of a task's state this rank must keep: of its elements what prepare reads, and what compute reads.
  struct Keeps {
    bool elements = true, whole = true;
  };

  virtual ~SharedUpdate() = default;
  // t (f32) = its sum or maximum over the ranks that keep pieces of the same parameters.
  virtual void sum(const Tensor& t) = 0;
  virtual void max(const Tensor& t) = 0;
  // Once, before all others.
  virtual std::vector<Keeps> plan(std::vector<MatrixTask> tasks) = 0;
  virtual size_t scratch_bytes() const = 0;  // of run
  // Sees to it that every task is prepared, computed and applied. scratch has scratch_bytes beside what
  // compute takes from it.
  virtual void run(MatrixWork& work, Arena& scratch, Stream& stream) = 0;
};

class OwnUpdate final : public SharedUpdate {
 public:
  void sum(const Tensor& /*t*/) override {}
  void max(const Tensor& /*t*/) override {}
  std::vector<Keeps> plan(std::vector<MatrixTask> tasks) override;
  size_t scratch_bytes() const override;
  void run(MatrixWork& work, Arena& scratch, Stream& stream) override;

 private:
  std::vector<MatrixTask> tasks_;
};

}  // namespace ingot
