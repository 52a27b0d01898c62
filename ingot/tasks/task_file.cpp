#include "ingot/tasks/task_file.h"

#include <algorithm>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/philox.h"
#include "ingot/formats/jsonl.h"

namespace ingot {
namespace {

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

TaskFile::TaskFile(const std::filesystem::path& path, int64_t most_records) : path(path) {
  constexpr size_t kAheadBytes = size_t{1} << 20;
  JsonlReader reader(path);
  std::optional<TaskShape> found;
  const auto is_full = [&] { return most_records > 0 && std::ssize(records) == most_records; };
  while (!is_full() && reader.fill(kAheadBytes))
    for (std::string_view line; !is_full() && reader.next_line(line);)
      records.push_back(parse_task_record(line, path.native(), reader.line(), found));
  if (records.empty())
    fail(ErrorKind::kData, "{}: has no records; write one JSON object per line (docs/tasks.md)",
         path.native());
  shape = *found;
}

std::string TaskFile::name() const {
  std::filesystem::path name = path.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  return name.stem().string();
}

std::string TaskFile::place(size_t record) const {
  return fmt::format("{}:{}", path.native(), records[record].line);
}

TaskPrompts::TaskPrompts(const TaskFile& task, const ShotOptions& options)
    : task_(task),
      options_(options),
      is_own_file_(options.from.empty() || is_same_file(options.from, task.path)),
      other_(is_own_file_ ? std::nullopt : std::optional<TaskFile>(options.from)),
      pool_(other_ ? *other_ : task) {
  if (pool_.shape != task.shape)
    fail(ErrorKind::kData,
         "{}: has the shape {}, and the examples in {} have the shape {}; take other examples",
         task.path.native(), ingot::name(task.shape), pool_.path.native(), ingot::name(pool_.shape));
  for (size_t i = 0; i < task.records.size() && options.count > 0; ++i) {
    const std::string& subject = task.records[i].subject;  // empty in all shapes but MMLU's
    if (i > 0 && subject == task.records[i - 1].subject) continue;
    const auto there =
        std::ranges::count(pool_.records, subject, &TaskRecord::subject) - (is_own_file_ ? 1 : 0);
    if (there < options.count)
      fail(ErrorKind::kUsage,
           "--shots {}: {} has {} examples for {}{}; give fewer shots, or a larger file with --shots-from",
           options.count, pool_.path.native(), there, task.place(i),
           subject.empty() ? "" : ", of " + subject);
  }
}

std::vector<size_t> TaskPrompts::shots_of(size_t record) const {
  const auto count = static_cast<size_t>(options_.count), n = pool_.records.size();
  std::vector<size_t> shots;
  const auto is_other = [&](size_t i) { return !is_own_file_ || i != record; };
  if (task_.shape == TaskShape::kMmlu) {
    for (size_t i = 0; shots.size() < count; ++i)
      if (is_other(i) && pool_.records[i].subject == task_.records[record].subject) shots.push_back(i);
    return shots;
  }
  const RandomKey key{.seed = options_.seed, .purpose = Purpose::kSample, .step = record};
  for (uint64_t draw = 0; shots.size() < count; ++draw) {
    const size_t i = random_word(key, draw) % n;
    if (is_other(i) && std::ranges::find(shots, i) == shots.end()) shots.push_back(i);
  }
  return shots;
}

std::vector<TaskPrompt> TaskPrompts::of(size_t record) const {
  const TaskRecord& own = task_.records[record];
  const std::string delimiter = is_core(task_.shape) ? options_.delimiter : " ";
  // The answer of an example of LAMBADA begins with a space of its own.
  const std::string between = task_.shape == TaskShape::kLambada ? "  " : delimiter;
  std::string before;
  if (!own.subject.empty())
    before = "The following are multiple choice questions (with answers) about " + own.subject + ".\n\n";
  for (const size_t i : shots_of(record)) {
    const TaskRecord& shot = pool_.records[i];
    before += shot.context(shot.answer) + between + shot.continuation(shot.answer) + "\n\n";
  }
  std::vector<TaskPrompt> prompts;
  for (size_t i = 0; i < own.options(); ++i)
    prompts.push_back({before + own.context(i), delimiter, own.continuation(i)});
  return prompts;
}

}  // namespace ingot
