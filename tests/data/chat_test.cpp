#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ingot/core/file.h"
#include "ingot/data/chat/chat_data.h"
#include "ingot/data/loader.h"
#include "tests/data/all_tokens.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kChatGolden = fs::path(INGOT_TEST_DATA) / "chat";

std::string joined(const std::vector<ChatPart>& parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

// The row that a golden file such as llama3-2.jinja is for.
std::string row_of_file(std::string name) {
  name.resize(name.size() - std::string_view(".jinja").size());
  if (name.size() > 2 && name[name.size() - 2] == '-') name.resize(name.size() - 2);
  return name;
}

TEST(ChatTemplate, RendersAsTransformers) {
  const auto golden = nlohmann::json::parse(read_file(kChatGolden / "rendered.json"));
  EXPECT_GE(golden["rendered"].size(), 25u);
  for (const auto& [file, texts] : golden["rendered"].items()) {
    const std::string jinja = read_file(kChatGolden / file);
    ASSERT_EQ(known_chat_template(jinja), row_of_file(file))
        << file << fmt::format(" {:#x}", chat_template_hash(jinja));
    const ChatTemplate chat(known_chat_template(jinja), golden["bos"].get<std::string>(),
                            golden["eos"].get<std::string>());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto conversation =
          parse_conversation(nlohmann::json{{"messages", golden["conversations"][i]}}.dump(), "chat.jsonl:1");
      const auto render = [&] { return joined(chat.render(conversation.messages, "chat.jsonl:1")); };
      if (texts[i].is_null() || (chat.name() == "deepseek-v3" && i == 9))  // a system message that comes late
        EXPECT_THAT(error_of(render), HasSubstr("chat.jsonl:1: the chat template")) << file << " " << i;
      else
        EXPECT_EQ(render(), texts[i].get<std::string>()) << file << " " << i;
    }
  }
}

TEST(ChatTemplate, AsksForAnAnswerAsTransformersDoes) {
  const auto golden = nlohmann::json::parse(read_file(kChatGolden / "rendered.json"));
  const std::vector<ChatMessage> question = {{ChatRole::kUser, "only a question"}};
  for (const auto& [file, text] : golden["prompts"].items()) {
    const ChatTemplate chat(row_of_file(file), golden["bos"].get<std::string>(),
                            golden["eos"].get<std::string>());
    EXPECT_EQ(joined(chat.render(question, "chat.jsonl:1")) + chat.generation_prompt(),
              text.get<std::string>())
        << file;
    const std::string whole =
        joined(chat.render(std::vector<ChatMessage>{question[0], {ChatRole::kAssistant, "x"}}, ""));
    EXPECT_NE(whole.find(chat.answer_end()), std::string::npos) << file;
  }
}

TEST(ChatTemplate, IsKnownByItsWholeText) {
  const std::string jinja = read_file(kChatGolden / "zephyr.jinja");
  EXPECT_EQ(known_chat_template(jinja), "zephyr");
  EXPECT_EQ(known_chat_template(jinja + "\n"), "zephyr");
  std::string windows;
  for (const char c : jinja) windows += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_EQ(known_chat_template(windows), "zephyr");
  EXPECT_EQ(known_chat_template(jinja + " "), "");
  EXPECT_EQ(known_chat_template("\n" + jinja), "");
  std::string one_line = jinja;
  std::ranges::replace(one_line, '\n', ' ');  // spaces between the blocks are part of the text
  EXPECT_EQ(known_chat_template(one_line), "");
  EXPECT_EQ(known_chat_template(""), "");
}

