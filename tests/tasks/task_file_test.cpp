// Files of tasks, the examples before a question, and the tokens that are scored.
#include "ingot/tasks/task_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "ingot/core/file.h"
#include "ingot/tasks/task_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

using testing::HasSubstr;

class TaskFileTest : public FolderTest {
 protected:
  std::filesystem::path written(const std::string& name, const std::string& text) const {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  // Writes n records of OpenBookQA, "q0" to "q9" ..., whose right answer is "yes".
  std::filesystem::path questions(const std::string& name, int n) const {
    std::string text;
    for (int i = 0; i < n; ++i)
      text += fmt::format(
          R"({{"question_stem": "q{}", "choices": {{"text": ["no", "yes"], "label": ["A", "B"]}}, "answerKey": "B"}})"
          "\n",
          i);
    return written(name, text);
  }
};

TEST_F(TaskFileTest, ReadsTheRecordsAndNamesFileAndLineOfAFault) {
  const TaskFile file(written("a.b.jsonl", "{\"text\": \"one two\"}\n\n{\"text\": \"three four\"}"));
  EXPECT_EQ(file.name(), "a.b");
  ASSERT_EQ(file.records.size(), 2u);
  EXPECT_EQ(file.place(1), (folder_ / "a.b.jsonl").string() + ":3");
  EXPECT_THAT(data_error([&] { TaskFile(written("empty.jsonl", "\n")); }),
              HasSubstr("empty.jsonl: has no records"));
  EXPECT_THAT(
      data_error([&] {
        TaskFile(written("mixed.jsonl", "{\"text\": \"one two\"}\n{\"query\": \"\", \"choices\": []}"));
      }),
      HasSubstr("mixed.jsonl:2: has the shape multiple_choice"));
  EXPECT_THAT(data_error([&] { TaskFile(folder_ / "none.jsonl"); }), HasSubstr("none.jsonl"));
}

TEST_F(TaskFileTest, DrawsOtherRecordsAsExamplesByTheSeed) {
  const TaskFile task(questions("task.jsonl", 5));
  EXPECT_EQ(TaskPrompts(task, {}).of(2)[1].text(), "q2 yes");
  const TaskPrompts all(task, {.count = 4});
  for (size_t i = 0; i < 5; ++i) {
    const std::string text = all.of(i)[0].text();
    for (size_t other = 0; other < 5; ++other)
      EXPECT_THAT(text, HasSubstr(fmt::format("q{} {}", other, other == i ? "no" : "yes\n\n")));
  }
  const TaskPrompts two(task, {.count = 2}), same(task, {.count = 2, .from = task.path}),
      seeded(task, {.count = 2, .seed = 5});
  int changed = 0;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(two.of(i)[0].text(), same.of(i)[0].text());
    changed += two.of(i)[0].text() != seeded.of(i)[0].text();
  }
  EXPECT_GT(changed, 0);
  const TaskPrompts other(task, {.count = 1, .from = questions("other.jsonl", 1)});
  EXPECT_EQ(other.of(3)[0].text(), "q0 yes\n\nq3 no");
  EXPECT_THAT(usage_error([&] { TaskPrompts(task, {.count = 5}); }),
              HasSubstr("task.jsonl has 4 examples for " + task.place(0) + "; give fewer shots"));
  EXPECT_THAT(usage_error([&] { TaskPrompts(task, {.count = 2, .from = folder_ / "other.jsonl"}); }),
              HasSubstr("other.jsonl has 1 examples"));
  EXPECT_THAT(data_error([&] {
                TaskPrompts(task, {.count = 1, .from = written("words.jsonl", "{\"text\": \"a b\"}")});
              }),
              HasSubstr("the examples in " + (folder_ / "words.jsonl").string() + " have the shape lambada"));
}

TEST_F(TaskFileTest, ExamplesOfMmluAreTheFirstOfTheSubject) {
  std::string text;
  for (const char* subject : {"x", "y_z", "x", "y_z", "x"})
    text += fmt::format(R"({{"question": "{}{}", "subject": "{}", "choices": ["a", "b"], "answer": 1}})"
                        "\n",
                        subject, text.size(), subject);
  const TaskFile task(written("mmlu.jsonl", text));
  const std::string first = TaskPrompts(task, {.count = 1}).of(3)[0].text();
  EXPECT_THAT(first, testing::StartsWith(
                         "The following are multiple choice questions (with answers) about y z.\n\n"));
  EXPECT_THAT(first, HasSubstr(task.records[1].contexts[0] + " B\n\n" + task.records[3].contexts[0] + " A"));
  EXPECT_THAT(usage_error([&] { TaskPrompts(task, {.count = 2}); }),
              HasSubstr("has 1 examples for " + task.place(1) + ", of y z"));
}

TEST_F(TaskFileTest, CoreHasItsDelimiterAndLambadaTwoSpaces) {
  const TaskFile core(written("core.jsonl",
                              "{\"context\": \"a \", \"continuation\": \"b\"}\n"
                              "{\"context\": \"c\", \"continuation\": \"d\"}"));
  EXPECT_EQ(TaskPrompts(core, {.count = 1, .delimiter = "\nAnswer: "}).of(1)[0].text(),
            "a\nAnswer: b\n\nc\nAnswer: d");
  const TaskFile words(written("words.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"c d\"}"));
  EXPECT_EQ(TaskPrompts(words, {.count = 1, .delimiter = "|"}).of(1)[0].text(), "a  b\n\nc d");
}

