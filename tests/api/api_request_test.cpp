// Bodies of requests: what they mean, and how bad ones are refused.
#include "ingot/api/api_request.h"

#include <gmock/gmock.h>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ApiRequestTest : public testing::Test {
 protected:
  ApiRequest parse(const std::string& body, bool is_chat = false) const {
    return parse_api_request(body, is_chat, model_);
  }
  // Returns "KEY: MESSAGE" of a refusal with status 400.
  std::string refusal(const std::string& body, bool is_chat = false) const {
    try {
      parse(body, is_chat);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 400);
      return error.param() + ": " + error.what();
    }
    return "accepted";
  }

  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
  ApiModel model_{.name = "m",
                  .tokenizer = *bytes_,
                  .chat = ChatTemplate("chatml", "", "<|im_end|>"),
                  .no_chat = "",
                  .context = 200};
};

std::vector<TokenId> ids(const std::string& text) { return {text.begin(), text.end()}; }

TEST_F(ApiRequestTest, APromptHasFourShapes) {
  EXPECT_EQ(parse(R"({"prompt": "ab"})").prompts[0].tokens, ids("ab"));
  const ApiRequest texts = parse(R"({"prompt": ["ab", "c"], "n": 3})");
  ASSERT_EQ(texts.prompts.size(), 2u);
  EXPECT_EQ(texts.prompts[1].tokens, ids("c"));
  EXPECT_EQ(texts.all_choices(), 6);
  const ApiRequest one = parse(R"({"prompt": [97, 98]})");
  ASSERT_EQ(one.prompts.size(), 1u);
  EXPECT_EQ(one.prompts[0].tokens, ids("ab"));
  EXPECT_EQ(one.prompts[0].text, "ab");
  const ApiRequest lists = parse(R"({"prompt": [[97], [98, 99]]})");
  ASSERT_EQ(lists.prompts.size(), 2u);
  EXPECT_EQ(lists.prompts[1].text, "bc");
  EXPECT_EQ(parse(R"({"prompt": ""})").prompts[0].tokens, ids("\n"));
}

TEST_F(ApiRequestTest, KeysHaveTheDefaultsOfTheInterface) {
  const ApiRequest plain =
      parse(R"({"prompt": "a", "model": "any", "user": "u", "stop": null, "logit_bias": {}})");
  EXPECT_EQ(plain.tokens, 16);
  EXPECT_EQ(plain.choices, 1);
  EXPECT_EQ(plain.sample.temperature, 1);
  EXPECT_EQ(plain.sample.top_p, 1);
  EXPECT_EQ(plain.sample.top_k, 0);
  EXPECT_FALSE(plain.top || plain.has_echo || plain.is_stream || plain.has_usage);
  EXPECT_NE(plain.seed, parse(R"({"prompt": "a"})").seed) << "without a seed, two answers differ";
  const ApiRequest full = parse(
      R"({"prompt": "a", "max_tokens": 0, "temperature": 0, "top_p": 0.5, "top_k": 7, "seed": -1, "n": 2,
          "best_of": 2, "stop": ["x", "yz", ""], "logprobs": 0, "echo": true, "stream": true,
          "stream_options": {"include_usage": true}, "presence_penalty": 0.0, "suffix": null})");
  EXPECT_EQ(full.tokens, 0);
  EXPECT_EQ(full.sample.temperature, 0);
  EXPECT_EQ(full.sample.top_p, 0.5F);
  EXPECT_EQ(full.sample.top_k, 7);
  EXPECT_EQ(full.seed, UINT64_MAX);
  EXPECT_EQ(full.stops, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(full.top, 0);
  EXPECT_TRUE(full.has_echo && full.is_stream && full.has_usage);
  EXPECT_EQ(parse(R"({"prompt": "a", "stop": "x"})").stops, std::vector<std::string>{"x"});
}

TEST_F(ApiRequestTest, AChatIsWrittenByTheTemplate) {
  const ApiRequest chat = parse(
      R"({"messages": [{"role": "developer", "content": "S"},
                       {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "logprobs": true, "top_logprobs": 4, "max_completion_tokens": 5, "max_tokens": 9,
          "response_format": {"type": "text"}, "tools": []})",
      true);
  EXPECT_EQ(decode(*bytes_, chat.prompts[0].tokens),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.top, 4);
  EXPECT_EQ(chat.tokens, 5);
  EXPECT_EQ(parse(R"({"messages": [{"role": "user", "content": "a"}]})", true).tokens, 200);
}