// A small BPE with the tokens of ChatML, and side files that name them.
std::unique_ptr<Tokenizer> chat_tokenizer(std::string jinja = "") {
  const std::vector<std::string_view> texts = {
      "Hello there, hello here. Who are you? I am an assistant. Yes, yes."};
  auto tokenizer = train_bpe(
      texts, {.vocab_size = 300, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
  TokenizerSideFiles side;
  side.tokens = {{"eos_token", "<|im_end|>"}, {"bos_token", "<|endoftext|>"}};
  side.chat_jinja = std::move(jinja);
  tokenizer->set_side_files(std::move(side));
  return tokenizer;
}

std::vector<ChatPart> chatml(const std::vector<ChatMessage>& messages) {
  return ChatTemplate("chatml", "", "").render(messages, "here");
}

std::string targets_of(const ChatTokens& tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.is_target[i]) tokenizer.append_bytes(tokens.ids[i], text);
  return text;
}

TEST(ChatTokens, TargetsAreTheAssistantsTurns) {
  const auto tokenizer = chat_tokenizer();
  const std::vector<ChatPart> parts = chatml({{ChatRole::kSystem, "Be brief."},
                                              {ChatRole::kUser, "Hello"},
                                              {ChatRole::kAssistant, "Hi there"},
                                              {ChatRole::kUser, "Who?"},
                                              {ChatRole::kAssistant, ""},
                                              {ChatRole::kUser, "So"}});
  const ChatTokens tokens = tokenize_parts(parts, *tokenizer);
  EXPECT_EQ(tokens.ids, encode_with_special(*tokenizer, joined(parts)));
  EXPECT_EQ(targets_of(tokens, *tokenizer), "Hi there<|im_end|><|im_end|>");
}

TEST(ChatTokens, SpecialTokensThatSomebodyWroteAreText) {
  const auto tokenizer = chat_tokenizer();
  const std::vector<ChatPart> parts =
      chatml({{ChatRole::kUser, "Say <|im_end|>!"}, {ChatRole::kAssistant, "<|im_end|> it is"}});
  const ChatTokens tokens = tokenize_parts(parts, *tokenizer);
  const TokenId end = encode_with_special(*tokenizer, "<|im_end|>").front();
  EXPECT_EQ(std::ranges::count(tokens.ids, end), 2);
  EXPECT_EQ(decode(*tokenizer, tokens.ids), joined(parts));
  EXPECT_EQ(targets_of(tokens, *tokenizer), "<|im_end|> it is<|im_end|>");
}

class ChatFile : public FolderTest {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = chat_tokenizer(read_file(kChatGolden / "chatml.jinja"));

  std::vector<std::string> file(std::string_view text, const std::string& name = "chat.jsonl") const {
    write_file(folder_ / name, text);
    return {(folder_ / name).string()};
  }
  Chats read(std::string_view text, int64_t context = 1000, LossOn loss_on = LossOn::kAssistant) const {
    return read_chats(file(text), {.tokenizer = *tokenizer_,
                                   .template_name = "",
                                   .source = "the tokenizer",
                                   .loss_on = loss_on,
                                   .context = context});
  }
  std::string refusal(std::string_view text, int64_t context = 1000) const {
    return error_of([&] { read(text, context); });
  }
};

constexpr const char* kMessages =
    R"({"messages": [{"role": "user", "content": "Hello\n\nthere"}, {"role": "assistant", "content": "Yes"}]})"
    "\n";

TEST_F(ChatFile, ThreeShapesAreOneConversation) {
  const Chats chats = read(
      std::string(kMessages) + "\n" +
      R"({"conversations": [{"from": "human", "value": "Hello\n\nthere"}, {"from": "gpt", "value": "Yes"}]})"
      "\n"
      R"({"instruction": "Hello", "input": "there", "output": "Yes", "other": 1})"
      "\n"
      R"({"instruction": "Hello\n\nthere", "input": "", "output": "Yes"})"
      "\n");
  ASSERT_EQ(chats.conversations.size(), 4u);
  for (const ChatTokens& one : chats.conversations) {
    EXPECT_EQ(one.ids, chats.conversations[0].ids);
    EXPECT_EQ(one.is_target, chats.conversations[0].is_target);
  }
  EXPECT_TRUE(names_chat(file(kMessages), "text"));
  EXPECT_FALSE(names_chat(file(R"({"text": "a", "messages": []})"), "text"));
  EXPECT_FALSE(names_chat(file(R"({"text": "a"})"), "text"));
  EXPECT_FALSE(names_chat(file("no JSON"), "text"));
  EXPECT_FALSE(names_chat(file(kMessages, "chat.txt"), "text"));
}

TEST_F(ChatFile, RenderedPartsNeedNoTemplate) {
  tokenizer_ = chat_tokenizer();
  const Chats chats = read(
      R"({"parts": [{"text": "<|im_start|>"}, {"text": "<|im_end|>", "is_written": true}, {"text": "a<|im_end|>", "is_target": true}]})");
  ASSERT_EQ(chats.conversations.size(), 1u);
  EXPECT_EQ(targets_of(chats.conversations[0], *tokenizer_), "a<|im_end|>");
}

TEST_F(ChatFile, LongConversationsLoseTheirLastTurns) {
  const std::string long_one =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
      R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]})"
      "\n";
  const ChatTokens whole = read(long_one).conversations.at(0);
  const ChatTokens first =
      tokenize_parts(chatml({{ChatRole::kUser, "a"}, {ChatRole::kAssistant, "b"}}), *tokenizer_);
  const ChatTokens two = tokenize_parts(chatml({{ChatRole::kUser, "a"},
                                                {ChatRole::kAssistant, "b"},
                                                {ChatRole::kUser, "c"},
                                                {ChatRole::kAssistant, "d"}}),
                                        *tokenizer_);
  const auto count = [](const ChatTokens& tokens) { return std::ssize(tokens.ids); };
  EXPECT_EQ(read(long_one, count(whole)).cut, 0);
  for (int64_t context = count(first); context < count(whole); ++context) {
    const Chats chats = read(long_one, context);
    EXPECT_EQ(chats.cut, 1);
    EXPECT_EQ(chats.conversations.at(0).ids, context < count(two) ? first.ids : two.ids) << context;
  }
  const Chats some = read(R"({"instruction": "a", "output": "b b b b b b b b b b b b b b b b b b b b b b b"})"
                          "\n" +
                              long_one,
                          count(first));
  EXPECT_EQ(some.left_out, 1);
  EXPECT_EQ(some.conversations.size(), 1u);
  EXPECT_THAT(refusal(long_one, count(first) - 1),
              HasSubstr("none of the 1 conversations fits into model.context"));
}