using Ids = std::vector<int32_t>;

TEST_F(TaskFileTest, TokensOfAPairAreSplitWhereTheContextEnds) {
  const auto bytes = make_byte_tokenizer();
  const TaskEncoder encoder(*bytes, {}, 6, 256);
  const ScoreRequest request = encoder.request({"ab\u00a0", " ", "c"});
  EXPECT_EQ(request.tokens, (Ids{'a', 'b', 0xc2, 0xa0, ' ', 'c'}));
  EXPECT_EQ(request.first, 2u) << "white space moves to the continuation";
  EXPECT_FALSE(request.is_cut);
  const ScoreRequest cut = encoder.request({"0123456", " ", "ab"});
  EXPECT_EQ(cut.tokens, (Ids{'3', '4', '5', '6', ' ', 'a', 'b'})) << "the last token is not read";
  EXPECT_EQ(cut.first, 4u);
  EXPECT_TRUE(cut.is_cut);
  EXPECT_EQ(encoder.request({"0", " ", "abcde"}).first, 1u);
  EXPECT_THAT(data_error([&] {
                encoder.request({"0", " ", "abcdef"});
              }),
              HasSubstr("the answer has 7 tokens"));
  EXPECT_THAT(data_error([&] { encoder.request({" ", " ", "ab"}); }), HasSubstr("the context is empty"));
  EXPECT_THAT(data_error([&] {
                TaskEncoder(*bytes, {}, 6, 99).request({"0", " ", "z"});
              }),
              HasSubstr("the token 122"));

  const TaskEncoder started(*bytes, {.every = 1, .empty = 1}, 6, 256);
  EXPECT_EQ(started.request({"ab", " ", "c"}).tokens, (Ids{1, 'a', 'b', ' ', 'c'}));
  EXPECT_EQ(started.request({"ab", " ", "c"}).first, 3u);
  EXPECT_EQ(started
                .request({"\x01"
                          "ab",
                          " ", "c"})
                .tokens,
            (Ids{1, 'a', 'b', ' ', 'c'}))
      << "a text that begins with the start has it once";
  EXPECT_THAT(data_error([&] {
                started.request({"", "", "\x01"});
              }),
              HasSubstr("leaves no token for the answer"));
  EXPECT_EQ(started.request({"", "", "cd"}).tokens, (Ids{1, 'c', 'd'}));
  EXPECT_EQ(started
                .request({"", "",
                          "\x01"
                          "d"})
                .tokens,
            (Ids{1, 'd'}));
}

TEST_F(TaskFileTest, TokensOfCoreAreThoseThatDifferOrAreShared) {
  const auto bytes = make_byte_tokenizer();
  const TaskEncoder encoder(*bytes, {.every = {}, .empty = 1}, 30, 256);
  const std::vector<TaskPrompt> choices{{"ab", " ", "cd"}, {"ab", " ", "cefg"}};
  std::vector<ScoreRequest> requests = encoder.core_requests(TaskShape::kCoreChoice, choices);
  EXPECT_EQ(requests[1].tokens, (Ids{1, 'a', 'b', ' ', 'c', 'e', 'f', 'g'}));
  EXPECT_EQ(requests[0].first, 5u);
  EXPECT_EQ(requests[1].first, 5u);
  const std::vector<TaskPrompt> begun{{"ab", " ", "cd"}, {"ab", " ", "cde"}};
  EXPECT_EQ(encoder.core_requests(TaskShape::kCoreChoice, begun)[0].scored(), 1);
  const std::vector<TaskPrompt> schema{{"the x", " ", "z"}, {"y", " ", "z"}};
  requests = encoder.core_requests(TaskShape::kCoreSchema, schema);
  EXPECT_EQ(requests[0].scored(), 2);
  EXPECT_EQ(requests[1].scored(), 2);
  const std::vector<TaskPrompt> text{{"ab", "\nA: ", "cd"}};
  requests = encoder.core_requests(TaskShape::kCoreText, text);
  EXPECT_EQ(requests[0].first, 6u) << "behind the colon";
  EXPECT_EQ(requests[0].scored(), 3);
}

TEST_F(TaskFileTest, TheStartOfTextIsThatOfThePostProcessor) {
  const auto bytes = make_byte_tokenizer();
  const auto starts_with = [&](const std::string& processor) {
    return TaskEncoder::starts_of(*bytes, "{\"post_processor\": " + processor + "}");
  };
  EXPECT_EQ(starts_with("null").every, std::nullopt);
  EXPECT_EQ(starts_with("null").empty, std::nullopt);
  const std::string single =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}})";
  EXPECT_EQ(starts_with(single).every, 7u);
  EXPECT_EQ(
      starts_with(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + single + "]}").empty,
      7u);
}

}  // namespace
}  // namespace ingot
