// evaluate_tasks() computes how many records of tasks a model answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ingot/checkpoint/served_model.h"
#include "ingot/tasks/task_set.h"

namespace ingot {

struct TaskOptions {
  std::vector<std::string> files;
  ShotOptions shots;
  ServedOptions model = {};
  int64_t batch_size = 8;          // records at the same time
  Scorer::Progress progress = {};  // counts the tokens of all tasks
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
