// RunTasks scores the tasks of eval.tasks with the model that a run trains.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/tasks/task_set.h"
#include "ingot/train/trainer.h"

namespace ingot {

// The figures of a task by their names: "acc", and "acc_norm", "centered" or "perplexity" where it has them.
std::vector<std::pair<std::string, double>> figures_of(const TaskResult& task);

class RunTasks {
 public:
  // Reads the files and makes their questions; reports a warning for each task with questions that are cut.
  // kData errors name the file and the line.
  RunTasks(const RunConfig& config, const Tokenizer& tokenizer,
           const std::function<void(const std::string&)>& warn);

  bool is_empty() const { return tasks_.is_empty(); }
  // Returns the results of all tasks; none if `progress` ended the scoring. All ranks call it alike, and all
  // score the same questions. With optimizer.ema the model has the moving averages of the weights.
  std::vector<TaskResult> score(Trainer& trainer, const Scorer::Progress& progress) const;

 private:
  TaskSet tasks_;
};

}  // namespace ingot