TEST_F(ApiRequestTest, BadOnesAreRefusedByTheirKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the body is no JSON"},
      {"{", "the body is no JSON"},
      {"[]", "the body must be a JSON object"},
      {"{}", "prompt: prompt is missing"},
      {R"({"prompt": null})", "prompt: prompt is missing"},
      {R"({"prompt": []})", "prompt: prompt must be a text"},
      {R"({"prompt": {}})", "prompt: prompt must be a text"},
      {R"({"prompt": [[]]})", "prompt: prompt must have at least one token"},
      {R"({"prompt": [256]})", "prompt: prompt must have token ids from 0 to 255"},
      {R"({"prompt": [-1]})", "prompt: prompt must have token ids from 0 to 255"},
      {R"({"prompt": [1.5]})", "prompt: prompt must have token ids from 0 to 255"},
      {R"({"prompt": ["a", 1]})", "prompt: prompt must be a text"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens: max_tokens may be 0 only with echo"},
      {R"({"prompt": "a", "max_tokens": -1})", "max_tokens: max_tokens must be a whole number from 0"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens: max_tokens must be a whole number"},
      {R"({"prompt": "a", "max_tokens": 18446744073709551615})",
       "max_tokens: max_tokens must be a whole number"},
      {R"({"prompt": "a", "temperature": -0.1})", "temperature: temperature must be a number from 0 to 100"},
      {R"({"prompt": "a", "temperature": "1"})", "temperature: temperature must be a number"},
      {R"({"prompt": "a", "top_p": 1.1})", "top_p: top_p must be a number from 0 to 1"},
      {R"({"prompt": "a", "n": 0})", "n: n must be a whole number from 1 to 256"},
      {R"({"prompt": ["a", "b"], "n": 129})", "n: n times the number of prompts must be at most 256"},
      {R"({"prompt": "a", "best_of": 2})", "best_of: best_of must be n"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs: logprobs must be a whole number from 0 to 20"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs: logprobs must be a whole number"},
      {R"({"prompt": "a", "echo": 1})", "echo: echo must be true or false"},
      {R"({"prompt": "a", "stop": 1})", "stop: stop must be a text, or a list of texts"},
      {R"({"prompt": "a", "stop": ["a", 1]})", "stop: stop must be a text, or a list of texts"},
      {R"({"prompt": "a", "stream": "yes"})", "stream: stream must be true or false"},
      {R"({"prompt": "a", "stream_options": 1})", "stream_options: stream_options must be an object"},
      {R"({"prompt": "a", "frequency_penalty": 0.5})",
       "frequency_penalty: frequency_penalty is not supported"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix: suffix is not supported"},
      {R"({"prompt": "a", "max_token": 1})", "max_token: max_token is no key that is supported"},
      {R"({"prompt": "a", "messages": []})", "messages: messages is no key that is supported"},
  };
  for (const auto& [body, want] : cases) EXPECT_THAT(refusal(body), HasSubstr(want)) << body;
  EXPECT_THAT(refusal(R"({"prompt": ")" + std::string(201, 'a') + "\"}"),
              AllOf(HasSubstr("prompt: the prompt has 201 tokens"), HasSubstr("context is 200 tokens long")));
  EXPECT_EQ(parse(R"({"prompt": ")" + std::string(200, 'a') + "\"}").prompts[0].tokens.size(), 200u);
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("no JSON"));
  std::string many = R"({"prompt": ["a")";
  for (int i = 0; i < 256; ++i) many += R"(,"a")";
  EXPECT_THAT(refusal(many + "]}"), HasSubstr("prompt must have at most 256 texts"));
}

TEST_F(ApiRequestTest, BadChatsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "messages must be a list"},
      {R"({"messages": []})", "messages must be a list"},
      {R"({"messages": [1]})", "messages must have objects"},
      {R"({"messages": [{"role": "tool", "content": "a"}]})", "messages must have a role each"},
      {R"({"messages": [{"content": "a"}]})", "messages must have a role each"},
      {R"({"messages": [{"role": "user"}]})", "messages must have a text as content each"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "parts of type \"text\" only"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", "tools is not supported"},
      {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}})",
       "response_format is not supported"},
      {R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2})", "needs logprobs = true"},
      {R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0})",
       "max_tokens must be a whole number"},
      {R"({"messages": [{"role": "user", "content": "a"}], "echo": true})",
       "echo is no key that is supported"},
  };
  for (const auto& [body, want] : cases) EXPECT_THAT(refusal(body, true), HasSubstr(want)) << body;
  model_.chat.reset();
  model_.no_chat = "there is no template";
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "a"}]})", true),
              HasSubstr("there is no template"));
}

}  // namespace
}  // namespace ingot
