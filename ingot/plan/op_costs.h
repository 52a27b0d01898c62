// OpCosts: how long operations take on a machine.
#pragma once

#include <cstdint>
#include <vector>

#include "ingot/plan/hardware.h"
#include "ingot/plan/step_record.h"

namespace ingot {

class OpCosts {
 public:
  virtual ~OpCosts() = default;
  // Seconds from the start of the operation to the start of the next one.
  virtual double seconds(const OpKey& key) const = 0;
};

// The times of a measured step. An operation that was not in it takes the time of the most similar one of
// its name and form, scaled by the ratio of their flops, or of their bytes if they have no flops.
class MeasuredCosts final : public OpCosts {
 public:
  struct Row {
    OpKey key;
    double seconds = 0;
  };

  // tokens_ratio: the measured micro-batch's tokens divided by those of the micro-batches to come, so that an
  // operation of a larger micro-batch finds the one that corresponds to it.
  MeasuredCosts(std::vector<Row> rows, double tokens_ratio)
      : rows_(std::move(rows)), tokens_ratio_(tokens_ratio) {}

  // Returns the mean time of each key in the record. The time between operations is divided evenly among
  // them.
  static std::vector<Row> rows_of(const StepRecord& record);

  // kInternal error if the measured step has no operation of this name.
  double seconds(const OpKey& key) const override;

 private:
  std::vector<Row> rows_;
  double tokens_ratio_;
};

// Dense peak of products whose operands have this dtype, FLOP/s. FP8 runs as bf16 on devices without FP8
// units.
double product_peak(const Hardware::Device& device, DType dtype, bool allows_tf32);

// The roofline: an operation takes as long as its products or its traffic, whichever is longer, and a launch.
class RooflineCosts final : public OpCosts {
 public:
  RooflineCosts(const Hardware::Device& device, bool allows_tf32)
      : device_(device), allows_tf32_(allows_tf32) {}
  double seconds(const OpKey& key) const override;

 private:
  Hardware::Device device_;
  bool allows_tf32_;
};

}  // namespace ingot
