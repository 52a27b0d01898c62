// evaluate_tasks() computes how many records of tasks a model answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ingot/checkpoint/served_model.h"
#include "ingot/tasks/task_file.h"
#include "ingot/tasks/task_tokens.h"

namespace ingot {

struct TaskOptions {
  std::vector<std::string> files;
  ShotOptions shots;
  ServedOptions model = {};
  int64_t batch_size = 8;                                          // records at the same time
  std::function<void(int64_t tokens, int64_t all)> progress = {};  // Scorer::Progress of all tasks
};

// A mean over the records, and its standard error: the sample's deviation over sqrt(n). One record has none.
struct Mean {
  double value = 0;
  std::optional<double> error = {};
};

struct RecordScores {
  int64_t line = 0;
  size_t answer = 0;
  std::vector<Score> scores;  // of the options, in order
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

struct TaskResults {
  std::filesystem::path checkpoint;  // the one that was evaluated, of a run the newest
  std::vector<TaskResult> tasks;     // in the order of the files
};

// Reads the tasks, then the model (ServedModel), and scores the records. Prompts that do not fit into the
// context lose their beginning, and a line on stderr warns of it. kUsage error if two files have the same
// name without extension, or a device is to read 8-bit weights.
TaskResults evaluate_tasks(const std::filesystem::path& checkpoint, const TaskOptions& options);

}  // namespace ingot
