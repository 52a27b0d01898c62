// Seen: the smoothed training line of loss.svg was an exponential average of past values, so while the
// loss fell it lay above both the training and the validation loss, until about step 200. Wanted: the
// smoothed line has no lag.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ingot/formats/chart/svg_plot.h"

namespace ingot {
namespace {

// Returns a loss that falls from 10 to 2 within the first steps, as real ones do.
std::vector<double> falling_loss(size_t steps) {
  std::vector<double> loss;
  for (size_t i = 0; i < steps; ++i) loss.push_back(2 + 8 * std::exp(-static_cast<double>(i) / 60));
  return loss;
}

TEST(LossPlotLag, TheSmoothedLineStaysOnAFallingLossFromTheFirstStep) {
  const std::vector<double> loss = falling_loss(2000);
  const std::vector<double> line = smoothed(loss, 50);
  for (size_t i = 0; i < loss.size(); ++i)
    ASSERT_NEAR(line[i], loss[i], 0.03 * loss[i]) << "step " << i;  // the former line was off by 40 %
}

TEST(LossPlotLag, TheSmoothedLineAveragesNoiseAtTheEnd) {
  std::vector<double> loss;
  for (size_t i = 0; i < 1000; ++i)
    loss.push_back(3 - 1e-3 * static_cast<double>(i) + (i % 2 == 0 ? 0.1 : -0.1));
  const std::vector<double> line = smoothed(loss, 50);
  for (size_t i = 900; i < loss.size(); ++i)
    ASSERT_NEAR(line[i], 3 - 1e-3 * static_cast<double>(i), 0.02) << "step " << i;
}

}  // namespace
}  // namespace ingot
