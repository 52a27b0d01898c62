// Trace: where the time of a step goes, by named phase. A span adds its wall time to its phase; spans of
// different phases may nest, and the outer one then includes the inner.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Is told of spans as they begin and end, in their order: a profiler, a timeline.
class SpanListener {
 public:
  virtual ~SpanListener() = default;
  virtual void begin(std::string_view name) = 0;
  virtual void end() = 0;  // of the one that began last and has not ended
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
  double time_s(std::string_view phase) const;                  // 0 if never seen
  void reset() { phases_.clear(); }

  // Borrowed; null: nobody. Not while a span is open.
  void set_listener(SpanListener* listener) { listener_ = listener; }
  SpanListener* listener() const { return listener_; }

 private:
  std::vector<Phase> phases_;
  SpanListener* listener_ = nullptr;
};

// A stretch that a listener alone is told of: "block 3".
class NamedRange {
 public:
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

// Times its own lifetime; a null trace costs nothing. Used on the thread that drives the stream only.
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
