// Pairs of answers: the forms of their lines, their tokens and targets, and how they are packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/chat/chat_data.h"
#include "ingot/data/loader.h"

namespace ingot::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnswerPairs : public ::testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / fmt::format("ingot-pairs-{}", ::getpid());
  std::unique_ptr<Tokenizer> tokenizer_;

  void SetUp() override {
    fs::create_directories(folder_);
    const std::vector<std::string_view> texts = {"Hello there, who are you? I am an assistant. Yes."};
    tokenizer_ = train_bpe(
        texts, {.vocab_size = 300, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
    TokenizerSideFiles side;
    side.tokens = {{"eos_token", "<|im_end|>"}};
    side.chat_jinja = read_file(fs::path(INGOT_TEST_DATA) / "chat/chatml.jinja");
    tokenizer_->set_side_files(std::move(side));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> file(std::string_view text) const {
    write_file(folder_ / "pairs.jsonl", text);
    return {(folder_ / "pairs.jsonl").string()};
  }
  Chats read(std::string_view text, int64_t context = 1000) const {
    return read_chats(
        file(text),
        {.tokenizer = *tokenizer_, .template_name = "", .source = "the tokenizer", .context = context});
  }
  // The text of an answer's document; targets are in brackets.
  std::string shown(const ChatTokens& pair, bool is_rejected) const {
    const size_t begin = is_rejected ? pair.rejected_at : 0,
                 end = is_rejected ? pair.ids.size() : pair.rejected_at;
    std::string text;
    bool is_open = false;
    for (size_t i = begin; i < end; ++i) {
      if (pair.is_target[i] != is_open) text += is_open ? "]" : "[";
      is_open = pair.is_target[i];
      tokenizer_->append_bytes(pair.ids[i], text);
    }
    return text + (is_open ? "]" : "");
  }
};

constexpr const char* kPair =
    R"({"prompt": [{"role": "user", "content": "who?"}], "chosen": [{"role": "assistant", "content": "I am"}], )"
    R"("rejected": [{"role": "assistant", "content": "Yes."}]})"
    "\n";

TEST_F(AnswerPairs, EverythingBehindThePromptIsATarget) {
  const ChatTokens pair = read(kPair).conversations.at(0);
  EXPECT_EQ(shown(pair, false),
            "<|im_start|>user\nwho?<|im_end|>\n<|im_start|>assistant\n[I am<|im_end|>\n]");
  EXPECT_EQ(shown(pair, true), "<|im_start|>user\nwho?<|im_end|>\n<|im_start|>assistant\n[Yes.<|im_end|>\n]");
}

TEST_F(AnswerPairs, ThePromptIsWhatBothAnswersBeginWith) {
  const std::string turn = R"({"role": "user", "content": "who?"})";
  const auto line = [&](const std::string& chosen, const std::string& rejected) {
    return R"({"chosen": [)" + turn + chosen + R"(], "rejected": [)" + turn + rejected + "]}";
  };
  const auto answer = [](const char* text) {
    return fmt::format(R"(, {{"role": "assistant", "content": "{}"}})", text);
  };
  const ChatTokens pair = read(line(answer("I am"), answer("Yes."))).conversations.at(0);
  EXPECT_EQ(pair.ids, read(kPair).conversations.at(0).ids);
  EXPECT_EQ(pair.is_target, read(kPair).conversations.at(0).is_target);
  // Turns of the assistant in the prompt are no targets.
  const std::string longer = answer("Hello") + ", " + turn;
  const ChatTokens second = read(line(longer + answer("I am"), longer + answer("Yes."))).conversations.at(0);
  EXPECT_THAT(shown(second, true), HasSubstr("assistant\nHello<|im_end|>\n<|im_start|>user"));
  EXPECT_THAT(shown(second, true), HasSubstr("assistant\n[Yes.<|im_end|>\n]"));
}

TEST_F(AnswerPairs, TextsEndWithTheTokenizersEnd) {
  const ChatTokens pair =
      read(R"({"prompt": "who?", "chosen": " I am", "rejected": " <|im_end|>"})").conversations.at(0);
  EXPECT_EQ(shown(pair, false), "who?[ I am<|im_end|>]");
  const TokenId end = encode_with_special(*tokenizer_, "<|im_end|>").at(0);
  EXPECT_EQ(std::ranges::count(pair.ids, end), 2) << "an answer that spells the token does not end there";
}

TEST_F(AnswerPairs, APairThatIsTooLongIsLeftOut) {
  const int64_t tokens = std::ssize(read(kPair).conversations.at(0).ids);
  EXPECT_EQ(read(kPair, tokens).left_out, 0);
  const std::string text = R"({"prompt": "a", "chosen": "b", "rejected": "c"})";
  EXPECT_EQ(read(text + "\n" + text, tokens).conversations.size(), 2u);
  try {
    read(kPair, tokens - 1);
    ADD_FAILURE() << "there is no pair left";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("none of the 1 conversations fits into model.context"));
  }
}

TEST_F(AnswerPairs, BothAnswersLieInOneWindowWithTheirReferences) {
  ChatTokens pair{.ids = {1, 2, 3, 4, 5}, .is_target = {false, true, false, true, true}, .rejected_at = 2};
  const std::vector<ChatTokens> pairs = {pair, pair};
  const TokenSource packed = pack(pairs, 8, 50);
  EXPECT_THAT(packed.documents().positions, ElementsAre(0, 2, 5, 8, 10, 13));
  ASSERT_TRUE(packed.references());
  *packed.references() = {-1, -2, 0, -3, -4, 0};
  EvalWindows walk(packed, {.batch = 2, .context = 8, .vocab_size = 50, .document_mask = true});
  const Batch* batch = walk.next();
  const std::vector<float> references(batch->reference.as<float>(), batch->reference.as<float>() + 16);
  EXPECT_THAT(references, ElementsAre(-1, 0, -2, 0, 0, 0, 0, 0, -3, 0, -4, 0, 0, 0, 0, 0));
  EXPECT_EQ(batch->counted_targets, 6);
  EXPECT_EQ(summary_of({.conversations = pairs}, 2, 8).substr(0, 20), "2 pairs in 2 windows");
}

}  // namespace
}  // namespace ingot::test
