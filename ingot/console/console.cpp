#include "ingot/console/console.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ingot/console/colour.h"
#include "ingot/console/live_line.h"
#include "ingot/core/output.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

// The shortest time between two live lines of steps on a terminal.
constexpr std::chrono::milliseconds kRedraw{50};

}  // namespace

std::string format_count(double count) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, unit] : kUnits) {
    // The factor makes 999.95 and more use the next unit, because they would print as 1000.0.
    if (count >= scale * 0.99995) return fmt::format("{:.{}f}{}", count / scale, scale >= 1e6 ? 2 : 1, unit);
  }
  return fmt::format("{:.0f}", count);
}

std::string format_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.0f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.0f} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string format_time(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 48 * 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string format_rate(double learning_rate) {
  if (!(learning_rate > 0)) return "0";
  std::string text = fmt::format("{:.1e}", learning_rate);  // 3.0e-04
  const size_t zero = text.find("e-0");
  if (zero != std::string::npos) text.erase(zero + 2, 1);
  return text;
}

std::string format_progress(const StepReport& r) {
  const int width = static_cast<int>(fmt::format("{}", r.steps).size());
  const std::string count =
      r.steps > 0 ? fmt::format("{:>{}}/{}", r.step, width, r.steps) : fmt::format("{:>6}", r.step);
  return fmt::format("{} {:5.1f}%", count, 100 * r.progress);
}

std::string format_step(const StepReport& r) {
  std::string line = fmt::format("step {} | loss {:.4f} | norm {:.2f} | lr {} | {:.{}f} ms | {} tok/s",
                                 format_progress(r), r.loss, r.grad_norm, format_rate(r.lr), r.step_ms,
                                 r.step_ms < 9.95 ? 1 : 0, format_count(r.tokens_per_s));
  line += r.mfu ? fmt::format(" | mfu {:.1f}%", 100 * *r.mfu) : std::string(" | mfu n/a");
  if (r.eta_s) line += " | eta " + format_time(*r.eta_s);
  return line;
}

std::string format_eval(const EvalReport& r) {
  std::string line = fmt::format("val step {} | loss {:.4f}", r.step, r.loss);
  if (r.bits_per_byte > 0) line += fmt::format(" | {:.3f} bits/byte", r.bits_per_byte);
  line += fmt::format(" | top-1 {:.1f}%", 100 * r.top1);
  if (r.tokens < r.text_tokens)
    line += fmt::format(" | {} of {} tokens", format_count(static_cast<double>(r.tokens)),
                        format_count(static_cast<double>(r.text_tokens)));
  if (r.is_best) line += " | best";
  return line;
}

std::string format_run(const RunReport& r) {
  std::string line = fmt::format("{} after {} steps | {} tokens", r.status, r.steps,
                                 format_count(static_cast<double>(r.tokens)));
  if (r.val_loss > 0) line += fmt::format(" | val loss {:.4f}", r.val_loss);
  if (r.val_bits_per_byte > 0) line += fmt::format(" | {:.3f} bits/byte", r.val_bits_per_byte);
  return line + fmt::format(" | {} (training {}) | peak memory {}", format_time(r.wall_s),
                            format_time(r.train_s), format_bytes(static_cast<double>(r.peak_rss_bytes)));
}

Console::Console(Sink sink, Width columns, bool has_colour)
    : sink_(std::move(sink)), columns_(std::move(columns)), has_colour_(has_colour) {}

Console::Console(std::unique_ptr<Terminal> terminal)
    : Console([to = terminal.get()](std::string_view text) { to->write(text); },
              [of = terminal.get()] { return of->columns(); }, wants_colour(terminal->is_live())) {
  terminal_ = std::move(terminal);
}

Console::~Console() {
  try {
    clear_live();
    if (!is_at_line_start_) write("\n");
  } catch (...) {
    // The sink fails and the destructor has no way to report it.
  }
  if (log_) std::fclose(log_);
}

std::unique_ptr<Console> Console::standard(const Terminal::Options& options) {
  return std::make_unique<Console>(std::make_unique<Terminal>(options));
}

std::unique_ptr<Console> Console::quiet() {
  const auto print_warning = [](std::string_view text) {
    if (text.starts_with("warning:")) fmt::print(stderr, "{}", text);
  };
  return std::make_unique<Console>(print_warning, 0);
}

void Console::open_log(const std::filesystem::path& path) {
  if (log_) std::fclose(log_);
  log_ = ingot::open_log(path);
}

// A terminal that has gone away is not an error: the log has every line.
void Console::write(std::string_view text) {
  sink_(text);
  if (!terminal_ || terminal_->why_gone().empty() || has_lost_terminal_ || !log_) return;
  has_lost_terminal_ = true;
  write_log(fmt::format("warning: standard output has gone ({}); the run goes on without a console",
                        terminal_->why_gone()));
}

void Console::write_log(std::string_view text) {
  if (!log_) return;
  std::fwrite(text.data(), 1, text.size(), log_);
  std::fputc('\n', log_);
  std::fflush(log_);
}

// Clears the live line. The cursor is at its start, so this works even if the terminal has become
// narrower and shows the line in several rows.
void Console::clear_live() {
  if (!has_live_) return;
  write("\r\x1b[J");
  has_live_ = false;
}

void Console::show_live(const std::string& text) {
  write(fmt::format("\r{}\x1b[J\r", has_colour_ ? painted_fields(text) : text));
  has_live_ = true;
}

void Console::write_line(std::string_view shown, std::string_view logged) {
  clear_live();
  if (!is_at_line_start_) {
    write("\n");
    if (log_) std::fputc('\n', log_);
  }
  is_at_line_start_ = true;
  write(fmt::format("{}\n", shown));
  write_log(logged);
}

void Console::line(std::string_view text) {
  const std::string shown = visible_text(text);
  write_line(shown, shown);
}

void Console::warning(std::string_view text) {
  constexpr const char* kLabel = "warning:";
  const std::string label = has_colour_ ? painted(kLabel, Colour::kYellow) : kLabel,
                    what = visible_text(text);
  write_line(fmt::format("{} {}", label, what), fmt::format("{} {}", kLabel, what));
}

void Console::fields(const std::string& text) { write_line(has_colour_ ? painted_fields(text) : text, text); }

void Console::step(const StepReport& report, bool is_logged) {
  const int columns = columns_();
  if (columns <= 0) {
    if (is_logged) fields(format_step(report));
    return;
  }
  if (is_logged) write_log(format_step(report));
  const auto now = std::chrono::steady_clock::now();
  const bool is_new = has_live_ && columns == last_columns_ && now - last_step_ < kRedraw;
  if (!is_at_line_start_ || (terminal_ && is_new)) return;
  last_step_ = now;
  last_columns_ = columns;
  show_live(format_live_step(report, columns - 1));
}

void Console::eval(const EvalReport& report) { fields(format_eval(report)); }
void Console::run(const RunReport& report) { fields(format_run(report)); }

void Console::live(std::string_view text) {
  const int columns = columns_();
  if (columns <= 0 || !is_at_line_start_) return;
  show_live(fit_fields(text, columns - 1));
}

void Console::stream(std::string_view text) {
  if (text.empty()) return;
  clear_live();
  const std::string shown = visible_text(text);
  write(shown);
  is_at_line_start_ = text.back() == '\n';
  if (log_) {
    std::fwrite(shown.data(), 1, shown.size(), log_);
    std::fflush(log_);
  }
}

}  // namespace ingot
