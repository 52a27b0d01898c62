// What a run says: one line per logged step, evaluations, warnings, samples. On a terminal the steps share
// one live line; elsewhere, and in train.log, every line is plain text of its own. No colours, no escape
// codes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

struct StepReport {
  int64_t step = 0;     // 1 after the first
  int64_t steps = 0;    // of the whole run; 0: a time budget decides
  double progress = 0;  // of the run, in [0, 1]
  double loss = 0;      // nats per token
  double grad_norm = 0;
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;    // fraction of the machine's measured product peak
  std::optional<double> eta_s;  // seconds to the end
};

struct EvalReport {
  int64_t step = 0;
  double loss = 0;           // nats per token
  double bits_per_byte = 0;  // 0: not known
  double top1 = 0;           // fraction of tokens
  bool is_best = false;
};

struct RunReport {
  std::string status;  // completed, interrupted, stopped
  int64_t steps = 0;
  int64_t tokens = 0;  // trained on
  double val_loss = 0;
  double val_bits_per_byte = 0;  // 0: not known
  double wall_s = 0, train_s = 0;
  uint64_t peak_rss_bytes = 0;
};

// "step 120/2000 6.0% | loss 2.3145 | norm 0.91 | lr 3.0e-4 | 118 ms | 138.9k tok/s | mfu 41.2% | eta 3m41s".
// The first column has one width throughout a run.
std::string format_step(const StepReport& report);
// "val step 250 | loss 2.1034 | 1.512 bits/byte | top-1 38.1% | best".
std::string format_eval(const EvalReport& report);
// "completed 2000 steps | 1.54M tokens | val loss 1.8761 | 2.707 bits/byte | 45s (training 41s) | peak 310
// MB".
std::string format_run(const RunReport& report);

std::string format_count(double count);         // 7, 138.9k, 1.54M
std::string format_bytes(double bytes);         // 512 B, 310 MB, 23.1 GB
std::string format_time(double seconds);        // 0.4s, 41s, 3m41s, 2h05m
std::string format_rate(double learning_rate);  // 3.0e-4

// One thread. Whole lines are flushed as they are written.
class Console {
 public:
  using Sink = std::function<void(std::string_view)>;

  // Output to the sink; live lines of `columns` characters if above 0, none if 0.
  Console(Sink sink, int columns);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // On standard output: live if that is a terminal that can return to the start of a line (TERM is set and
  // not "dumb"), plain otherwise.
  static std::unique_ptr<Console> standard();

  // From now on every line goes to this file too (appended). kDisk error if it cannot be opened. Writing to
  // it never fails a run.
  void open_log(const std::filesystem::path& path);

  void line(std::string_view text);
  void warning(std::string_view text);  // "warning: ..."
  // A logged step is a line; any step renews the live line.
  void step(const StepReport& report, bool is_logged);
  void eval(const EvalReport& report);
  void run(const RunReport& report);
  // What goes on outside of steps, on the live line only: "evaluating 40%".
  void live(std::string_view text);
  // A piece of streamed text, as it is; line() after it starts on a new line.
  void stream(std::string_view text);

 private:
  void clear_live();
  void write_log(std::string_view text);

  Sink sink_;
  int columns_;
  size_t live_size_ = 0;  // characters on the live line
  bool is_at_line_start_ = true;
  std::FILE* log_ = nullptr;
};

}  // namespace ingot
