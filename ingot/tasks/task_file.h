// TaskFile reads the records of a task, and TaskPrompts makes the texts whose likelihood is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ingot/tasks/task_record.h"

namespace ingot {

// A file of JSON Lines, also compressed with gzip or zstd. Its records have one shape.
struct TaskFile {
  std::filesystem::path path;
  TaskShape shape = TaskShape::kLambada;
  std::vector<TaskRecord> records;  // at least one

  // Reads the file, or its first most_records; 0 means all. kData errors name it and the line.
  explicit TaskFile(const std::filesystem::path& path, int64_t most_records = 0);

  std::string name() const;                // the file's name without its extension
  std::string place(size_t record) const;  // "FILE:LINE", for errors
};

struct ShotOptions {
  int64_t count = 0;                // K: solved examples before each question
  std::filesystem::path from = {};  // the file of the examples; empty: the task's own file
  uint64_t seed = 1234;
  std::string delimiter = " ";  // between context and continuation of CORE's shapes
};

// An option of a record. The context begins with the examples.
struct TaskPrompt {
  std::string context, delimiter, continuation;

  std::string text() const { return context + delimiter + continuation; }
};

class TaskPrompts {
 public:
  // Borrows the task. Reads the file of the examples. kUsage error if there are too few of them, and kData
  // error if they have another shape.
  TaskPrompts(const TaskFile& task, const ShotOptions& options);
  TaskPrompts(const TaskPrompts&) = delete;
  TaskPrompts& operator=(const TaskPrompts&) = delete;

  // Returns the prompts of the record's options, in order. The examples are K different ones of the file,
  // drawn by the seed and the record's index, without the record itself; those of MMLU are the first K of its
  // subject.
  std::vector<TaskPrompt> of(size_t record) const;

 private:
  std::vector<size_t> shots_of(size_t record) const;

  const TaskFile& task_;
  ShotOptions options_;
  bool is_own_file_;
  std::optional<TaskFile> other_;
  const TaskFile& pool_;
};

}  // namespace ingot
