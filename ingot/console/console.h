// Console prints what a run reports: one line per logged step, evaluations, warnings and samples. On a
// terminal the steps share one live line that fits the terminal's current width. Elsewhere, and in
// train.log, each report is a line of plain text without colours or escape sequences.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ingot/console/terminal.h"

namespace ingot {

struct StepReport {
  int64_t step = 0;     // 1 for the first step
  int64_t steps = 0;    // total of the run; 0 if a time budget ends it
  double progress = 0;  // fraction of the run, in [0, 1]
  double loss = 0;      // nats per token
  double grad_norm = 0;
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;    // fraction of the machine's measured matrix-product peak
  std::optional<double> eta_s;  // seconds until the run ends
};

struct EvalReport {
  int64_t step = 0;
  double loss = 0;           // nats per token
  double bits_per_byte = 0;  // 0 if unknown
  double top1 = 0;           // fraction of tokens predicted correctly
  int64_t tokens = 0;        // tokens predicted in this evaluation
  int64_t text_tokens = 0;   // tokens to predict in the whole validation text
  bool is_best = false;
};

struct RunReport {
  std::string status;  // completed, interrupted, stopped
  int64_t steps = 0;
  int64_t tokens = 0;  // trained on
  double val_loss = 0;
  double val_bits_per_byte = 0;  // 0 if unknown
  double wall_s = 0, train_s = 0;
  uint64_t peak_rss_bytes = 0;
};

// "step  120/2000   6.0% | loss 2.3145 | norm 0.91 | lr 3.0e-4 | 118 ms | 138.9k tok/s | mfu 41.2% |
// eta 3m41s". The first column has the same width throughout a run.
std::string format_progress(const StepReport& report);  // " 120/2000   6.0%"
std::string format_step(const StepReport& report);
// "val step 250 | loss 2.1034 | 1.512 bits/byte | top-1 38.1% | 20.5k of 1.10M tokens | best". The token
// counts appear only if the evaluation did not cover the whole text.
std::string format_eval(const EvalReport& report);
// "completed after 2000 steps | 1.54M tokens | val loss 1.8761 | 2.707 bits/byte | 45s (training 41s) |
// peak memory 310 MB".
std::string format_run(const RunReport& report);

std::string format_count(double count);         // 7, 138.9k, 1.54M
std::string format_bytes(double bytes);         // 512 B, 310 MB, 23.1 GB
std::string format_time(double seconds);        // 0.4s, 41s, 3m41s, 2h05m
std::string format_rate(double learning_rate);  // 3.0e-4

// Used by one thread. Whole lines are flushed as they are written. Control characters in samples, prompts
// and file names are escaped (core/visible_text.h) on the terminal and in the log.
class Console {
 public:
  using Sink = std::function<void(std::string_view)>;
  using Width = std::function<int()>;

  // Writes to the sink. `columns` is called for each live line: it returns the terminal's width, or 0 if
  // there is no live line.
  Console(Sink sink, Width columns, bool has_colour = false);
  Console(Sink sink, int columns) : Console(std::move(sink), [columns] { return columns; }) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Writes to a terminal: live lines if terminal->is_live(), plain lines otherwise, coloured if
  // wants_colour() (console/colour.h). If the terminal's reader goes away, the log gets a warning and all
  // further output.
  explicit Console(std::unique_ptr<Terminal> terminal);
  // Writes to standard output.
  static std::unique_ptr<Console> standard(const Terminal::Options& options = {});
  // Writes warnings only, to standard error.
  static std::unique_ptr<Console> quiet();

  // From now on appends every line to this file too. kDisk error if it cannot be opened. A failed write
  // to it never fails the run.
  void open_log(const std::filesystem::path& path);

  void line(std::string_view text);
  void warning(std::string_view text);  // "warning: ..."
  // Prints a line if is_logged, and updates the live line in any case.
  void step(const StepReport& report, bool is_logged);
  void eval(const EvalReport& report);
  void run(const RunReport& report);
  // Shows on the live line what happens outside of steps: "evaluating 40% | eta 12s". Fields that do not
  // fit are left out from the end.
  void live(std::string_view text);
  bool is_live() const { return columns_() > 0; }
  // Prints text as it is generated. A line() after it starts on a new line.
  void stream(std::string_view text);

 private:
  void clear_live();
  void show_live(const std::string& text);
  void fields(const std::string& text);
  void write_line(std::string_view shown, std::string_view logged);
  void write(std::string_view text);
  void write_log(std::string_view text);

  std::unique_ptr<Terminal> terminal_;  // null if the caller supplied the sink
  bool has_lost_terminal_ = false;
  Sink sink_;
  Width columns_;
  bool has_colour_;
  bool has_live_ = false;  // a live line is shown, with the cursor at its start
  std::chrono::steady_clock::time_point last_step_ = {};  // when the live line was last drawn for a step
  int last_columns_ = 0;                                  // the width at that time
  bool is_at_line_start_ = true;
  std::FILE* log_ = nullptr;
};

}  // namespace ingot
