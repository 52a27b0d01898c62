#include "ingot/console/live_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <clocale>
#include <cwchar>

namespace ingot {
namespace {

constexpr std::string_view kSeparator = " | ";

// wcwidth() and mbrtowc() follow the thread's locale, which is "C" in this program; terminals use UTF-8.
class Utf8Locale {
 public:
  Utf8Locale() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_) before_ = uselocale(locale_);
  }
  ~Utf8Locale() {
    if (!locale_) return;
    uselocale(before_);
    freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t locale_, before_ = nullptr;
};

bool is_plain_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
}

}  // namespace

int display_cells(std::string_view text) {
  if (is_plain_ascii(text)) return static_cast<int>(text.size());
  const Utf8Locale utf8;
  int cells = 0;
  std::mbstate_t state{};
  while (!text.empty()) {
    wchar_t character = 0;
    const size_t size = std::mbrtowc(&character, text.data(), text.size(), &state);
    const bool is_valid = size > 0 && size <= text.size();
    cells += is_valid ? std::max(0, wcwidth(character)) : 1;
    if (!is_valid) state = {};
    text.remove_prefix(is_valid ? size : 1);
  }
  return cells;
}

std::string fit_fields(std::string_view text, int cells) {
  if (display_cells(text) <= cells) return std::string(text);
  for (const std::string_view gap : {kSeparator, std::string_view(" ")}) {
    for (size_t end = text.rfind(gap); end != std::string_view::npos && end > 0;
         end = text.rfind(gap, end - 1)) {
      const std::string_view start = text.substr(0, end);
      if (display_cells(start) <= cells) return std::string(start);
    }
  }
  return "";
}

std::string format_live_step(const StepReport& r, int cells) {
  std::string fields;
  if (r.eta_s) fields += " | eta " + format_time(*r.eta_s);
  fields += fmt::format(" | loss {:.4f}", r.loss);
  const size_t least = fields.size();
  fields += fmt::format(" | {} tok/s | {:.{}f} ms | lr {} | norm {:.2f}", format_count(r.tokens_per_s),
                        r.step_ms, r.step_ms < 9.95 ? 1 : 0, format_rate(r.lr), r.grad_norm);
  if (r.mfu) fields += fmt::format(" | mfu {:.1f}%", 100 * *r.mfu);
  std::string progress = "step " + format_progress(r);
  if (static_cast<int>(progress.size() + least) > cells) progress = fmt::format("{:.1f}%", 100 * r.progress);
  return fit_fields(progress + fields, cells);
}

}  // namespace ingot
