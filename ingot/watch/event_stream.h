// EventStream sends the state of the runs to one open page as server-sent events. It remembers what the page
// has received, and sends only what is new:
//   runs     runs_json, when it has changed, at most once a second
//   snapshot snapshot_json, the curves of a run so far: first, and whenever its metrics.jsonl was cut back
//   lines    lines_json, the lines that were appended since
//   samples  samples_json, when there are new samples
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ingot/watch/run_set.h"

namespace ingot {

// Used by the thread that uses the runs.
class EventStream {
 public:
  // wanted: the indices of the runs whose curves the page shows.
  EventStream(RunSet& runs, std::vector<size_t> wanted);

  // Returns the events since the last call; empty if there are none. Reads some of what was appended to the
  // files; is_behind() is true if there is more to read at once. now_s: a clock that never goes back.
  std::string next(double now_s);
  bool is_behind() const { return is_behind_; }

 private:
  struct Told {
    int64_t generation = 0;  // 0: no snapshot was sent
    int64_t line = 0, event = 0;
    bool is_whole = false;     // the snapshot had everything that the file held
    double snapshot_s = -1e9;  // when it was sent
    double samples_s = -1e9;   // when new samples were last looked for
    bool has_samples = false;  // they were sent once
    std::vector<std::string> samples = {};
  };

  void tell_run(size_t id, Told& told, double now_s, std::string& out);
  void tell_samples(size_t id, Told& told, double now_s, std::string& out);

  RunSet& runs_;
  std::vector<size_t> wanted_;
  std::map<size_t, Told> told_;
  std::string told_runs_;
  double runs_s_ = -1e9;  // when runs_json was last compared with told_runs_
  bool is_behind_ = false;
};

}  // namespace ingot
