// evaluate_run() computes the loss on a run's validation text: of one stream, or of every source of a
// mixture.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/run/run_data.h"
#include "ingot/train/evaluate.h"

namespace ingot {

// With a mixture, loss, top1 and bits_per_byte are those of text of which each source has its share of the
// tokens; text_tokens is the sum. Bits per byte are 0 if the bytes of one source are unknown.
struct RunEval {
  EvalResult result;
  std::vector<std::pair<std::string, double>> losses;  // one per source of a mixture, with its name
};

// Evaluates one stream on at most max_tokens tokens, as Trainer::evaluate.
using EvaluateStream =
    std::function<EvalResult(const TokenSource& text, int64_t max_tokens, const EvalProgress& goes_on)>;

// max_tokens: of all sources together, divided by their shares; 0 means all of each. An evaluation that
// goes_on ends has no usable result (EvalResult::is_complete).
RunEval evaluate_run(const RunData& data, int64_t max_tokens, const EvaluateStream& evaluate,
                     const EvalProgress& goes_on = {});

}  // namespace ingot
