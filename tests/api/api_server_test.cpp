// `ingot api` with a model: answers are those of `ingot generate` and `ingot chat`, for any number of them.
#include "ingot/api/api_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "ingot/run/chat_session.h"
#include "ingot/run/run.h"
#include "tests/http/http_client.h"
#include "tests/reference/error_of.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::HttpClient;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// A model with the template of ChatML, trained for a few steps.
class ApiServerTest : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    const std::vector<std::string_view> texts = {"the cat sat on a mat. the dog ran. who ran? a dog."};
    const auto tokenizer = train_bpe(
        texts, {.vocab_size = 290, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
    make_folders(folder / "tokens");
    write_file(folder / "tokens/tokenizer.json", tokenizer->to_json());
    TokenizerSideFiles side;
    side.chat_jinja = read_file(fs::path(INGOT_TEST_DATA) / "chat/chatml.jinja");
    side.tokens = {{"eos_token", "<|im_end|>"}};
    write_side_files(side, folder / "tokens");
    RunConfig c = config(DType::f32);
    c.model.context = 128;
    c.data.tokenizer = (folder / "tokens").string();
    c.train.steps = 5;
    train(c, folder / "run");
    start({});
  }
  void TearDown() override { stop(); }
  void start(ApiOptions options) {
    stop();
    options.port = 0;
    server_.emplace(folder / "run", options);
    port_ = std::stoi(server_->url().substr(server_->url().rfind(':') + 1));
    thread_ = std::thread([this] { server_->serve(); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }
  json ask(const std::string& body, const char* path = "/v1/completions") const {
    const std::string answer = test::post(port_, path, body);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n")) << body;
    return json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }
  json health() const {
    const std::string answer = test::post(port_, "/health", "", "", "GET");
    return json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }
  // Waits until so many texts are written.
  void wait_for_running(int count) const {
    for (const double begin_s = test::now_s();
         health()["running"] != count && test::now_s() - begin_s < test::kPatience_s;)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(health()["running"], count);
  }
  // Returns what `ingot generate` writes after the prompt.
  std::string generated(const std::string& prompt, int64_t tokens, const SampleConfig& sample,
                        uint64_t seed) {
    GenerateOptions options;
    options.prompts = {prompt};
    options.tokens = tokens;
    options.sample = sample;
    options.seed = seed;
    std::string text;
    generate_from_checkpoint(folder / "run", options,
                             [&](size_t, std::string_view piece, bool) { text += piece; });
    return text.substr(prompt.size());
  }

  std::optional<ApiServer> server_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(ApiServerTest, TextsAreThoseOfGenerate) {
  const json greedy = ask(R"({"prompt": "the cat", "max_tokens": 20, "temperature": 0})");
  EXPECT_EQ(greedy["choices"][0]["text"], generated("the cat", 20, {.temperature = 0}, 0));
  const json random = ask(
      R"({"prompt": ["the cat", "a dog"], "max_tokens": 20, "temperature": 0.9, "top_k": 50, "top_p": 0.95,
              "seed": 5, "n": 2})");
  ASSERT_EQ(random["choices"].size(), 4u);
  const SampleConfig sample{.temperature = 0.9F, .top_k = 50, .top_p = 0.95F};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(random["choices"][i]["text"], generated(i < 2 ? "the cat" : "a dog", 20, sample, 5 + i)) << i;
}

TEST_F(ApiServerTest, AnAnswerDoesNotDependOnOtherRequests) {
  const auto body = [](int i) {
    return fmt::format(
        R"({{"prompt": "{}", "max_tokens": {}, "seed": {}, "logprobs": 1, "echo": {}, "stop": "zq"}})",
        std::string("the cat sat on a mat. the dog ran.").substr(0, static_cast<size_t>(1 + 3 * (i % 11))),
        5 + i % 9, i, i % 3 == 0);
  };
  constexpr int kRequests = 40;
  std::vector<json> alone, together(kRequests);
  for (int i = 0; i < kRequests; ++i) alone.push_back(ask(body(i))["choices"]);
  std::vector<std::thread> clients;
  for (int t = 0; t < 10; ++t)
    clients.emplace_back([&, t] {
      for (int i = t; i < kRequests; i += 10) together[static_cast<size_t>(i)] = ask(body(i))["choices"];
    });
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(together[i][0]["text"], alone[i][0]["text"]) << i;
    const json &got = together[i][0]["logprobs"]["token_logprobs"],
               &want = alone[i][0]["logprobs"]["token_logprobs"];
    ASSERT_EQ(got.size(), want.size());
    for (size_t j = 0; j < want.size(); ++j) {
      ASSERT_EQ(got[j].is_null(), want[j].is_null());
      if (want[j].is_null()) continue;
      EXPECT_NEAR(got[j].get<double>(), want[j].get<double>(), 1e-5) << i << " " << j;
    }
  }
  EXPECT_EQ(health(), json::parse(R"({"status": "ok", "waiting": 0, "running": 0})"));
}

TEST_F(ApiServerTest, AStreamHasTheTextOfTheAnswer) {
  const std::string body = R"({"prompt": "the", "max_tokens": 30, "seed": 3, "logprobs": 0)";
  const json whole = ask(body + "}")["choices"][0];
  const std::string stream = test::post(port_, "/v1/completions", body + R"(, "stream": true})");
  EXPECT_THAT(stream,
              AllOf(HasSubstr("Content-Type: text/event-stream"), testing::EndsWith("data: [DONE]\n\n")));
  std::string text;
  json tokens = json::array();
  for (size_t at = stream.find("data: {"); at != stream.npos; at = stream.find("data: {", at + 1)) {
    const json choice = json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6))["choices"][0];
    text += choice["text"];
    for (const json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
  }
  EXPECT_EQ(text, whole["text"].get<std::string>());
  EXPECT_EQ(tokens, whole["logprobs"]["tokens"]);
}

