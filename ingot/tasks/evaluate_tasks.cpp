#include "ingot/tasks/evaluate_tasks.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>

#include "ingot/core/visible_text.h"
#include "ingot/tasks/scorer.h"

namespace ingot {
namespace {

struct Task {
  explicit Task(const std::string& path, const ShotOptions& shots) : file(path), prompts(file, shots) {}

  TaskFile file;
  TaskPrompts prompts;
  std::vector<ScoreRequest> requests = {};  // of each record, one per option; of texts one
};

// Reads all files before the model, so that a fault in the last one is reported at once.
std::list<Task> read_tasks(const TaskOptions& options) {
  std::list<Task> tasks;
  for (const std::string& path : options.files) {
    tasks.emplace_back(path, options.shots);
    const std::string name = tasks.back().file.name();
    for (const Task& other : tasks)
      if (&other != &tasks.back() && other.file.name() == name)
        fail(ErrorKind::kUsage, "{} and {} have the same name, and results are by name; rename one of them",
             other.file.path.native(), path);
  }
  return tasks;
}

// Returns the requests of a record. The errors of the tokenizer, too, name the record's line.
std::vector<ScoreRequest> requests_of(const Task& task, size_t record, const TaskEncoder& encoder) {
  const std::vector<TaskPrompt> prompts = task.prompts.of(record);
  try {
    if (is_core(task.file.shape)) return encoder.core_requests(task.file.shape, prompts);
    std::vector<ScoreRequest> requests;
    for (const TaskPrompt& prompt : prompts) requests.push_back(encoder.request(prompt));
    return requests;
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", task.file.place(record), error.what());
  }
}

// Prompts that lose their beginning are scored, as in lm-evaluation-harness, but the user should know.
void warn_of_cuts(const Task& task, int64_t context) {
  const auto is_cut = [](const ScoreRequest& request) { return request.is_cut; };
  const auto first = std::ranges::find_if(task.requests, is_cut);
  if (first == task.requests.end()) return;
  fmt::print(stderr,
             "warning: {}: {} of {} prompts, this one the first, are longer than the model's context of {} "
             "tokens and lose their beginning; "
             "give fewer --shots, or a model of a longer context\n",
             visible_text(task.file.place(first->record)), std::ranges::count_if(task.requests, is_cut),
             task.requests.size(), context);
}

// The characters of UTF-8, as Python counts them.
double characters(std::string_view text) {
  return static_cast<double>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Mean mean_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Mean mean{.value = std::accumulate(values.begin(), values.end(), 0.0) / n};
  double squares = 0;
  for (const double value : values) squares += (value - mean.value) * (value - mean.value);
  if (n > 1) mean.error = std::sqrt(squares / (n - 1)) / std::sqrt(n);
  return mean;
}

// Returns 1 if the option of the highest score over its size, and of equal ones the first, is the answer.
template <typename Size>
double is_chosen(const TaskRecord& record, std::span<const Score> scores, const Size& size) {
  size_t best = 0;
  const auto value = [&](size_t i) { return scores[i].log_likelihood / size(i); };
  for (size_t i = 1; i < scores.size(); ++i)
    if (value(i) > value(best)) best = i;
  return best == record.answer ? 1 : 0;
}

TaskResult result_of(const Task& task, const std::vector<Score>& scores) {
  const TaskShape shape = task.file.shape;
  TaskResult result{.name = task.file.name(), .shape = shape, .records = {}};
  result.cut = std::ranges::count(task.requests, true, &ScoreRequest::is_cut);
  std::vector<double> right, right_norm, right_bytes;
  double random = 0, likelihood = 0;
  const auto n = static_cast<double>(task.file.records.size());
  size_t first = 0;
  for (const TaskRecord& record : task.file.records) {
    const std::span<const Score> own = std::span(scores).subspan(first, record.options());
    result.records.push_back(
        {.line = record.line, .answer = record.answer, .scores = {own.begin(), own.end()}});
    if (is_cloze(shape)) {
      right.push_back(own[0].is_greedy ? 1 : 0);
      likelihood += own[0].log_likelihood;
    } else {
      random += 1 / static_cast<double>(own.size());
      right.push_back(is_chosen(record, own, [&](size_t i) {
        return is_core(shape) ? static_cast<double>(task.requests[first + i].scored()) : 1.0;
      }));
      right_norm.push_back(
          is_chosen(record, own, [&](size_t i) { return characters(record.continuation(i)); }));
      right_bytes.push_back(is_chosen(
          record, own, [&](size_t i) { return static_cast<double>(record.continuation(i).size()); }));
    }
    first += record.options();
  }
  result.acc = mean_of(right);
  if (is_cloze(shape)) result.perplexity = std::exp(-likelihood / n);
  if (is_core(shape)) result.centered = (result.acc.value - random / n) / (1 - random / n);
  // Options that stand in the context have one continuation.
  if (is_cloze(shape) || is_core(shape) || shape == TaskShape::kWinoGrande) return result;
  result.acc_norm = mean_of(right_norm);
  result.acc_bytes = mean_of(right_bytes);
  return result;
}

}  // namespace

TaskResults evaluate_tasks(const std::filesystem::path& checkpoint, const TaskOptions& options) {
  std::list<Task> tasks = read_tasks(options);
  ServedModel served(checkpoint, options.model);
  const Transformer& model = served.model();
  const Tokenizer& tokenizer = served.tokenizer();
  const TaskEncoder encoder(tokenizer, TaskEncoder::starts_of(tokenizer, served.path()),
                            model.config().context, model.config().vocab);
  size_t longest = 0, records = 0;
  int64_t all = 0;  // tokens that the model reads if no two requests begin alike
  for (Task& task : tasks) {
    for (size_t i = 0; i < task.file.records.size(); ++i)
      for (ScoreRequest& request : requests_of(task, i, encoder)) {
        request.record = i;
        longest = std::max(longest, request.tokens.size() - 1);
        all += std::ssize(request.tokens) - 1;
        task.requests.push_back(std::move(request));
      }
    warn_of_cuts(task, model.config().context);
    records = std::max(records, task.file.records.size());
  }
  const ScorerShape shape{.slots = std::min(options.batch_size, static_cast<int64_t>(records)),
                          .positions = static_cast<int64_t>(longest)};
  const Scorer::Bytes bytes = Scorer::planned_bytes(model, shape, options.model.device);
  served.make_ready(bytes.host, bytes.device,
                    fmt::format("keys and values of {} records of {} tokens", shape.slots, shape.positions));
  Region alone;
  Scorer scorer(model, served.params(), alone, served.stream(), shape);
  TaskResults results{.checkpoint = served.path(), .tasks = {}};
  int64_t before = 0;  // tokens of the tasks that are done
  for (const Task& task : tasks) {
    int64_t own = 0;
    const auto show = [&](int64_t tokens, int64_t) {
      own = tokens;
      if (options.progress) options.progress(before + own, all);
    };
    results.tasks.push_back(result_of(task, scorer.run(task.requests, show)));
    before += own;
  }
  return results;
}

}  // namespace ingot