TEST_F(ChatFile, BadLinesAreNamedWithTheirFix) {
  const std::string good = kMessages;
  EXPECT_THAT(
      refusal(good + R"({"text": "a"})"),
      HasSubstr("chat.jsonl:2: is no conversation; a line of chat data has messages (role, content)"));
  EXPECT_THAT(refusal(good + R"({"messages": [{"role": "tool", "content": "a"}]})"),
              HasSubstr("chat.jsonl:2: the role \"tool\" is not known; the roles are system, user"));
  EXPECT_THAT(refusal(good + R"({"messages": []})"),
              HasSubstr("chat.jsonl:2: the conversation is empty; leave"));
  EXPECT_THAT(refusal(good + R"({"messages": [{"role": "user", "content": null}]})"),
              HasSubstr("chat.jsonl:2: messages[0].content: expected a string, got null"));
  EXPECT_THAT(
      refusal(good + R"({"messages": [{"role": "user", "content": "a"}]})"),
      HasSubstr("chat.jsonl:2: has no assistant's turn, so that every token would be masked; leave the line "
                "out, or set data.loss_on"));
  EXPECT_THAT(refusal(good + R"({"messages")"), HasSubstr("chat.jsonl:2:1: not valid JSON"));
  EXPECT_THAT(refusal(good + R"({"parts": [{"text": "a", "is_target": true}]})"), HasSubstr("no error"));
  EXPECT_THAT(refusal(R"({"parts": [{"text": "a", "is_target": true}]})"
                      "\n" +
                      good),
              HasSubstr("chat.jsonl:2: is not rendered, as the first line"));
  EXPECT_THAT(refusal("\n"), HasSubstr("holds no conversation"));
}

TEST_F(ChatFile, BadTemplatesAreNamedWithTheirFix) {
  const auto with = [&](std::string jinja, std::string json = "") {
    TokenizerSideFiles side = tokenizer_->side_files();
    side.chat_jinja = std::move(jinja);
    side.chat_json = std::move(json);
    tokenizer_->set_side_files(std::move(side));
    return refusal(kMessages);
  };
  EXPECT_THAT(with(""), HasSubstr("the tokenizer: there is no chat template with this tokenizer"));
  EXPECT_THAT(with(""), HasSubstr("set data.chat_template to one of chatml, llama2, llama3"));
  EXPECT_THAT(with("plain words"), HasSubstr("the chat template is no template"));
  EXPECT_THAT(with("", "3"), HasSubstr("is neither a text nor a list with a template called \"default\""));
  EXPECT_THAT(with("{{ messages }}"), HasSubstr("python3 examples/data/render_chat.py FILE.jsonl --model"));
  EXPECT_THAT(
      with(read_file(kChatGolden / "llama3.jinja")),
      HasSubstr("the tokenizer has no token <|start_header_id|>, which the chat template llama3 needs"));
  EXPECT_EQ(with(read_file(kChatGolden / "zephyr.jinja")), "no error");
  EXPECT_EQ(with("", nlohmann::json::array({{{"name", "default"}, {"template", "{{ x }}"}}}).dump())
                .find("no error"),
            std::string::npos);
  EXPECT_EQ(with("", nlohmann::json(read_file(kChatGolden / "smollm2.jinja")).dump()), "no error");
  EXPECT_THAT(error_of([&] { ChatTemplate("alpaca", *tokenizer_, "t"); }),
              HasSubstr("data.chat_template must be one of chatml"));
}

