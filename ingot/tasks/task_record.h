// Records of tasks: questions with several answers, and texts whose end is predicted. The shape of a record
// is recognised by its fields, which are those of the data sets on the Hugging Face Hub, and of DCLM's CORE
// as nanochat has it. The prompts are those of EleutherAI's lm-evaluation-harness 0.4.13.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

enum class TaskShape {
  kHellaSwag,
  kArc,
  kOpenBookQa,
  kPiqa,
  kWinoGrande,
  kBoolQ,
  kLambada,
  kMmlu,
  kCoreChoice,
  kCoreSchema,
  kCoreText,
};
const char* name(TaskShape shape);
// True for the shapes of CORE, which are scored as nanochat does.
bool is_core(TaskShape shape);
// True if there is nothing to choose from: the text is right if every token of it is the likeliest one.
bool is_cloze(TaskShape shape);

// A record as its prompt has it. Option i is the context i, or the only one, followed by the continuation i,
// or the only one. No text is empty, except contexts of CORE.
struct TaskRecord {
  std::vector<std::string> contexts = {}, continuations = {};
  size_t answer = 0;         // below options()
  std::string subject = {};  // MMLU's; empty if there is none
  int64_t line = 0;

  size_t options() const { return std::max(contexts.size(), continuations.size()); }
  const std::string& context(size_t i) const { return contexts[contexts.size() > 1 ? i : 0]; }
  const std::string& continuation(size_t i) const { return continuations[continuations.size() > 1 ? i : 0]; }
};

// Returns the record in a line of JSON. Sets the shape to that of its fields if it has none yet; otherwise
// the record must have this shape. kData errors begin with FILE:LINE: no JSON object, no known shape, another
// shape, a missing or empty text, no answer, or an answer out of range.
TaskRecord parse_task_record(std::string_view text, std::string_view file, int64_t line,
                             std::optional<TaskShape>& shape);

// Return the text without white space at its end, and at both ends, as Python's rstrip() and strip().
std::string_view without_trailing_space(std::string_view text);
std::string_view without_outer_space(std::string_view text);

}  // namespace ingot
