#include "ingot/watch/event_stream.h"

#include "ingot/watch/view_json.h"

namespace ingot {
namespace {

constexpr size_t kSliceBytes = size_t{4} << 20;  // read from a run's metrics per call
constexpr double kStatusAge_s = 1;
constexpr double kSnapshotPause_s = 3;  // between two snapshots while a long file is read
constexpr double kSamplesPause_s = 2;

std::string event_text(const char* name, const std::string& json) {
  return std::string("event: ") + name + "\ndata: " + json + "\n\n";
}

}  // namespace

EventStream::EventStream(RunSet& runs, std::vector<size_t> wanted)
    : runs_(runs), wanted_(std::move(wanted)) {}

std::string EventStream::next(double now_s) {
  std::string out;
  is_behind_ = false;
  runs_.refresh(kStatusAge_s);
  for (const size_t id : wanted_)
    if (id < runs_.size()) tell_run(id, told_[id], now_s, out);
  if (now_s - runs_s_ < kStatusAge_s) return out;
  runs_s_ = now_s;
  if (std::string json = runs_json(runs_); json != told_runs_) {
    out.insert(0, event_text("runs", json));
    told_runs_ = std::move(json);
  }
  return out;
}

void EventStream::tell_run(size_t id, Told& told, double now_s, std::string& out) {
  RunView& run = runs_.run(id);
  run.refresh_metrics(kSliceBytes);
  const MetricsStore& store = run.metrics();
  is_behind_ = is_behind_ || run.is_behind();
  const bool has_lost = told.generation != store.generation() ||
                        store.lines() - told.line > static_cast<int64_t>(store.newest().size()) ||
                        (!told.is_whole && store.lines() > told.line);
  if (has_lost) {
    if (run.is_behind() && now_s - told.snapshot_s < kSnapshotPause_s) return;
    out += event_text("snapshot", snapshot_json(id, run));
    told.snapshot_s = now_s;
    told.is_whole = !run.is_behind();
    told.generation = store.generation();
  } else if (store.lines() > told.line) {
    out += event_text("lines", lines_json(id, store, told.line, told.event));
  }
  told.line = store.lines();
  told.event = store.event_count();
  tell_samples(id, told, now_s, out);
}

void EventStream::tell_samples(size_t id, Told& told, double now_s, std::string& out) {
  if (now_s - told.samples_s < kSamplesPause_s) return;
  told.samples_s = now_s;
  std::vector<std::string> samples = runs_.run(id).samples();
  if (told.has_samples && samples == told.samples) return;
  out += event_text("samples", samples_json(id, samples));
  told.samples = std::move(samples);
  told.has_samples = true;
}

}  // namespace ingot
