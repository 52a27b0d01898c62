// Timeline records when each span ran; ChromeTrace writes spans for chrome://tracing and ui.perfetto.dev.
// On a CUDA device Timeline records device times of the work that was submitted to the stream inside each
// span. Spans within the capture of a CUDA graph have no times of their own and are left out.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ingot/core/stream.h"

namespace ingot {

// Makes the events of one process of a Chrome trace.
class ChromeTrace {
 public:
  explicit ChromeTrace(int process) : process_(process) {}
  // Adds a slice to a track, whose first slice names it. Times in seconds.
  void add(const std::string& track, std::string_view name, double begin_s, double end_s);
  // Returns the events without brackets. Each ends with a comma and a line feed.
  const std::string& lines() const { return lines_; }

 private:
  int process_;
  std::vector<std::string> tracks_;
  std::string lines_;
};

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
