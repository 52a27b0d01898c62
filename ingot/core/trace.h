// Trace divides the time of a step into named phases. A span adds its wall time to its phase. Spans of
// different phases may nest; the time of the outer span then includes that of the inner one.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// SpanListener receives the beginnings and ends of spans in order. Profilers and timelines implement it.
class SpanListener {
 public:
  virtual ~SpanListener() = default;
  virtual void begin(std::string_view name) = 0;
  virtual void end() = 0;  // ends the innermost open span
};

class Trace {
 public:
  struct Phase {
    std::string name;
    double time_s = 0;
    int64_t calls = 0;
  };

  void add(std::string_view phase, double time_s);
  const std::vector<Phase>& phases() const { return phases_; }  // in order of first use
  double time_s(std::string_view phase) const;                  // 0 if the phase never ran
  void reset() { phases_.clear(); }

  // Borrowed; null to remove it. REQUIRES: no span is open.
  void set_listener(SpanListener* listener) { listener_ = listener; }
  SpanListener* listener() const { return listener_; }

 private:
  std::vector<Phase> phases_;
  SpanListener* listener_ = nullptr;
};

// NamedRange is a range, such as "block 3", that only the listener sees; no phase counts its time.
class NamedRange {
 public:
  NamedRange(const Trace* trace, std::string_view name) : listener_(trace ? trace->listener() : nullptr) {
    if (listener_) listener_->begin(name);
  }
  NamedRange(const Trace* trace, std::string_view name, size_t number)
      : listener_(trace ? trace->listener() : nullptr) {
    if (listener_) listener_->begin(std::string(name) + " " + std::to_string(number));
  }
  ~NamedRange() {
    if (listener_) listener_->end();
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  SpanListener* listener_;
};

// Span adds the time of its own lifetime to a phase. With a null trace it costs nothing. Only the thread that
// drives the stream uses it.
class Span {
 public:
  Span(Trace* trace, std::string_view phase) : trace_(trace), phase_(phase) {
    if (!trace_) return;
    if (trace_->listener()) trace_->listener()->begin(phase);
    start_ = std::chrono::steady_clock::now();
  }
  ~Span() {
    if (!trace_) return;
    trace_->add(phase_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
    if (trace_->listener()) trace_->listener()->end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace* trace_;
  std::string_view phase_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace ingot
