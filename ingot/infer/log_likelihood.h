// LogLikelihood is the softmax of a row of logits, as logarithms.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace ingot {

class LogLikelihood {
 public:
  // logits: (V), capped, at least one.
  explicit LogLikelihood(std::span<const float> logits) : highest_(*std::ranges::max_element(logits)) {
    double sum = 0;
    for (const float z : logits) sum += std::exp(static_cast<double>(z - highest_));
    log_sum_ = std::log(sum);
  }
  // Returns the logarithm of the probability of a token with this logit.
  double of(float logit) const { return static_cast<double>(logit - highest_) - log_sum_; }

 private:
  float highest_;
  double log_sum_;
};

}  // namespace ingot
