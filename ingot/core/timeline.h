// Timeline: when each span of a stretch of work ran, as a Chrome trace (chrome://tracing, ui.perfetto.dev).
// On a CUDA device the times are the device's own, of the work that was given to the stream inside of a span.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ingot/core/stream.h"

namespace ingot {

class Timeline final : public SpanListener {
 public:
  // Records from here on. Borrows the stream.
  explicit Timeline(Stream& stream);
  ~Timeline() override;

  void begin(std::string_view name) override;
  void end() override;

  struct Row {
    std::string name;
    int depth = 0;  // spans that it lies in
    double begin_s = 0, end_s = 0;
  };
  // In order of their beginnings, times since the first moment. Waits for the stream. No span is open.
  std::vector<Row> rows() const;
  // The rows as a JSON array of events, in microseconds, one track of nested slices.
  std::string chrome_trace(const std::string& track) const;

 private:
  class Clock;  // points in time, of the host or of the stream

  std::unique_ptr<Clock> clock_;
  std::vector<Row> rows_;
  std::vector<std::pair<size_t, size_t>> points_;  // of each row's beginning and end, numbers of the clock's
  std::vector<size_t> open_;                       // rows
};

}  // namespace ingot
