#include "ingot/tasks/task_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ingot/core/error.h"

namespace ingot {
namespace {

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

}  // namespace

TaskSet::TaskSet(std::span<const std::string> files, const ShotOptions& shots, int64_t most_records) {
  for (const std::string& path : files) {
    tasks_.emplace_back(path, shots, most_records);
    const std::string name = tasks_.back().file.name();
    for (const Task& other : tasks_)
      if (&other != &tasks_.back() && other.file.name() == name)
        fail(ErrorKind::kUsage, "{} and {} have the same name, and results are by name; rename one of them",
             other.file.path.native(), path);
  }
}

std::vector<ScoreRequest> TaskSet::Task::requests_of(size_t record, const TaskEncoder& encoder) const {
  const std::vector<TaskPrompt> texts = prompts.of(record);
  try {
    if (is_core(file.shape)) return encoder.core_requests(file.shape, texts);
    std::vector<ScoreRequest> made;
    for (const TaskPrompt& prompt : texts) made.push_back(encoder.request(prompt));
    return made;
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", file.place(record), error.what());
  }
}

TaskResult TaskSet::Task::result(const std::vector<Score>& scores) const {
  const TaskShape shape = file.shape;
  TaskResult result{.name = file.name(), .shape = shape, .records = {}};
  result.cut = std::ranges::count(requests, true, &ScoreRequest::is_cut);
  std::vector<double> right, right_norm, right_bytes;
  double random = 0, likelihood = 0;
  const auto n = static_cast<double>(file.records.size());
  size_t first = 0;
  for (const TaskRecord& record : file.records) {
    const std::span<const Score> own = std::span(scores).subspan(first, record.options());
    result.records.push_back(
        {.line = record.line, .answer = record.answer, .scores = {own.begin(), own.end()}});
    if (is_cloze(shape)) {
      right.push_back(own[0].is_greedy ? 1 : 0);
      likelihood += own[0].log_likelihood;
    } else {
      random += 1 / static_cast<double>(own.size());
      right.push_back(is_chosen(record, own, [&](size_t i) {
        return is_core(shape) ? static_cast<double>(requests[first + i].scored()) : 1.0;
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

void TaskSet::encode(const TaskEncoder& encoder, const std::function<void(const std::string&)>& warn) {
  for (Task& task : tasks_) {
    for (size_t i = 0; i < task.file.records.size(); ++i)
      for (ScoreRequest& request : task.requests_of(i, encoder)) {
        request.record = i;
        task.requests.push_back(std::move(request));
      }
    const auto first = std::ranges::find(task.requests, true, &ScoreRequest::is_cut);
    if (first == task.requests.end()) continue;
    warn(fmt::format(
        "{}: {} of {} prompts, this one the first, are longer than the model's context of {} tokens and lose "
        "their beginning; give fewer examples with each, or take a model of a longer context",
        task.file.place(first->record), std::ranges::count(task.requests, true, &ScoreRequest::is_cut),
        task.requests.size(), encoder.context()));
  }
}

InferShape TaskSet::shape(int64_t batch_size, Device device) const {
  size_t longest = 0, records = 0;
  for (const Task& task : tasks_) {
    records = std::max(records, task.file.records.size());
    for (const ScoreRequest& request : task.requests) longest = std::max(longest, request.tokens.size() - 1);
  }
  return scoring_shape(std::min(batch_size, static_cast<int64_t>(records)), static_cast<int64_t>(longest),
                       device);
}

std::vector<TaskResult> TaskSet::score(Scorer& scorer, const Scorer::Progress& progress) const {
  int64_t all = 0, before = 0;  // before: tokens of the tasks that are done
  for (const Task& task : tasks_)
    for (const ScoreRequest& request : task.requests) all += std::ssize(request.tokens) - 1;
  std::vector<TaskResult> results;
  for (const Task& task : tasks_) {
    int64_t own = 0;
    const std::optional<std::vector<Score>> scores = scorer.run(task.requests, [&](int64_t tokens, int64_t) {
      own = tokens;
      return !progress || progress(before + own, all);
    });
    if (!scores) return {};
    results.push_back(task.result(*scores));
    before += own;
  }
  return results;
}

}  // namespace ingot
