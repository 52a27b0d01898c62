// Model FLOPs utilisation (MFU): the FLOP/s of a run's steps as a fraction of the measured peak rate of the
// machine's matrix products. It is reported only against a peak that was measured for long enough.
#pragma once

#include <cstdint>
#include <optional>

#include "ingot/comm/communicator.h"
#include "ingot/run/peak.h"

namespace ingot {

class MfuMeter {
 public:
  // All ranks construct an MfuMeter together. On a device the constructor measures the peak, because the
  // device's queue is never empty later. On a CPU the peak is measured between the first steps, in at most
  // a tenth of the training time, so starting costs nothing and short runs have no MFU.
  MfuMeter(DType dtype, Device device, bool is_tf32, Communicator& ranks);

  // Returns the MFU of a step that ran at this rate on all ranks together; nullopt while the peak is not
  // known. train_s: seconds spent in steps so far. All ranks call it after every step, outside of the step.
  // A step above the peak has no MFU, and several in a row show that the peak is wrong: on a CPU it is
  // measured again, at most a few times; if that does not help, no MFU is reported from then on.
  std::optional<double> of_step(double flops_per_s, double train_s);

  // GFLOP/s of all ranks; nullopt if it is not known or wrong.
  std::optional<double> peak_gflops() const;

 private:
  void measure_more(double train_s);
  void measure_again();
  void add_up();

  ProductPeak peak_;
  Communicator& ranks_;
  bool is_on_cpu_;
  double total_gflops_ = 0;  // sum over all ranks; 0 if not known
  int above_ = 0;            // consecutive steps above the peak
  int times_again_ = 0;
  int64_t steps_ = 0;
  bool is_added_up_ = true;  // false after this rank measured again, until the ranks sum up again
  bool is_wrong_ = false;
};

}  // namespace ingot
