// Empty in builds without MPI.
#ifdef INGOT_WITH_MPI
#include "ingot/comm/mpi_board.h"

#include <algorithm>

namespace ingot::mpi {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

}  // namespace

Board::Board(JobContext& context, std::string group) : context_(context), group_(std::move(group)) {
  const std::lock_guard lock(context_.boards_mutex);
  context_.boards.push_back(this);
}

Board::~Board() {
  const std::lock_guard lock(context_.boards_mutex);
  std::erase(context_.boards, this);
}

void Board::begin(const char* kind, const std::string& name) {
  const std::lock_guard lock(mutex_);
  operation_ = fmt::format("{} '{}'", kind, name);
  ++number_;
  since_ = Clock::now();
  is_running_ = true;
}

void Board::end() {
  const std::lock_guard lock(mutex_);
  is_running_ = false;
}

void Board::note_message(const std::string& text) {
  const std::lock_guard lock(mutex_);
  is_messaging_ = !text.empty();
  if (!is_messaging_) return;
  message_ = text;
  message_since_ = Clock::now();
}

double Board::age_s() const {
  const std::lock_guard lock(mutex_);
  const double collective = is_running_ ? seconds_since(since_) : 0;
  const double message = is_messaging_ ? seconds_since(message_since_) : 0;
  return std::max(collective, message);
}

std::string Board::text() const {
  const std::lock_guard lock(mutex_);
  std::string text = group_ + ": ";
  if (number_ == 0)
    text += "nothing yet";
  else if (is_running_)
    text += fmt::format("in {} (number {}) for {:.1f} s", operation_, number_, seconds_since(since_));
  else
    text += fmt::format("done with {} (number {})", operation_, number_);
  if (is_messaging_) text += fmt::format(", in {} for {:.1f} s", message_, seconds_since(message_since_));
  return text;
}

}  // namespace ingot::mpi
#endif
