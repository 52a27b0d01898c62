// Requests with bodies, answers that come later, and streams that end.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "ingot/http/http_server.h"
#include "tests/http/http_client.h"

namespace ingot {
namespace {

using test::HttpClient;
using test::kPatience_s;
using test::post;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kMaxBytes = 100'000;

class HttpBodyTest : public testing::Test {
 protected:
  ~HttpBodyTest() override {
    server_.stop();
    thread_.join();
  }

  HttpAnswer answer(const HttpRequest& request) {
    if (request.path == "/later" || request.path == "/stream") {
      // Counts the answers that the server still holds.
      ++held_;
      const std::shared_ptr<void> guard(nullptr, [this](void*) { --held_; });
      if (request.path == "/later")
        return {.later = [this, guard]() -> std::optional<HttpAnswer> {
          if (!is_ready_) return std::nullopt;
          return HttpAnswer{.status = 400, .body = "at last", .headers = "A: b\r\n"};
        }};
      return {.stream = [this, guard, n = 0](double, HttpStreamState& state) mutable -> std::string {
        if (!is_ready_) return "";
        state = ++n == 3 ? HttpStreamState::kEnded : HttpStreamState::kMore;
        return fmt::format("{} ", n);
      }};
    }
    return {.body = fmt::format("{} {}", request.body.size(), request.body.substr(0, 10))};
  }
  void wait_for_held(int count) const {
    for (const double begin_s = test::now_s(); held_ != count && test::now_s() - begin_s < kPatience_s;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(held_, count);
  }

  std::atomic<bool> is_ready_ = false;
  std::atomic<int> held_ = 0;
  HttpServer server_{"127.0.0.1",
                     0,
                     "",
                     [this](const HttpRequest& request) { return answer(request); },
                     {.streams = 3, .body_bytes = kMaxBytes}};
  std::thread thread_{[this] { server_.serve(); }};
};

TEST_F(HttpBodyTest, BodiesComeWholeAndAreBounded) {
  EXPECT_THAT(post(server_.port(), "/", ""), EndsWith("\r\n\r\n0 "));
  EXPECT_THAT(post(server_.port(), "/", "0123456789abc"), EndsWith("\r\n\r\n13 0123456789"));
  EXPECT_THAT(post(server_.port(), "/", std::string(kMaxBytes, 'x')), HasSubstr("100000 xxxx"));
  EXPECT_THAT(post(server_.port(), "/", std::string(kMaxBytes + 1, 'x')), StartsWith("HTTP/1.1 413"));
  const HttpClient parts(server_.port());
  for (const char* part :
       {"POST / HTTP/1.1\r\nHost: a\r\nContent-Len", "gth: 6\r\n\r\n01", "23", "45 more"}) {
    parts.send(part);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_THAT(parts.receive(kPatience_s), EndsWith("6 012345"));
  const HttpClient asks(server_.port());
  asks.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(asks.receive_until("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue\r\n"));
  asks.send("abc");
  EXPECT_THAT(asks.receive(kPatience_s), EndsWith("3 abc"));
  // A client that never sends the body does not delay another.
  const HttpClient silent(server_.port());
  silent.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
  EXPECT_THAT(post(server_.port(), "/", "abc"), EndsWith("3 abc"));
}

TEST_F(HttpBodyTest, TheLengthMustBeANumberOnce) {
  for (const char* headers :
       {"Content-Length: x\r\n", "Content-Length: -1\r\n", "Content-Length: 1 2\r\n", "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"}) {
    const HttpClient client(server_.port());
    client.send(fmt::format("POST / HTTP/1.1\r\nHost: a\r\n{}\r\n", headers));
    EXPECT_THAT(client.receive(kPatience_s), StartsWith("HTTP/1.1 411")) << headers;
  }
  HttpRequest request;
  EXPECT_EQ(parse_request("POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n", request), 400);
}

TEST_F(HttpBodyTest, AnAnswerMayComeLaterAndAStreamMayEnd) {
  const HttpClient later(server_.port()), stream(server_.port()), gone(server_.port());
  later.send("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
  stream.send("POST /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  gone.send("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
  wait_for_held(3);
  EXPECT_THAT(post(server_.port(), "/later", ""), StartsWith("HTTP/1.1 503"));
  gone.say_all();  // a client that has gone frees what waits for it
  wait_for_held(2);
  EXPECT_EQ(later.receive(0.05), "") << "nothing is sent before the answer is there";
  is_ready_ = true;
  server_.wake();
  EXPECT_THAT(later.receive(kPatience_s),
              testing::AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("A: b\r\n"), EndsWith("at last")));
  EXPECT_THAT(stream.receive(kPatience_s),
              testing::AllOf(StartsWith("HTTP/1.1 200"), EndsWith("\r\n\r\n1 2 3 ")));
  wait_for_held(0);
}

}  // namespace
}  // namespace ingot
