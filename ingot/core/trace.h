// Trace: where the time of a step goes, by named phase. A span adds its wall time to its phase; spans of
// different phases may nest, and the outer one then includes the inner.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

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

 private:
  std::vector<Phase> phases_;
};

// Times its own lifetime; a null trace costs nothing. Used on the thread that drives the stream only.
class Span {
 public:
  Span(Trace* trace, std::string_view phase) : trace_(trace), phase_(phase) {
    if (trace_) start_ = std::chrono::steady_clock::now();
  }
  ~Span() {
    if (trace_)
      trace_->add(phase_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace* trace_;
  std::string_view phase_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace ingot
