// Tests of --vary's forms.
#include "ingot/sweep/vary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  return usage_error([&] { parse_vary(text); });
}

TEST(Vary, ListsStandAsTheConfigurationWritesThem) {
  EXPECT_THAT(parse_vary("optimizer.lr=1e-3,0.01,1.0e-4").values, ElementsAre("0.0001", "0.001", "0.01"));
  EXPECT_THAT(parse_vary("model.norm=rmsnorm,layernorm").values, ElementsAre("rmsnorm", "layernorm"));
  EXPECT_THAT(parse_vary("model.tied=true,false").values, ElementsAre("true", "false"));
  EXPECT_THAT(parse_vary("train.batch_size=16").values, ElementsAre("16"));
  EXPECT_THAT(
      parse_vary("schedule.phases=[\"2 linear to 1\", \"rest cosine to 0.1\"],[\"rest constant\"]").values,
      ElementsAre("[\"2 linear to 1\", \"rest cosine to 0.1\"]", "[\"rest constant\"]"));
}

TEST(Vary, GroupsOfTheOptimizerAreListsOfTables) {
  const Vary groups =
      parse_vary(R"(optimizer.group=[],[{roles=["matrix"],kind="muon"}],[{kind="muon", roles=["matrix"]}])");
  const std::string muon = R"([{roles = ["matrix"], kind = "muon"}])";
  EXPECT_THAT(groups.values, ElementsAre("[]", muon));
  EXPECT_THAT(parse_vary("optimizer.group=" + muon).values, ElementsAre(muon));
  EXPECT_THAT(refusal_of("optimizer.group=[{kinds=\"muon\"}]"),
              HasSubstr("did you mean optimizer.group.kind?"));
  EXPECT_THAT(refusal_of("optimizer.groups=[]"), HasSubstr("unknown key"));
}

TEST(Vary, EqualValuesAreTakenOnce) {
  EXPECT_THAT(parse_vary("optimizer.lr=1e-3,0.001,1e-2").values, ElementsAre("0.001", "0.01"));
}

TEST(Vary, RangesHaveTheirEndsAndEqualFactorsOrDistances) {
  const Vary log = parse_vary("optimizer.lr=1e-4..1e-2:log:5");
  EXPECT_TRUE(log.is_log);
  EXPECT_THAT(log.values, ElementsAre("0.0001", "0.0003162", "0.001", "0.003162", "0.01"));
  const Vary linear = parse_vary("optimizer.beta2=0.9..0.98:linear:3");
  EXPECT_FALSE(linear.is_log);
  EXPECT_THAT(linear.values, ElementsAre("0.9", "0.94", "0.98"));
}

TEST(Vary, RangesOfWholeNumbersAreRounded) {
  EXPECT_THAT(parse_vary("train.batch_size=4..64:log:5").values, ElementsAre("4", "8", "16", "32", "64"));
  EXPECT_THAT(parse_vary("model.layers=1..3:log:5").values, ElementsAre("1", "2", "3"));
}

TEST(Vary, SpansFactorsFromALogRangeOrAWideList) {
  EXPECT_TRUE(parse_vary("optimizer.lr=1e-3..2e-3:log:2").spans_factors());
  EXPECT_TRUE(parse_vary("optimizer.lr=1e-3,8e-3").spans_factors());
  EXPECT_FALSE(parse_vary("optimizer.lr=1e-3,7e-3").spans_factors());
  EXPECT_FALSE(parse_vary("optimizer.weight_decay=0,0.1").spans_factors());
  EXPECT_FALSE(parse_vary("model.norm=rmsnorm,layernorm").spans_factors());
}

TEST(Vary, RefusesWhatItDoesNotUnderstand) {
  const std::string cases[][2] = {
      {"", "wanted KEY=a,b,c"},
      {"optimizer.lr", "got \"optimizer.lr\""},
      {"=1,2", "got \"=1,2\""},
      {"optimizer.rl=1,2", "optimizer.rl: unknown key; did you mean optimizer.lr?"},
      {"optimizer.lr=", "a value is empty"},
      {"optimizer.lr=1e-3,,1e-2", "a value is empty"},
      {"optimizer.lr=1e-3,many", "many"},
      {"model.norm=rmsnorms", "rmsnorm"},
      {"optimizer.lr=1e-3..1e-2", "names its spacing and its number of values"},
      {"optimizer.lr=1e-3..1e-2:log", "names its spacing and its number of values"},
      {"optimizer.lr=..", "names its spacing and its number of values"},
      {"optimizer.lr=1e-3..:", "names its spacing and its number of values"},
      {"optimizer.lr=1e-3..x:log:3", "the ends of a range are numbers"},
      {"optimizer.lr=..1e-2:log:3", "the ends of a range are numbers"},
      {"optimizer.lr=1e-3..inf:log:3", "the ends of a range are numbers"},
      {"optimizer.lr=1e-2..1e-3:log:3", "the range's low end must be below"},
      {"optimizer.lr=1e-3..1e-3:log:3", "the range's low end must be below"},
      {"optimizer.lr=0..1e-3:log:3", "begins above 0"},
      {"optimizer.lr=1e-3..1e-2:lo:3", "did you mean log?"},
      {"optimizer.lr=1e-3..1e-2::3", "the spacing is log or linear"},
      {"optimizer.lr=1e-3..1e-2:log:1", "a whole number from 2 to 1000"},
      {"optimizer.lr=1e-3..1e-2:log:2.5", "a whole number from 2 to 1000"},
      {"optimizer.lr=1e-3..1e-2:log:1e9", "a whole number from 2 to 1000"},
      {"optimizer.lr=1e-3..1e-2:log:3:4", "a whole number from 2 to 1000"},
      {"optimizer.lr=1e-3..1e-2:log:", "a whole number from 2 to 1000"},
  };
  for (const auto& [text, words] : cases) {
    const std::string refusal = refusal_of(text);
    EXPECT_THAT(refusal, AllOf(HasSubstr("--vary"), HasSubstr(words))) << text;
  }
}

TEST(Vary, MergingAddsWhatIsMissingInOrder) {
  Vary vary = parse_vary("optimizer.lr=1e-3,1e-2");
  merge(vary, parse_vary("optimizer.lr=1e-4,1e-2,3e-3"));
  EXPECT_THAT(vary.values, ElementsAre("0.0001", "0.001", "0.003", "0.01"));
  Vary texts = parse_vary("model.norm=rmsnorm");
  merge(texts, parse_vary("model.norm=layernorm,rmsnorm"));
  EXPECT_THAT(texts.values, ElementsAre("rmsnorm", "layernorm"));
}

}  // namespace
}  // namespace ingot
