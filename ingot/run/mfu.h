// Model FLOPs utilisation: the FLOP/s of a run's steps as a fraction of the rate that the machine's matrix
// products were measured at. It is given only against a peak that was measured long enough.
#pragma once

#include <cstdint>
#include <optional>

#include "ingot/run/peak.h"
#include "ingot/train/reduce.h"

namespace ingot {

class MfuMeter {
 public:
  // On a device the peak is measured at once, since later its queue is never empty; on a CPU between the
  // first steps, in at most a tenth of the training time: starting costs nothing, and short runs go without.
  // All ranks construct one together.
  MfuMeter(DType dtype, Device device, bool is_tf32, Reducer& ranks);

  // The MFU of a step that ran at this rate on all ranks together; nullopt while the peak is not known.
  // train_s: in steps so far. Called by all ranks after every step, and outside of it. Steps above the peak
  // have no MFU, and several in a row show that the peak is wrong: a CPU's is measured again, a few times at
  // most; where that does not help, no MFU is given from then on.
  std::optional<double> of_step(double flops_per_s, double train_s);

  // GFLOP/s of all ranks; nullopt while it is not known, or wrong.
  std::optional<double> peak_gflops() const;

 private:
  void measure_more(double train_s);
  void measure_again();
  void add_up();

  ProductPeak peak_;
  Reducer& ranks_;
  bool is_on_cpu_;
  double total_gflops_ = 0;  // summed over all ranks; 0: not known
  int above_ = 0;            // steps in a row above the peak
  int times_again_ = 0;
  int64_t steps_ = 0;
  bool is_added_up_ = true;  // false: this rank has measured again, and the sum of all ranks is an older one
  bool is_wrong_ = false;
};

}  // namespace ingot
