// ingot eval: the loss of a checkpoint on text, or the tasks that it solves.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_options.h"
#include "apps/run_note.h"
#include "ingot/console/console.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/run/eval/eval_watch.h"
#include "ingot/run/run.h"
#include "ingot/tasks/evaluate_tasks.h"

namespace ingot {
namespace {

struct EvalArguments {
  std::string checkpoint;
  ModelOptions model_options;
  EvalOptions options;
  TaskOptions tasks;
  std::string shots_from, samples;
  bool is_quiet = false, is_json = false;
};

using Json = nlohmann::ordered_json;

// Shows the progress of an evaluation on standard error. Its clock starts with the first call.
class ShownProgress {
 public:
  bool go_on(int64_t tokens, int64_t all) {
    if (!watch_)
      watch_.emplace(
          console_, *alone_, [] { return false; },
          [] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          });
    return watch_->go_on(tokens, all);
  }

 private:
  Console console_{std::make_unique<Terminal>(Terminal::Options{.fd = STDERR_FILENO})};
  std::unique_ptr<Communicator> alone_ = self_communicator();
  std::optional<EvalWatch> watch_;
};

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void print_object(const Json& json) { fmt::print("{}", text_of(json)); }

void eval_text(const EvalArguments& arguments, EvalOptions options) {
  std::optional<ShownProgress> progress;
  if (!arguments.is_quiet) {
    progress.emplace();
    options.should_continue = [&](int64_t tokens, int64_t all) { return progress->go_on(tokens, all); };
  }
  const auto [result, context, checkpoint, warning] = evaluate_checkpoint(arguments.checkpoint, options);
  progress.reset();
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", visible_line(warning));
  if (arguments.is_json)
    return print_object({{"loss", result.loss},
                         {"tokens", result.tokens},
                         {"bits_per_byte", result.bits_per_byte},
                         {"top1", result.top1},
                         {"context", context},
                         {"checkpoint", checkpoint.string()}});
  // Chats have no bits per byte, because their questions are not predicted.
  fmt::print("loss {:.4f} |{} top-1 {:.1f}% | {} tokens in windows of {} | {}\n", result.loss,
             result.bits_per_byte > 0 ? fmt::format(" {:.4f} bits/byte |", result.bits_per_byte) : "",
             100 * result.top1, result.tokens, context, visible_line(checkpoint.string()));
}

Json json_of(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json json_of(const TaskResult& task, int64_t shots) {
  const auto error = [](const std::optional<Mean>& mean) {
    return json_of(mean ? mean->error : std::nullopt);
  };
  const auto value = [](const std::optional<Mean>& mean) { return mean ? Json(mean->value) : Json(); };
  Json json = {{"acc", task.acc.value},
               {"acc_norm", value(task.acc_norm)},
               {"stderr", json_of(task.acc.error)},
               {"n", task.records.size()},
               {"acc_norm_stderr", error(task.acc_norm)},
               {"shape", name(task.shape)},
               {"shots", shots},
               {"cut", task.cut}};
  if (task.acc_bytes) json["acc_bytes"] = task.acc_bytes->value;
  if (task.perplexity) json["perplexity"] = *task.perplexity;
  if (task.centered) json["centered"] = *task.centered;
  return json;
}

void print_table(const TaskResults& results) {
  const auto with_error = [](const std::optional<Mean>& mean) {
    if (!mean) return std::string("-");
    return fmt::format("{:.4f}", mean->value) + (mean->error ? fmt::format(" +- {:.4f}", *mean->error) : "");
  };
  const auto number = [](const std::optional<double>& x) { return x ? fmt::format("{:.4g}", *x) : "-"; };
  size_t width = 4;
  for (const TaskResult& task : results.tasks) width = std::max(width, visible_line(task.name).size());
  fmt::print("{:<{}}  {:<17} {:>6}  {:<16}  {:<16}  {:>10}  {:>8}  {:>4}\n", "task", width, "shape", "n",
             "acc", "acc_norm", "perplexity", "centered", "cut");
  for (const TaskResult& task : results.tasks)
    fmt::print("{:<{}}  {:<17} {:>6}  {:<16}  {:<16}  {:>10}  {:>8}  {:>4}\n", visible_line(task.name), width,
               name(task.shape), task.records.size(), with_error(task.acc), with_error(task.acc_norm),
               number(task.perplexity), number(task.centered), task.cut);
  fmt::print("{}\n", visible_line(results.checkpoint.string()));
}

// Writes a line of JSON for each record.
void write_samples(const std::string& path, const TaskResults& results) {
  std::string lines;
  for (const TaskResult& task : results.tasks)
    for (const RecordScores& record : task.records) {
      Json likelihoods = Json::array(), greedy = Json::array();
      for (const Score& score : record.scores) {
        likelihoods.push_back(score.log_likelihood);
        greedy.push_back(score.is_greedy);
      }
      lines += text_of({{"task", task.name},
                        {"line", record.line},
                        {"answer", record.answer},
                        {"log_likelihoods", likelihoods},
                        {"is_greedy", greedy}});
    }
  write_file(path, lines);
}

void eval_tasks(const EvalArguments& arguments, TaskOptions options) {
  if (!arguments.shots_from.empty() && options.shots.count == 0)
    fail(ErrorKind::kUsage, "--shots-from needs the number of examples, --shots K");
  options.shots.from = arguments.shots_from;
  std::optional<ShownProgress> progress;
  if (!arguments.is_quiet) {
    progress.emplace();
    options.progress = [&](int64_t tokens, int64_t all) { return progress->go_on(tokens, all); };
  }
  const TaskResults results = evaluate_tasks(arguments.checkpoint, options);
  progress.reset();
  if (arguments.is_json) {
    Json tasks = Json::object();
    for (const TaskResult& task : results.tasks) tasks[task.name] = json_of(task, options.shots.count);
    print_object({{"tasks", tasks}});
  } else {
    print_table(results);
  }
  if (!arguments.samples.empty()) write_samples(arguments.samples, results);
}

void eval(const EvalArguments& arguments) {
  const bool has_tasks = !arguments.tasks.files.empty();
  if (has_tasks != arguments.options.data.empty())
    fail(ErrorKind::kUsage, "eval needs either --data, for the loss on text, or --tasks, for questions");
  if (has_tasks && arguments.options.max_tokens > 0)
    fail(ErrorKind::kUsage, "--max-tokens is for --data; tasks are always evaluated to their end");
  if (!has_tasks &&
      (arguments.tasks.shots.count > 0 || !arguments.shots_from.empty() || !arguments.samples.empty()))
    fail(ErrorKind::kUsage, "--shots, --shots-from and --samples are for --tasks");
  EvalOptions options = arguments.options;
  options.model = arguments.model_options.served();
  if (!has_tasks && options.model.device != Device::kCpu)
    fail(ErrorKind::kUsage, "--device {} is for --tasks; the loss on text is computed on the CPU",
         name(options.model.device));
  note_on_run(arguments.checkpoint);
  if (!has_tasks) return eval_text(arguments, options);
  TaskOptions tasks = arguments.tasks;
  tasks.model = options.model;
  tasks.batch_size = options.batch_size;
  eval_tasks(arguments, tasks);
}

}  // namespace

void add_eval_command(Command& app) {
  auto arguments = std::make_shared<EvalArguments>();
  Command* command = app.add_subcommand("eval", "Loss of a checkpoint on text, or accuracy on tasks");
  command->add_option("checkpoint", arguments->checkpoint, "A checkpoint's folder, or a run's")->required();
  EvalOptions& o = arguments->options;
  command->add_option("--data", o.data, "Text: files (.gz and .zst too), folders, globs, .bin shards, .jsonl")
      ->type_name("PATH");
  command->add_option("--tasks", arguments->tasks.files, "Files of questions with answers, JSON Lines")
      ->type_name("FILE");
  ShotOptions& shots = arguments->tasks.shots;
  command->add_option("--shots", shots.count, "Solved examples before each question of a task")
      ->count(0)
      ->capture_default_str();
  command->add_option("--shots-from", arguments->shots_from, "File of the examples; default the task's own")
      ->type_name("FILE");
  command->add_option("--samples", arguments->samples, "Writes each question's log-likelihoods to this file")
      ->type_name("FILE");
  command->add_option("--seed", shots.seed, "Of the draw of examples")->capture_default_str();
  command->add_option("--delimiter", shots.delimiter, "Between context and continuation of a task of CORE")
      ->may_be_empty()
      ->default_str("a space");
  command->add_option("--text-field", o.text_field, "The field of a JSONL line that holds the text")
      ->capture_default_str();
  arguments->model_options.add_to(*command);
  command->add_option("--batch-size", o.batch_size, "Windows, or questions of tasks, at once")
      ->count(1)
      ->capture_default_str();
  command->add_option("--max-tokens", o.max_tokens, "Stop after about so many tokens; 0: all")->count(0);
  command->add_flag("--quiet", arguments->is_quiet, "Show no progress");
  command->add_flag("--json", arguments->is_json,
                    "One JSON object: loss, tokens, bits_per_byte, top1, context, checkpoint; or tasks");
  command->callback([arguments] { eval(*arguments); });
}

}  // namespace ingot
