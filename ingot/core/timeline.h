// Timeline records when each span ran and writes a Chrome trace (chrome://tracing, ui.perfetto.dev). On a
// CUDA device it records device times of the work that was submitted to the stream inside each span. Spans
// within the capture of a CUDA graph have no times of their own and are left out.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ingot/core/stream.h"

namespace ingot {

class Timeline final : public SpanListener {
 public:
  // Starts to record. Borrows the stream.
  explicit Timeline(Stream& stream);
  ~Timeline() override;

  void begin(std::string_view name) override;
  void end() override;

  struct Row {
    std::string name;
    int depth = 0;  // number of enclosing spans
    double begin_s = 0, end_s = 0;
  };
  // The recorded spans in order of their beginnings, with times since construction. Blocks until the
  // stream is done. REQUIRES: no span is open.
  std::vector<Row> rows() const;
  // Returns the rows as a JSON array of events, with times in microseconds, on one track of nested slices.
  std::string chrome_trace(const std::string& track) const;

 private:
  class Clock;  // records points in time, on the host or on the stream

  std::unique_ptr<Clock> clock_;
  std::vector<Row> rows_;
  std::vector<std::pair<size_t, size_t>> points_;  // the Clock's numbers of each row's beginning and end
  std::vector<size_t> open_;                       // indices of rows that have not ended
};

}  // namespace ingot
