// TaskSet asks a model the questions of several tasks, and computes how many it answers.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/tasks/scorer.h"
#include "ingot/tasks/task_file.h"
#include "ingot/tasks/task_tokens.h"

namespace ingot {

// A mean over the records, and its standard error: the sample's deviation over sqrt(n). One record has none.
struct Mean {
  double value = 0;
  std::optional<double> error = {};
};

struct RecordScores {
  int64_t line = 0;
  size_t answer = 0;
  std::vector<Score> scores;  // one per option, in order
};

struct TaskResult {
  std::string name;
  TaskShape shape = TaskShape::kLambada;
  std::vector<RecordScores> records;
  int64_t cut = 0;                     // requests that did not fit into the context and were cut at the left
  Mean acc = {};                       // by the sum of the tokens' log-likelihoods; CORE's by their mean
  std::optional<Mean> acc_norm = {};   // by the sum over the characters of the continuation
  std::optional<Mean> acc_bytes = {};  // by the sum over its bytes
  std::optional<double> perplexity = {};  // of texts whose end is predicted: exp of minus the mean sum
  std::optional<double> centered = {};    // of CORE: (acc - random) / (1 - random)
};

class TaskSet {
 public:
  // Reads all files, so that a fault in the last one is reported before a model is loaded. most_records: of
  // each task the first ones; 0 means all. kUsage error if two files have the same name without extension.
  TaskSet(std::span<const std::string> files, const ShotOptions& shots, int64_t most_records = 0);

  bool is_empty() const { return tasks_.empty(); }
  // Makes the requests of all records for a model of so many positions. Passes on a warning of each task
  // whose prompts do not fit and lose their beginning, as in lm-evaluation-harness.
  void encode(const TaskEncoder& encoder, const std::function<void(const std::string&)>& warn);
  // Returns the shape of the Scorer that scores batch_size records at the same time. REQUIRES: encode() was
  // called.
  InferShape shape(int64_t batch_size, Device device) const;
  // Scores all requests. Returns the results in the order of the files; none if `progress` ended it.
  std::vector<TaskResult> score(Scorer& scorer, const Scorer::Progress& progress) const;

 private:
  struct Task {
    Task(const std::string& path, const ShotOptions& shots, int64_t most_records)
        : file(path, most_records), prompts(file, shots) {}

    // Returns the requests of a record. The errors of the tokenizer, too, name the record's line.
    std::vector<ScoreRequest> requests_of(size_t record, const TaskEncoder& encoder) const;
    TaskResult result(const std::vector<Score>& scores) const;

    TaskFile file;
    TaskPrompts prompts;
    std::vector<ScoreRequest> requests = {};  // of each record, one per option; of texts one
  };

  std::list<Task> tasks_;
};

}  // namespace ingot