TEST_F(ApiServerTest, AChatIsAnsweredAsByIngotChat) {
  ChatOptions options;
  options.sample = {.temperature = 0};
  options.tokens = 12;
  options.system = "the cat";
  ChatSession session(folder / "run", options);
  json messages = {{{"role", "system"}, {"content", "the cat"}}};
  for (const char* question : {"who ran?", "a dog?"}) {
    std::string want;
    session.ask(question, [&](std::string_view piece) {
      want += piece;
      return true;
    });
    messages.push_back({{"role", "user"}, {"content", question}});
    const json got = ask(json{{"messages", messages}, {"temperature", 0}, {"max_tokens", 12}}.dump(),
                         "/v1/chat/completions");
    EXPECT_EQ(got["choices"][0]["message"]["content"], want);
    EXPECT_EQ(got["object"], "chat.completion");
    messages.push_back(got["choices"][0]["message"]);
  }
}

TEST_F(ApiServerTest, AnAnswerEndsWithTheContext) {
  const json got = ask(R"({"prompt": "the cat sat", "max_tokens": 5000, "temperature": 0})");
  const int64_t read = got["usage"]["prompt_tokens"], written = got["usage"]["completion_tokens"];
  EXPECT_LE(read + written, 128 + 1);
  EXPECT_EQ(got["choices"][0]["finish_reason"] == "length", read + written == 128 + 1);
}

TEST_F(ApiServerTest, RefusalsAreErrorsOfTheInterface) {
  const auto error_of = [&](const std::string& answer) {
    return json::parse(answer.substr(answer.find("\r\n\r\n") + 4))["error"];
  };
  const std::string bad = test::post(port_, "/v1/completions", R"({"prompt": "a", "n": 0})");
  EXPECT_THAT(bad, StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(error_of(bad)["param"], "n");
  EXPECT_EQ(error_of(bad)["type"], "invalid_request_error");
  EXPECT_THAT(test::post(port_, "/v1/completions", "", "", "GET"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: POST\r\n")));
  EXPECT_THAT(test::post(port_, "/v1/models", "", "", "POST"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n")));
  EXPECT_THAT(test::post(port_, "/v1/embeddings", "{}"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(test::post(port_, "/v1/completions", std::string(10 << 20, 'a')), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(test::post(port_, "/v1/completions", "{}", "Origin: https://evil.example\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(test::post(port_, "/v1/completions", "{}", "Origin: http://localhost:3000\r\n"),
              StartsWith("HTTP/1.1 400"));
  const HttpClient other(port_);
  other.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_THAT(other.receive(test::kPatience_s), StartsWith("HTTP/1.1 403"));
  EXPECT_EQ(json::parse(test::post(port_, "/v1/models", "", "", "GET")
                            .substr(0)
                            .substr(test::post(port_, "/v1/models", "", "", "GET").find("\r\n\r\n") +
                                    4))["data"][0]["id"],
            "run");
}

TEST_F(ApiServerTest, OthersNeedAKey) {
  ApiOptions options;
  options.host = "0.0.0.0";
  EXPECT_THAT(usage_error([&] { const ApiServer open(folder / "run", options); }),
              HasSubstr("there is no --api-key"));
  options.host = "127.0.0.1";
  options.key = "secret";
  start(options);
  const std::string body = R"({"prompt": "a", "max_tokens": 1})";
  for (const char* header : {"", "Authorization: secret\r\n", "Authorization: Bearer secre\r\n",
                             "Authorization: Bearer secret2\r\n", "Authorization: Bearer \r\n"})
    EXPECT_THAT(test::post(port_, "/v1/completions", body, header),
                AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer\r\n")))
        << header;
  EXPECT_THAT(test::post(port_, "/v1/completions", body, "Authorization: Bearer secret\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(health()["status"], "ok");
}

// There is one slot, so a text that no client waits for would keep others waiting.
TEST_F(ApiServerTest, AClientThatGoesAwayFreesItsSlot) {
  ApiOptions options;
  options.slots = 1;
  start(options);
  const std::string body = R"({"prompt": "a", "n": 256, "max_tokens": 100, "stream": true})";
  {
    const HttpClient client(port_);
    client.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body));
    client.receive_until("data: ");
    EXPECT_GT(health()["waiting"].get<int>() + health()["running"].get<int>(), 0);
  }
  for (const double begin_s = test::now_s();
       health()["waiting"] != 0 && test::now_s() - begin_s < test::kPatience_s;)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  wait_for_running(0);
  ask(R"({"prompt": "a", "max_tokens": 1})");
}

TEST_F(ApiServerTest, AHundredClientsAreAnsweredAndFurtherOnesRefused) {
  std::atomic<int> answered = 0, refused = 0, others = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 120; ++i)
    clients.emplace_back([&] {
      const std::string answer =
          test::post(port_, "/v1/completions", R"({"prompt": "a", "max_tokens": 60, "n": 2})");
      ++(answer.starts_with("HTTP/1.1 200")   ? answered
         : answer.starts_with("HTTP/1.1 503") ? refused
                                              : others);
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(others, 0);
  EXPECT_GE(answered, static_cast<int>(ApiServer::kMaxClients));
  EXPECT_EQ(answered + refused, 120);
  wait_for_running(0);
}

}  // namespace
}  // namespace ingot
