// Every shape of a record becomes the prompt of lm-evaluation-harness or nanochat; a fault names the line.
#include "ingot/tasks/task_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TaskRecord parsed(const std::string& line, TaskShape want) {
  std::optional<TaskShape> shape;
  TaskRecord record = parse_task_record(line, "task.jsonl", 7, shape);
  EXPECT_EQ(shape, want) << line;
  EXPECT_EQ(record.line, 7);
  return record;
}

void expect_record(const std::string& line, TaskShape shape, const std::vector<std::string>& contexts,
                   const std::vector<std::string>& continuations, size_t answer) {
  const TaskRecord record = parsed(line, shape);
  EXPECT_EQ(record.contexts, contexts) << line;
  EXPECT_EQ(record.continuations, continuations) << line;
  EXPECT_EQ(record.answer, answer) << line;
}

void expect_refused(const std::string& line, const std::string& why,
                    std::optional<TaskShape> shape = std::nullopt) {
  EXPECT_THAT(data_error([&] { parse_task_record(line, "task.jsonl", 7, shape); }),
              testing::AllOf(StartsWith("task.jsonl:7: "), HasSubstr(why)));
}

TEST(TaskRecord, HasThePromptOfItsShape) {
  expect_record(R"({"ind": 4, "activity_label": "Roof", "ctx_a": "A man [header] sits.", "ctx_b": "THE man",
                    "ctx": "A man sits. THE man", "endings": ["goes  up.", " [title] Rest [x].", "c", "d"], "label": "2"})",
                TaskShape::kHellaSwag, {"Roof: A man sits. The man"}, {"goes up.", " Rest .", "c", "d"}, 2);
  expect_record(R"({"ctx": " Then [a\nb] [c]he", "endings": ["x", "y"], "label": 0})", TaskShape::kHellaSwag,
                {"Then [a\nb] he"}, {"x", "y"}, 0);
  expect_record(R"({"question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]},
                    "answerKey": "3"})",
                TaskShape::kArc, {"Question: Why?\nAnswer:"}, {"a", "b", "c"}, 2);
  expect_record(R"({"id": "q", "question": {"stem": "Why?", "choices": [{"text": "a", "label": "A"},
                    {"text": "b", "label": "B"}]}, "answerKey": "B"})",
                TaskShape::kArc, {"Question: Why?\nAnswer:"}, {"a", "b"}, 1);
  expect_record(R"({"question_stem": "The sun", "choices": {"text": ["a", "b"], "label": ["A", "B"]},
                    "answerKey": " A"})",
                TaskShape::kOpenBookQa, {"The sun"}, {"a", "b"}, 0);
  expect_record(R"({"goal": "Open it", "sol1": "pull", "sol2": "push", "label": 1})", TaskShape::kPiqa,
                {"Question: Open it\nAnswer:"}, {"pull", "push"}, 1);
  expect_record(
      R"({"sentence": "Ann thanked Bob as _ helped.", "option1": "Ann", "option2": "Bob", "answer": "2"})",
      TaskShape::kWinoGrande, {"Ann thanked Bob as Ann", "Ann thanked Bob as Bob"}, {"helped."}, 1);
  expect_record(R"({"passage": "P.", "question": "is it so", "label": 1})", TaskShape::kBoolQ,
                {"P.\nQuestion: is it so?\nAnswer:"}, {"no", "yes"}, 1);
  expect_record(R"({"passage": "P.", "question": "is it so", "answer": false})", TaskShape::kBoolQ,
                {"P.\nQuestion: is it so?\nAnswer:"}, {"no", "yes"}, 0);
  expect_record(R"({"domain": "d", "text": "he said \"no\" to her"})", TaskShape::kLambada,
                {"he said \"no\" to"}, {"her"}, 0);
  expect_record(R"({"question": " What? ", "subject": "high_school_physics", "choices": ["w", "x", "y", "z"],
                    "answer": 3})",
                TaskShape::kMmlu, {"What?\nA. w\nB. x\nC. y\nD. z\nAnswer:"}, {"A", "B", "C", "D"}, 3);
  EXPECT_EQ(parsed(R"({"question": "q", "subject": "world_religions", "choices": ["w", "x"], "answer": "B"})",
                   TaskShape::kMmlu)
                .subject,
            "world religions");
}

