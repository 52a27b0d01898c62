#include "ingot/run/eval/run_tasks.h"

#include <memory>

namespace ingot {

std::vector<std::pair<std::string, double>> figures_of(const TaskResult& task) {
  std::vector<std::pair<std::string, double>> figures = {{"acc", task.acc.value}};
  if (task.acc_norm) figures.emplace_back("acc_norm", task.acc_norm->value);
  if (task.centered) figures.emplace_back("centered", *task.centered);
  if (task.perplexity) figures.emplace_back("perplexity", *task.perplexity);
  return figures;
}

RunTasks::RunTasks(const RunConfig& config, const Tokenizer& tokenizer,
                   const std::function<void(const std::string&)>& warn)
    : tasks_(config.eval.tasks, {}, config.eval.task_questions) {
  if (is_empty()) return;
  const TaskEncoder encoder(tokenizer, TaskEncoder::starts_of(tokenizer, tokenizer.to_json()),
                            config.model.context, config.model.vocab);
  tasks_.encode(encoder, warn);
}

std::vector<TaskResult> RunTasks::score(Trainer& trainer, const Scorer::Progress& progress) const {
  Layout& layout = trainer.layout();
  const std::unique_ptr<AveragedWeights> averaged = trainer.average_weights();
  Scorer scorer(*layout.model, trainer.params(), *layout.region, *layout.stream,
                tasks_.shape(EvalConfig::kTaskSlots, layout.stream->device), layout.executor->bound_infer());
  return tasks_.score(scorer, progress);
}

}  // namespace ingot
