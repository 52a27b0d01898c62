// Tokens of a model become the texts, scores and events of an answer.
#include "ingot/api/completion.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CompletionTest : public testing::Test {
 protected:
  Completion& begin(const std::string& body, bool is_chat = false) {
    return completion_.emplace(parse_api_request(body, is_chat, model_), model_);
  }
  // Gives the choice the bytes as tokens, each predicted by logits_. Returns false if it ends by itself.
  bool write(std::string_view bytes, size_t choice = 0, size_t position = 100) {
    for (const char c : bytes) {
      const auto id = static_cast<TokenId>(static_cast<unsigned char>(c));
      if (!completion_->take(choice, {.sequence = 0, .position = position++, .token = id, .logits = logits_}))
        return false;
    }
    return true;
  }
  json answer() {
    const std::optional<HttpAnswer> answer = completion_->answer();
    if (!answer) return "not complete";
    EXPECT_EQ(answer->status, 200);
    return json::parse(answer->body);
  }
  // Returns the events that are ready; the last one is "[DONE]" if the stream has ended.
  std::vector<json> events() {
    HttpStreamState state = HttpStreamState::kWaits;
    std::string text = completion_->events(state);
    std::vector<json> all;
    for (size_t end = 0; (end = text.find("\n\n")) != text.npos; text.erase(0, end + 2)) {
      EXPECT_EQ(text.substr(0, 6), "data: ");
      const std::string data = text.substr(6, end - 6);
      all.push_back(data == "[DONE]" ? json("[DONE]") : json::parse(data));
    }
    EXPECT_EQ(text, "");
    EXPECT_EQ(state == HttpStreamState::kEnded, !all.empty() && all.back() == "[DONE]");
    return all;
  }
  // Returns the texts of a choice in the events, put together.
  static std::string text_of(const std::vector<json>& events, int choice = 0) {
    std::string text;
    for (const json& event : events)
      if (event.is_object())
        for (const json& one : event["choices"])
          if (one["index"] == choice)
            text += one.value("text", one.value("delta", json::object()).value("content", ""));
    return text;
  }

  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
  ApiModel model_{.name = "m",
                  .tokenizer = *bytes_,
                  .chat = ChatTemplate("chatml", "", "<|im_end|>"),
                  .no_chat = "",
                  .context = 200};
  std::vector<float> logits_ = std::vector<float>(256, 0.0F);
  std::optional<Completion> completion_;
};

TEST_F(CompletionTest, SequencesAreThoseOfTheRequest) {
  const Completion& c =
      begin(R"({"prompt": ["ab", "c"], "n": 2, "seed": 7, "max_tokens": 500, "temperature": 0.5})");
  ASSERT_EQ(c.choices(), 4u);
  EXPECT_EQ(c.sequence(1).tokens, (std::vector<TokenId>{'a', 'b'}));
  EXPECT_EQ(c.sequence(2).tokens, (std::vector<TokenId>{'c'}));
  EXPECT_EQ(c.sequence(2).seed, 9u);
  EXPECT_EQ(c.sequence(2).sample.temperature, 0.5F);
  EXPECT_EQ(c.sequence(1).wanted, 199) << "the last token is not read";
  EXPECT_FALSE(c.sequence(0).has_scores);
  EXPECT_FALSE(begin(R"({"prompt": "a", "echo": true})").sequence(0).has_scores);
  EXPECT_TRUE(begin(R"({"prompt": "a", "echo": true, "logprobs": 0})").sequence(0).has_scores);
}

TEST_F(CompletionTest, TheAnswerIsCompleteAfterTheLastChoice) {
  begin(R"({"prompt": ["ab", "c"], "max_tokens": 3})");
  write("xyz", 1);
  completion_->end(1);
  EXPECT_EQ(answer(), "not complete");
  write("uv");
  EXPECT_FALSE(completion_->is_over());
  completion_->end(0);
  EXPECT_TRUE(completion_->is_over());
  const json got = answer();
  EXPECT_EQ(got["object"], "text_completion");
  EXPECT_EQ(got["model"], "m");
  EXPECT_EQ(got["choices"], json::parse(
                                R"([{"index": 0, "text": "uv", "logprobs": null, "finish_reason": "length"},
                                    {"index": 1, "text": "xyz", "logprobs": null, "finish_reason": "length"}])"));
  EXPECT_EQ(got["usage"], json::parse(R"({"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8})"));
}

TEST_F(CompletionTest, AStopEndsTheTextBeforeIt) {
  for (const bool is_stream : {false, true}) {
    begin(fmt::format(R"({{"prompt": "a", "stop": ["stop", "STOP!"], "stream": {}}})", is_stream));
    EXPECT_TRUE(write("to the sto"));
    EXPECT_EQ(text_of(events()), is_stream ? "to the " : "") << "a stop may begin with what is held back";
    EXPECT_TRUE(write("re, STO"));
    EXPECT_FALSE(write("P!and more"));
    completion_->end(0);
    if (is_stream) {
      const std::vector<json> rest = events();
      EXPECT_EQ(text_of(rest), "store, ");
      EXPECT_EQ(rest[rest.size() - 2]["choices"][0]["finish_reason"], "stop");
    } else {
      const json got = answer();
      EXPECT_EQ(got["choices"][0]["text"], "to the store, ");
      EXPECT_EQ(got["choices"][0]["finish_reason"], "stop");
      EXPECT_EQ(got["usage"]["completion_tokens"], 19);
    }
  }
  begin(R"({"prompt": "a", "stop": "stop"})");
  write("a st");
  completion_->end(0);
  EXPECT_EQ(answer()["choices"][0]["text"], "a st") << "what was held back is text if the stop does not come";
}

