#include "ingot/launch/job_errors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>
#include <vector>

#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

// Reads the number behind `before`, and moves the text behind it.
std::optional<int> number_after(std::string_view& text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + before.size());
  int number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc()) return std::nullopt;
  text = rest.substr(static_cast<size_t>(end - rest.data()));
  return number;
}

// A line of a rank: "ingot: rank 1 of 4: TEXT".
struct RankLine {
  int rank;
  std::string text;
};
std::optional<RankLine> rank_line(std::string_view line) {
  constexpr std::string_view kBegin = "ingot: rank ";
  const size_t at = line.find(kBegin);  // a launcher may tag its lines
  if (at == std::string_view::npos) return std::nullopt;
  line = line.substr(at);
  const auto rank = number_after(line, kBegin);
  if (!rank || !number_after(line, " of ") || !line.starts_with(": ")) return std::nullopt;
  return RankLine{.rank = *rank, .text = visible_line(line.substr(2))};
}

// A line below "every rank's last ones": "  rank 1: world all_reduce 'loss' for 5 s".
std::optional<RankLine> board_line(std::string_view line) {
  constexpr std::string_view kBegin = "  rank ";
  const size_t at = line.find(kBegin);
  if (at == std::string_view::npos) return std::nullopt;
  line = line.substr(at);
  const auto rank = number_after(line, kBegin);
  if (!rank || !line.starts_with(": ")) return std::nullopt;
  return RankLine{.rank = *rank, .text = visible_line(line.substr(2))};
}

// mpirun: "mpirun noticed that process rank 1 with PID 0 on node n7 exited on signal 9 (Killed)."
// srun:   "srun: error: n7: task 1: Killed"
std::optional<Incident> signalled(std::string_view line) {
  std::string_view rest = line;
  if (line.find("exited on signal") != std::string_view::npos) {
    const auto rank = number_after(rest, "process rank ");
    std::string host;
    if (const size_t at = rest.find("on node "); at != std::string_view::npos) {
      host = visible_line(rest.substr(at + 8));
      host = host.substr(0, host.find(' '));
    }
    if (const auto number = number_after(rest, "exited on signal "))
      return Incident{
          .kind = kind_of_signal(*number), .rank = rank, .host = host, .reason = signal_name(*number)};
  }
  if (!line.starts_with("srun: error: ")) return std::nullopt;
  const auto rank = number_after(rest, ": task ");
  if (!rank || !rest.starts_with(": ")) return std::nullopt;
  for (const int number : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTERM})
    if (rest.substr(2).starts_with(::strsignal(number)))
      return Incident{.kind = kind_of_signal(number), .rank = rank, .reason = signal_name(number)};
  return std::nullopt;
}

// Returns the operation that is in progress: "world: in all_reduce 'loss' (number 7) for 5 s"; empty if there
// is none. board: the last operation of every group.
std::string current_operation(const std::string& board) {
  for (size_t begin = 0; begin < board.size();) {
    const size_t end = std::min(board.find("; ", begin), board.size());
    const std::string part = board.substr(begin, end - begin);
    if (part.find(": in ") != std::string::npos) return part;
    begin = end + 2;
  }
  return "";
}

}  // namespace

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? fmt::format("signal {} (SIG{})", number, name) : fmt::format("signal {}", number);
}

IncidentKind kind_of_signal(int number) {
  for (const int fault : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS})
    if (number == fault) return IncidentKind::kCrashed;
  return IncidentKind::kKilled;
}

std::optional<Incident> cause_in(const std::string& errors) {
  constexpr std::string_view kLate = "an operation is late", kWaits = "and waits for other ranks: ";
  std::optional<Incident> signal, error, hang;
  std::string operation;
  std::optional<int> teller;  // the rank that found the hang
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    // Open MPI 5 breaks the sentence there.
    if (std::string rest; line.ends_with("exited on") && std::getline(lines, rest)) line += " " + rest;
    if (!signal) signal = signalled(line);
    if (const auto said = rank_line(line)) {
      if (const size_t at = said->text.find(kWaits); at != std::string::npos) {
        if (operation.empty()) operation = said->text.substr(at + kWaits.size());
      } else if (said->text.starts_with(kLate)) {
        if (!hang) teller = said->rank;
        if (!hang) hang = Incident{.kind = IncidentKind::kHang, .reason = said->text};
      } else if (!error) {
        error = Incident{.kind = IncidentKind::kError, .rank = said->rank, .reason = said->text};
      }
    } else if (const auto row = board_line(line); row && hang) {
      if (row->text.starts_with("does not answer") && !hang->rank) hang->rank = row->rank;
      if (row->rank == teller && operation.empty()) operation = row->text;
    }
  }
  std::optional<Incident> cause = signal ? signal : hang ? hang : error;
  if (cause) cause->operation = current_operation(operation);
  if (cause && cause->kind == IncidentKind::kHang)
    cause->reason = cause->reason.substr(0, cause->reason.find("; every rank"));
  return cause;
}

}  // namespace ingot
