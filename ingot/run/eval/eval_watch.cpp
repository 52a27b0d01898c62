#include "ingot/run/eval/eval_watch.h"

#include <fmt/core.h>

#include <array>
#include <utility>

namespace ingot {
namespace {

constexpr double kAgreeEvery_s = 0.1;
constexpr double kLineEvery_s = 30;  // without a live line
constexpr double kEtaAfter_s = 0.5;  // the first batches give no reliable estimate

}  // namespace

EvalWatch::EvalWatch(Console& console, Communicator& ranks, std::function<bool()> is_interrupted,
                     std::function<double()> time_s)
    : console_(console),
      ranks_(ranks),
      is_interrupted_(std::move(is_interrupted)),
      time_s_(std::move(time_s)),
      start_s_(time_s_()),
      next_line_s_(kLineEvery_s) {
  console_.live("evaluating");
}

bool EvalWatch::go_on(int64_t tokens, int64_t all_tokens) {
  if (tokens < next_tokens_) return true;
  std::array<double, 2> worst{is_interrupted_() ? 1.0 : 0.0, time_s_() - start_s_};
  ranks_.max(worst);
  if (worst[0] > 0) return false;
  const double elapsed_s = worst[1];
  next_tokens_ = tokens;
  if (elapsed_s > 0)
    next_tokens_ += static_cast<int64_t>(static_cast<double>(tokens) / elapsed_s * kAgreeEvery_s);
  if (tokens < all_tokens) show(tokens, all_tokens, elapsed_s);
  return true;
}

void EvalWatch::show(int64_t tokens, int64_t all_tokens, double elapsed_s) {
  const double done = static_cast<double>(tokens) / static_cast<double>(all_tokens);
  std::string text = fmt::format("evaluating {:3.0f}%", 100 * done);
  if (elapsed_s >= kEtaAfter_s) text += " | eta " + format_time(elapsed_s * (1 - done) / done);
  text += fmt::format(" | {} of {} tokens", format_count(static_cast<double>(tokens)),
                      format_count(static_cast<double>(all_tokens)));
  if (console_.is_live()) {
    console_.live(text);
  } else if (elapsed_s >= next_line_s_) {
    console_.line(text);
    next_line_s_ = elapsed_s + kLineEvery_s;
  }
}

}  // namespace ingot