TEST_F(CompletionTest, CharactersComeWhole) {
  begin(R"({"prompt": "a", "stream": true})");
  write("x\xe2\x82");
  EXPECT_EQ(text_of(events()), "x");
  write("\xac");
  EXPECT_EQ(text_of(events()), "\u20ac");
  write("\xe2\x82");
  completion_->end(0);
  EXPECT_EQ(text_of(events()), "\ufffd");
}

TEST_F(CompletionTest, EchoAndScoresCoverThePromptAndTheEnd) {
  for (float& z : logits_) z = -INFINITY;
  logits_['b'] = 1, logits_['c'] = 2, logits_['d'] = 1, logits_['e'] = 1;
  const double sum = std::exp(2.0) + 3 * std::exp(1.0), high = 2 - std::log(sum), low = 1 - std::log(sum);
  begin(R"({"prompt": "xb", "echo": true, "logprobs": 2, "max_tokens": 2})");
  write("b", 0, 1);
  write("ce", 0, 2);
  completion_->end(0);
  const json choice = answer()["choices"][0];
  EXPECT_EQ(choice["text"], "xbce");
  const json& scores = choice["logprobs"];
  EXPECT_EQ(scores["tokens"], (json{"x", "b", "c", "e"}));
  EXPECT_EQ(scores["text_offset"], (json{0, 1, 2, 3}));
  EXPECT_TRUE(scores["token_logprobs"][0].is_null() && scores["top_logprobs"][0].is_null());
  EXPECT_NEAR(scores["token_logprobs"][1].get<double>(), low, 1e-12);
  EXPECT_NEAR(scores["token_logprobs"][2].get<double>(), high, 1e-12);
  const json& top = scores["top_logprobs"];
  EXPECT_EQ(top[1].size(), 2u) << "the two likeliest; the token is one of them";
  EXPECT_EQ(top[1]["b"], scores["token_logprobs"][1]);
  EXPECT_EQ(top[1]["c"], scores["token_logprobs"][2]);
  EXPECT_EQ(top[3].size(), 3u) << "the token itself is always there";
  EXPECT_EQ(top[3]["e"], scores["token_logprobs"][3]);

  begin(R"({"prompt": "x", "echo": true, "logprobs": 0, "max_tokens": 0})");
  completion_->end(0);
  const json nothing = answer();
  EXPECT_EQ(nothing["choices"][0]["text"], "x");
  EXPECT_EQ(nothing["choices"][0]["logprobs"]["tokens"], json::array({"x"}));
  EXPECT_EQ(nothing["usage"]["completion_tokens"], 0);

  begin(R"({"prompt": "x", "logprobs": 1})");
  write("\xe2z");
  completion_->end(0);
  const json odd = answer()["choices"][0]["logprobs"];
  EXPECT_EQ(odd["tokens"], (json{"bytes:\\xe2", "z"}));
  EXPECT_EQ(odd["token_logprobs"][1], -9999.0) << "JSON has no infinity";
}

TEST_F(CompletionTest, EventsOfAChatBeginWithTheRoleAndEndWithTheReason) {
  begin(
      R"({"messages": [{"role": "user", "content": "a"}], "stream": true, "logprobs": true, "top_logprobs": 1,
            "stream_options": {"include_usage": true}})",
      true);
  logits_['y'] = 3;
  write("hy");
  completion_->end(0);
  const std::vector<json> got = events();
  ASSERT_EQ(got.size(), 6u);
  EXPECT_EQ(got[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(got[0]["choices"][0]["delta"], json::parse(R"({"content": "", "role": "assistant"})"));
  EXPECT_EQ(got[1]["choices"][0]["delta"], json::parse(R"({"content": "h"})"));
  const json& first = got[1]["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["token"], "h");
  EXPECT_EQ(first["bytes"], json::array({'h'}));
  EXPECT_EQ(first["top_logprobs"][0]["token"], "y");
  EXPECT_EQ(got[2]["choices"][0]["logprobs"]["content"].size(), 1u) << "each token's scores come once";
  EXPECT_EQ(got[3]["choices"][0]["delta"], json::object());
  EXPECT_EQ(got[3]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(got[3]["usage"].is_null());
  EXPECT_EQ(got[4]["choices"], json::array());
  EXPECT_EQ(got[4]["usage"]["completion_tokens"], 2);

  begin(R"({"messages": [{"role": "user", "content": "a"}]})", true);
  write("hy");
  completion_->end(0);
  EXPECT_EQ(answer()["choices"][0]["message"], json::parse(R"({"role": "assistant", "content": "hy"})"));
}

TEST_F(CompletionTest, AFailureIsAnErrorOrTheLastEvent) {
  begin(R"({"prompt": "a"})");
  completion_->fail(500, "no");
  const std::optional<HttpAnswer> answer = completion_->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 500);
  EXPECT_EQ(json::parse(answer->body)["error"]["message"], "no");
  begin(R"({"prompt": "a", "stream": true})");
  write("x");
  completion_->fail(500, "no");
  HttpStreamState state = HttpStreamState::kWaits;
  EXPECT_THAT(completion_->events(state), HasSubstr(R"("error":{"message":"no")"));
  EXPECT_EQ(state, HttpStreamState::kEnded);
}

}  // namespace
}  // namespace ingot