ChatTokens numbers(TokenId first, size_t count) {
  ChatTokens tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.ids.push_back(first + static_cast<TokenId>(i));
    tokens.is_target.push_back(i % 2 == 1);
  }
  return tokens;
}

TEST(Packing, TakesWhatStillFitsInOrder) {
  const std::vector<ChatTokens> chats = {numbers(10, 3), numbers(20, 4), numbers(30, 2), numbers(40, 1)};
  const TokenSource packed = pack(chats, 5, 50);
  EXPECT_THAT(all_tokens(packed), ElementsAre(10, 11, 12, 30, 31, 20, 21, 22, 23, 40, 0));
  EXPECT_THAT(packed.documents().positions, ElementsAre(0, 3, 5, 9));
  EXPECT_TRUE(packed.is_masked());
  EXPECT_EQ(packed.targets(), 1 + 1 + 2);
  EXPECT_EQ(all_tokens(pack(std::span(chats).first(1), 5, 70000)),
            (std::vector<uint32_t>{10, 11, 12, 0, 0, 0}));
}

TEST(Packing, LooksAheadABoundedWay) {
  std::vector<ChatTokens> chats = {numbers(1, 3)};
  for (size_t i = 0; i < kPackingLookAhead; ++i) chats.push_back(numbers(10, 4));
  chats.push_back(numbers(90, 1));  // would fit, but is too far away
  EXPECT_EQ(all_tokens(pack(chats, 4, 100))[3], 0u);
  chats.erase(chats.begin() + 1, chats.begin() + 3);
  EXPECT_EQ(all_tokens(pack(chats, 4, 100))[3], 90u);
}

TEST(Packing, BatchesHaveWholeWindowsAndTheirTargets) {
  const std::vector<ChatTokens> chats = {numbers(10, 3), numbers(20, 4), numbers(30, 2)};
  const TokenSource packed = pack(chats, 5, 50);
  EvalWindows walk(packed, {.batch = 2, .context = 5, .vocab_size = 50, .document_mask = true});
  EXPECT_EQ(walk.windows(), 2);
  EXPECT_EQ(walk.targets(), 4);
  const Batch* batch = walk.next();
  const auto of = [](const Tensor& t) {
    return std::vector<int32_t>(t.as<int32_t>(), t.as<int32_t>() + t.elements());
  };
  EXPECT_THAT(of(batch->tokens), ElementsAre(10, 11, 12, 30, 31, 20, 21, 22, 23, 0));
  EXPECT_THAT(of(batch->targets), ElementsAre(11, -100, -100, 31, -100, 21, -100, 23, -100, -100));
  EXPECT_THAT(of(batch->doc_start), ElementsAre(0, 0, 0, 3, 3, 0, 0, 0, 0, 4));
  EXPECT_EQ(batch->counted_targets, 4);
  EXPECT_EQ(walk.next(), nullptr);
}

TEST(Packing, EveryEpochHasEveryWindowOnce) {
  const std::vector<Sampler::Source> packed = {{.tokens = 7 * 5 + 1, .is_packed = true}};
  const Sampler epochs(SampleOrder::kEpochs, 3, packed, 5), random(SampleOrder::kRandom, 3, packed, 5);
  EXPECT_EQ(epochs.windows_per_epoch(), 7);
  std::vector<std::vector<int64_t>> orders(3);
  for (int64_t i = 0; i < 21; ++i) orders[static_cast<size_t>(i / 7)].push_back(epochs.start(i));
  EXPECT_NE(orders[0], orders[1]);
  for (std::vector<int64_t>& order : orders) {
    std::ranges::sort(order);
    EXPECT_THAT(order, ElementsAre(0, 5, 10, 15, 20, 25, 30));
  }
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(random.start(i) % 5, 0);
    EXPECT_LE(random.start(i), 30);
  }
}

TEST(Packing, JoinedStreamsKeepTheirTargets) {
  TokenSource text, both;
  text.add(std::vector<uint16_t>{1, 2, 3});
  const TokenSource packed = pack(std::vector<ChatTokens>{numbers(10, 2)}, 2, 50);
  both.add(text);
  both.add(packed);
  std::vector<int32_t> targets = {2, 3, 10, 11, 0};
  EXPECT_EQ(both.mask_targets(1, targets), 3);
  EXPECT_THAT(targets, ElementsAre(2, 3, -100, 11, -100));
  EXPECT_EQ(both.targets(), 3);
  EXPECT_FALSE(text.is_masked());
  EXPECT_EQ(text.targets(), 2);
}

}  // namespace
}  // namespace ingot::test
