#include "ingot/run/run_evaluator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ingot/run/eval/eval_tokens.h"
#include "ingot/run/eval/eval_watch.h"

namespace ingot {
namespace {

std::string losses_line(int64_t step, const std::vector<std::pair<std::string, double>>& losses) {
  std::string text;
  for (const auto& [name, loss] : losses) text += fmt::format(" | {} {:.4f}", name, loss);
  return fmt::format("val step {}{}", step, text);
}

std::string task_line(int64_t step, const TaskResult& task) {
  std::string text;
  for (const auto& [name, value] : figures_of(task)) text += fmt::format(" | {} {:.4f}", name, value);
  if (task.acc.error) text += fmt::format(" | standard error of acc {:.4f}", *task.acc.error);
  return fmt::format("task step {} | {} | {} questions{}", step, task.name, task.records.size(), text);
}

}  // namespace

// Returns 0 for all tokens.
int64_t RunEvaluator::eval_tokens() const {
  const RunConfig& config = setup_.config;
  if (config.eval.max_tokens) return *config.eval.max_tokens;
  const int64_t context = config.model.context;
  int64_t longest = setup_.data.val.tokens();
  for (const ValidationSet& set : setup_.data.sets) longest = std::max(longest, set.tokens.tokens());
  return auto_eval_tokens(
      {.first_tokens = setup_.plan.ramp().tokens_before(std::min(config.eval.every, services_.steps_done())),
       .trained_tokens = services_.loader.position() * context,
       .flops_per_token = services_.trainer.layout().model->config().flops_per_token(),
       .batch_tokens = config.train.batch_size * context,
       .text_tokens = longest - 1,
       .texts = 1 + std::ssize(setup_.data.sets)});
}

// Returns nullopt if an interruption ended the evaluation.
std::optional<RunEval> RunEvaluator::measure() {
  const TimedPhase phase(services_, TimeLimit::Phase::kEvaluation);
  std::optional<EvalWatch> watch;
  const auto begin = [&] {
    watch.emplace(
        setup_.console, setup_.world, [this] { return setup_.is_interrupted.load(); },
        [this] { return seconds_since(progress_.start); });
  };
  const EvalProgress should_continue = [&](int64_t tokens, int64_t all) {
    services_.beat();
    return watch->go_on(tokens, all);
  };
  const auto evaluate_stream = [this](const TokenSource& text, int64_t max_tokens,
                                      const EvalProgress& progress) {
    return services_.trainer.evaluate(text, max_tokens, progress);
  };
  begin();
  RunEval eval = evaluate_run(setup_.data, eval_tokens(), evaluate_stream, should_continue);
  if (!eval.result.is_complete) return std::nullopt;
  if (setup_.tasks.is_empty() || !std::isfinite(eval.result.loss))
    return eval;  // broken weights answer nothing
  begin();
  eval.tasks = setup_.tasks.score(services_.trainer, should_continue);
  return eval.tasks.empty() ? std::nullopt : std::optional(std::move(eval));
}

bool RunEvaluator::evaluate() {
  const int64_t step = services_.steps_done();
  std::optional<RunEval> measured = measure();
  if (!measured) return false;
  const RunEval& eval = progress_.eval.emplace(*std::move(measured));
  const double judged = eval.loss_of(setup_.config.eval.best_by);
  const bool is_best = judged < progress_.best_loss;
  const EvalResult& result = eval.result;
  progress_.eval_step = step;
  if (is_best) progress_.best_loss = judged;
  progress_.lowest.add(step, judged, setup_.config.eval.every);
  setup_.console.eval({.step = step,
                       .loss = result.loss,
                       .bits_per_byte = result.bits_per_byte,
                       .top1 = result.top1,
                       .tokens = result.tokens,
                       .text_tokens = result.text_tokens,
                       .is_best = is_best});
  if (!eval.losses.empty()) setup_.console.line(losses_line(step, eval.losses));
  for (const TaskResult& task : eval.tasks) setup_.console.line(task_line(step, task));
  std::vector<MetricsField> fields = {{"val_loss", result.loss},
                                      {"val_bits_per_byte", result.bits_per_byte},
                                      {"val_top1", result.top1},
                                      {"val_tokens", result.tokens}};
  for (const auto& [source, loss] : eval.losses) fields.push_back({"val_loss/" + source, loss});
  for (const TaskResult& task : eval.tasks)
    for (const auto& [figure, value] : figures_of(task))
      fields.push_back({fmt::format("task/{}/{}", task.name, figure), value});
  services_.log.write(step, fields, true);
  saver_.evaluated(judged);
  return true;
}

bool RunEvaluator::is_out_of_patience() const {
  const int64_t patience = setup_.config.eval.patience;
  return patience > 0 && progress_.lowest.evaluations_since >= patience;
}

}  // namespace ingot