TEST(TaskRecord, HasTheTextsOfCore) {
  expect_record(R"({"query": "Question: q\nAnswer:", "choices": ["a", "b"], "gold": 1})",
                TaskShape::kCoreChoice, {"Question: q\nAnswer:"}, {"a", "b"}, 1);
  expect_record(R"({"context_options": ["The cup", "The box"], "continuation": "is big.", "gold": 0})",
                TaskShape::kCoreSchema, {"The cup", "The box"}, {"is big."}, 0);
  expect_record("{\"context\": \" 1 2 3\\u00a0\\n\", \"continuation\": \"4\"}", TaskShape::kCoreText,
                {"1 2 3"}, {"4"}, 0);
}

TEST(TaskRecord, RefusesWhatItCannotScore) {
  expect_refused("[1]", "holds a JSON array, expected an object; write one JSON object per line");
  expect_refused("{\"text\": \"a", "is not valid JSON");
  expect_refused(std::string(80, '[') + std::string(80, ']'), "nested deeper than 64");
  expect_refused(
      R"({"prompt": "a", "answer": "b"})",
      "unknown shape of a task, with the fields prompt, answer; docs/tasks.md has the known shapes");
  expect_refused(R"({"text": "a b"})", "has the shape lambada, and the records before it have the shape piqa",
                 TaskShape::kPiqa);
  for (const std::string label : {"", ", \"label\": \"\"", ", \"label\": -1", ", \"label\": null"})
    expect_refused(R"({"goal": "g", "sol1": "a", "sol2": "b")" + label + "}", "no answer: \"label\" is ");
  expect_refused(R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})", "\"label\" is 2, expected 0 .. 1");
  expect_refused(R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0.5})",
                 "\"label\" is 0.5, expected 0 .. 1");
  expect_refused(R"({"sentence": "a _ b", "option1": "x", "option2": "y", "answer": "0"})",
                 "\"answer\" is \"0\", expected 1 .. 2");
  expect_refused(R"({"sentence": "a b", "option1": "x", "option2": "y", "answer": "1"})", "has no _");
  expect_refused(R"({"sentence": "a _", "option1": "x", "option2": "y", "answer": "1"})", "ends at its _");
  expect_refused(R"({"goal": "g", "sol1": "a", "sol2": " ", "label": 0})", "\"sol2\" is empty");
  expect_refused(R"({"goal": "g", "sol1": "a", "label": 0})", "\"sol2\" is missing; correct the record");
  expect_refused(R"({"ctx": "c", "endings": ["a", "[x]"], "label": 0})",
                 "\"endings[1]\" is empty without its brackets");
  expect_refused(R"({"query": "q", "choices": ["a", ""], "gold": 0})", "\"choices[1]\" is empty");
  expect_refused(R"({"query": "q", "choices": ["a"], "gold": 0})",
                 "\"choices\" must be a list of two texts or more, got a list of 1; correct");
  expect_refused(R"({"query": "q", "choices": "a", "gold": 0})", "two texts or more, got string; correct");
  expect_refused(R"({"goal": "g", "sol1": "a", "sol2": 5, "label": 0})",
                 "\"sol2\" must be a text, got number");
  expect_refused(R"({"question": "q", "choices": {"text": ["a", "b"]}, "answerKey": "A"})",
                 "\"choices.label\" is missing");
  expect_refused(
      R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"})",
      "\"answerKey\" is C, which no choice has");
  expect_refused(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"})",
                 "\"choices.label\" must be a list");
  expect_refused(R"({"question": "q", "choices": ["a", "b"], "answer": 4})",
                 "\"answer\" is 4, expected 0 .. 1");
  expect_refused(R"({"text": "word"})", "has one word");
  expect_refused(R"({"text": "two words "})", "ends with a space");
}

}  // namespace
}  // namespace ingot
