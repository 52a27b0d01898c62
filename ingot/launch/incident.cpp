#include "ingot/launch/incident.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/run/record/utc_time.h"

namespace ingot {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFile = "incidents.jsonl";
constexpr std::array kKinds = {IncidentKind::kKilled, IncidentKind::kCrashed, IncidentKind::kError,
                               IncidentKind::kHang, IncidentKind::kStart};
constexpr int kDeepest = 8;  // an incident is a flat object; deeper nesting is not parsed

ordered_json to_json(const Incident& i) {
  ordered_json line = {
      {"time", utc_text(i.time_s)}, {"kind", name(i.kind)},  {"rank", nullptr},          {"host", i.host},
      {"operation", i.operation},   {"reason", i.reason},    {"exit_code", i.exit_code}, {"step", i.step},
      {"steps_lost", nullptr},      {"recovery_s", nullptr}, {"ranks", nullptr},         {"end", i.end}};
  if (i.rank) line["rank"] = *i.rank;
  if (i.steps_lost) line["steps_lost"] = *i.steps_lost;
  if (i.recovery_s) line["recovery_s"] = *i.recovery_s;
  if (i.ranks) line["ranks"] = *i.ranks;
  return line;
}

// Returns a whole number up to `most` in size; 0 for any other value.
int64_t whole_at(const json& line, const char* key, int64_t most) {
  const json& value = line.at(key);
  return value.is_number_integer() ? std::clamp(value.get<int64_t>(), -most, most) : 0;
}

// Throws a json::exception if the line is no incident.
Incident from_json(const json& line) {
  Incident incident;
  const auto text_at = [&](const char* key) { return visible_line(line.at(key).get<std::string>()); };
  const std::string kind = text_at("kind");
  for (const IncidentKind known : kKinds)
    if (kind == name(known)) incident.kind = known;
  incident.time_s = parse_utc(text_at("time")).value_or(0);
  constexpr int64_t kMaxRanks = int64_t{1} << 30, kMaxSteps = int64_t{1} << 50;
  constexpr double kLongest_s = 1e9;
  const auto has = [&](const char* key) { return !line.at(key).is_null(); };
  if (has("rank")) incident.rank = static_cast<int>(whole_at(line, "rank", kMaxRanks));
  incident.host = text_at("host");
  incident.operation = text_at("operation");
  incident.reason = text_at("reason");
  incident.exit_code = static_cast<int>(whole_at(line, "exit_code", 255));
  incident.step = whole_at(line, "step", kMaxSteps);
  if (has("steps_lost")) incident.steps_lost = whole_at(line, "steps_lost", kMaxSteps);
  if (has("recovery_s"))
    incident.recovery_s = std::clamp(line.at("recovery_s").get<double>(), 0.0, kLongest_s);
  if (has("ranks")) incident.ranks = static_cast<int>(whole_at(line, "ranks", kMaxRanks));
  incident.end = text_at("end");
  return incident;
}

bool is_shallow(const std::string& line) {
  int depth = 0;
  for (const char c : line) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kDeepest) return false;
  }
  return true;
}

}  // namespace

const char* name(IncidentKind kind) {
  switch (kind) {
    case IncidentKind::kKilled:
      return "killed";
    case IncidentKind::kCrashed:
      return "crashed";
    case IncidentKind::kError:
      return "error";
    case IncidentKind::kHang:
      return "hang";
    case IncidentKind::kStart:
      return "start";
  }
  return "";
}

std::string describe(const Incident& incident) {
  const auto happened = [&] {
    switch (incident.kind) {
      case IncidentKind::kKilled:
        return "was killed";
      case IncidentKind::kCrashed:
        return "crashed";
      case IncidentKind::kError:
        return "failed";
      case IncidentKind::kHang:
        return "hung";
      case IncidentKind::kStart:
        return "did not start";
    }
    return "";
  };
  std::string text = incident.rank ? fmt::format("rank {}", *incident.rank) : "the job";
  if (!incident.host.empty()) text += " on " + incident.host;
  text += fmt::format(" {}", happened());
  if (incident.kind != IncidentKind::kStart) text += fmt::format(" at step {}", incident.step);
  if (!incident.reason.empty()) text += ": " + incident.reason;
  if (!incident.operation.empty()) text += fmt::format(" (other ranks waited for {})", incident.operation);
  return text;
}

IncidentLog::IncidentLog(const std::filesystem::path& run)
    : path_(run / kFile), incidents_(read_incidents(run)) {}

void IncidentLog::add(const Incident& incident) {
  incidents_.push_back(incident);
  write();
}

void IncidentLog::change_last(const Incident& incident) {
  INGOT_CHECK(!incidents_.empty(), "IncidentLog::change_last: there is no incident");
  incidents_.back() = incident;
  write();
}

void IncidentLog::write() const {
  std::string text;
  for (const Incident& incident : incidents_)
    text += to_json(incident).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  make_folders(path_.parent_path());
  write_file(path_, text);
}

std::vector<Incident> read_incidents(const std::filesystem::path& run) {
  const std::filesystem::path path = run / kFile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  return parse_incidents(read_file(path));
}

std::vector<Incident> parse_incidents(const std::string& text) {
  std::vector<Incident> incidents;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!is_shallow(line)) continue;
    try {
      incidents.push_back(from_json(json::parse(line)));
    } catch (const json::exception&) {  // torn, or written by another program
      continue;
    }
  }
  return incidents;
}

}  // namespace ingot
