#include "ingot/data/builtin_bible.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/core/process/child_output.h"
#include "ingot/data/builtin_corpus.h"
#include "tests/reference/error_of.h"

namespace ingot::test {
namespace {
using ::testing::HasSubstr;

// Returns what `bible` would print for a Bible of `books` books, each with two chapters of one verse.
std::string printed_bible(int books) {
  std::string text;
  for (int i = 1; i <= books; ++i)
    text += fmt::format("{}Bk{}1:1 First verse: of {}.\n{}Bk{}2:1 Second (1).\n", i % 3,
                        std::string(1, static_cast<char>('a' + i % 26)), i, i % 3,
                        std::string(1, static_cast<char>('a' + i % 26)));
  return text;
}

TEST(Bible, VersesBecomeLinesUnderTheHeadingsOfTheirChapters) {
  const BibleCorpus corpus = collect_bible(printed_bible(66));
  EXPECT_EQ(corpus.verses, 132);
  ASSERT_EQ(corpus.train.size(), 56u);
  ASSERT_EQ(corpus.val.size(), 10u);
  EXPECT_EQ(corpus.train[0].name, "Genesis");
  EXPECT_EQ(corpus.train[0].text, "Genesis 1\n\nFirst verse: of 1.\n\nGenesis 2\n\nSecond (1).\n");
  EXPECT_EQ(corpus.val[0].name, "Joshua");
  EXPECT_THAT(corpus.describe(), HasSubstr("66 books, 132 verses of the King James Bible"));
}

TEST(Bible, OtherTextIsADataErrorWithTheFix) {
  EXPECT_THAT(data_error([] { collect_bible(printed_bible(65)); }),
              HasSubstr("it has 65 books, 66 were expected"));
  EXPECT_THAT(data_error([] { collect_bible(printed_bible(67)); }), HasSubstr("more than 66 books"));
  EXPECT_THAT(data_error([] { collect_bible("usage: bible\n"); }),
              HasSubstr("line 1 is no verse: 'usage: bible'"));
  EXPECT_THAT(data_error([] { collect_bible(""); }), HasSubstr("apt-get install bible-kjv"));
  EXPECT_THAT(data_error([] { load_bible("/nonexistent/bible"); }), HasSubstr("apt-get install bible-kjv"));
  EXPECT_THAT(data_error([] { load_bible("true"); }), HasSubstr("it has 0 books"));
}

TEST(Bible, OfThisMachineIsComplete) {
  if (!program_output({"bible", "gen1:1"}, 1 << 20)) GTEST_SKIP() << "the package bible-kjv is not installed";
  const BibleCorpus corpus = load_bible();
  std::printf("%s\n", corpus.describe().c_str());
  EXPECT_EQ(corpus.verses, 31'102);
  EXPECT_THAT(std::string(corpus.train[0].text.substr(0, 70)),
              HasSubstr("Genesis 1\n\nIn the beginning God created the heaven and the earth.\n"));
  const auto bytes = static_cast<double>(corpus.train.size_bytes() + corpus.val.size_bytes());
  EXPECT_NEAR(static_cast<double>(corpus.val.size_bytes()) / bytes, 0.09, 0.01);
  const std::vector<std::string> spec = {"builtin:bible"};
  EXPECT_EQ(load_split(spec, 0.1).val.content_hash(), corpus.val.content_hash());
  EXPECT_EQ(load_documents(spec).size(), 66u);
  EXPECT_EQ(builtin_documents("builtin:bible:val").content_hash(), corpus.val.content_hash());
}

TEST(ProgramOutput, IsWhatTheProgramWritesWithoutAShell) {
  EXPECT_EQ(program_output({"echo", "$HOME", "a b"}, 100), "$HOME a b\n");
  EXPECT_EQ(program_output({"pwd"}, 100), "/\n");
  EXPECT_EQ(program_output({"cat"}, 100), "");
  EXPECT_FALSE(program_output({"false"}, 100));
  EXPECT_FALSE(program_output({"/nonexistent"}, 100));
  EXPECT_FALSE(program_output({"yes"}, 1000));
}

}  // namespace
}  // namespace ingot::test
