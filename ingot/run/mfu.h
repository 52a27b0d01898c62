// Model FLOPs utilisation (MFU): the FLOP/s of a run's steps as a fraction of the measured peak rate of the
// machine's matrix products. It is reported only against a peak that was measured for long enough, and a run
// has one peak, also after it is resumed.
#pragma once

#include <optional>

#include "ingot/comm/communicator.h"
#include "ingot/run/peak.h"

namespace ingot {

class MfuMeter {
 public:
  // All ranks construct an MfuMeter together. On a device the constructor measures the peak, because the
  // device's queue is never empty later. On a CPU the peak is measured between the first steps, in at most
  // a tenth of the training time, so starting costs nothing and short runs have no MFU.
  // known_gflops: the peak of all ranks that the run was compared with before it was resumed, on any of the
  // ranks; 0 if it is to be measured.
  MfuMeter(DType dtype, Device device, bool is_tf32, Communicator& ranks, double known_gflops = 0);

  // Returns the MFU of a step that ran at this rate on all ranks together; nullopt while the peak is not
  // known. train_s: seconds spent in steps so far. All ranks call it after every step, outside of the step.
  // A step above the peak has no MFU, and several in a row show that the peak is wrong: no MFU is reported
  // from then on.
  std::optional<double> of_step(double flops_per_s, double train_s);

  // GFLOP/s of all ranks; nullopt if it is not known or wrong.
  std::optional<double> peak_gflops() const;

 private:
  void measure_more(double train_s);

  ProductPeak peak_;
  Communicator& ranks_;
  double total_gflops_ = 0;  // sum over all ranks; 0 if not known
  int above_ = 0;            // consecutive steps above the peak
  bool is_wrong_ = false;
};

}  // namespace ingot
