// llama.cpp joins neighbours by the scores of tokens instead of by merges: which tokenizers that suits, and
// their scores.
#include "ingot/checkpoint/gguf_sentencepiece.h"

#include <gmock/gmock.h>

#include "tests/reference/error_of.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kFirst = 256;  // id of "\u2581", after the tokens of the bytes

// Tokens: the mark of spaces, a, b, c, ab, bc, abc, with the merges that form them.
TokenizerSpec llama2() {
  TokenizerSpec spec;
  spec.kind = TokenizerSpec::Kind::kPipeline;
  for (int b = 0; b < 256; ++b) spec.tokens.push_back(fmt::format("<0x{:02X}>", b));
  for (const char* token : {"\u2581", "a", "b", "c", "ab", "bc", "abc"}) spec.tokens.emplace_back(token);
  const auto id = [](uint32_t i) { return kFirst + i; };
  spec.merges = {{id(1), id(2), id(4)}, {id(2), id(3), id(5)}, {id(1), id(5), id(6)}, {id(4), id(3), id(6)}};
  spec.pipeline.has_byte_fallback = true;
  spec.pipeline.normalizers.resize(2);
  spec.pipeline.normalizers[0].type = NormalizerStep::Type::kPrepend;
  spec.pipeline.normalizers[1].type = NormalizerStep::Type::kReplace;
  spec.pipeline.normalizers[1].pattern = " ";
  for (NormalizerStep& step : spec.pipeline.normalizers) step.content = "\u2581";
  return spec;
}

std::string refusal(const TokenizerSpec& spec) {
  return data_error([&] { sentencepiece_of(spec); });
}

TEST(GgufSentencepiece, TokensOfEarlierMergesHaveHigherScores) {
  ASSERT_TRUE(is_sentencepiece_like(llama2()));
  const SentencePiece piece = sentencepiece_of(llama2());
  EXPECT_TRUE(piece.adds_space);
  EXPECT_THAT(piece.notes, IsEmpty());
  EXPECT_EQ(std::vector<float>(piece.scores.begin() + kFirst + 4, piece.scores.end()),
            (std::vector<float>{-1, -2, -3}));
}

TEST(GgufSentencepiece, PairsThatNoMergeJoinsAreRefused) {
  TokenizerSpec spec = llama2();
  spec.merges.pop_back();  // llama.cpp would join ab and c
  EXPECT_THAT(refusal(spec), HasSubstr("ab and c form a token, but no merge joins them"));
  spec = llama2();
  std::swap(spec.merges[1], spec.merges[2]);
  EXPECT_THAT(refusal(spec), HasSubstr("the merges that make abc do not follow each other"));
  spec = llama2();
  spec.tokens[kFirst + 3] = "x";  // c is no token, but llama.cpp joins characters that are none, too
  EXPECT_THAT(refusal(spec), HasSubstr("form a token, but no merge joins them"));
}

TEST(GgufSentencepiece, OtherStepsAreRefused) {
  TokenizerSpec spec = llama2();
  spec.tokens[7].clear();
  EXPECT_THAT(refusal(spec), HasSubstr("some bytes have no token"));
  spec = llama2();
  spec.pipeline.normalizers.emplace_back().type = NormalizerStep::Type::kNfkc;
  EXPECT_THAT(refusal(spec), HasSubstr("its normalizer does more than to mark spaces"));
  spec = llama2();
  spec.pipeline.normalizers.clear();
  EXPECT_THAT(refusal(spec), HasSubstr("it does not mark spaces"));
  spec.pipeline.pre_tokenizers.emplace_back().type = PreTokenizerStep::Type::kDigits;
  EXPECT_THAT(refusal(spec), HasSubstr("its pre-tokenizer is none of SentencePiece's"));
}

TEST(GgufSentencepiece, MetaspaceMayPrependAndSplit) {
  TokenizerSpec spec = llama2();
  spec.pipeline.normalizers.clear();
  PreTokenizerStep step;
  step.type = PreTokenizerStep::Type::kMetaspace;
  step.marker = "\u2581";
  spec.pipeline.pre_tokenizers = {step};
  EXPECT_FALSE(sentencepiece_of(spec).adds_space);
  spec.pipeline.pre_tokenizers[0].prepend = PrependScheme::kFirst;
  EXPECT_TRUE(sentencepiece_of(spec).adds_space);
  EXPECT_EQ(sentencepiece_of(spec).notes.size(), 1u);
  spec.tokens.emplace_back("a\u2581");
  spec.merges.push_back({kFirst + 1, kFirst, kFirst + 7});
  EXPECT_THAT(refusal(spec), HasSubstr("it splits before every space"));
}

TEST(GgufSentencepiece, SpecialTokensThatTextCanSpellAreNoted) {
  TokenizerSpec spec = llama2();
  spec.added.emplace_back().content = "ac";
  ASSERT_EQ(sentencepiece_of(spec).notes.size(), 1u);
  EXPECT_THAT(sentencepiece_of(spec).notes[0], HasSubstr("spells ac"));
}

}  // namespace
}  // namespace ingot
