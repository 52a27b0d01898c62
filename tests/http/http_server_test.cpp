// Tests that hostile and slow clients of `ingot serve` cannot do anything to others.
#include "ingot/http/http_server.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <thread>

#include "tests/http/http_client.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr size_t kLarge = 8 << 20;  // more than a socket holds

using Client = test::HttpClient;
using test::kPatience_s;
using test::now_s;

class HttpServerTest : public testing::Test {
 protected:
  ~HttpServerTest() override { stop(); }

  static HttpAnswer answer(const HttpRequest& request) {
    if (request.path == "/large") return {.body = std::string(kLarge, 'x')};
    if (request.path == "/throw") throw std::runtime_error("no\x1b[2J");
    if (request.path == "/stream")
      return {.type = "text/event-stream", .body = "", .stream = [](double, HttpStreamState&) {
                return "data\n";
              }};
    return {.body = request.method + " " + request.path + " " + request.parameter("a") + "|" +
                    request.header("host")};
  }
  // Returns the answer to a whole request, for which a busy machine has time.
  std::string get(const std::string& path, const std::string& more = "", const char* method = "GET") const {
    const Client client(server_.port());
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", method, path, more));
    return client.receive(kPatience_s);
  }
  void stop() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }

  HttpServer server_{"127.0.0.1", 0, "X: y\r\n", answer};
  std::thread thread_{[this] { server_.serve(); }};
};

TEST_F(HttpServerTest, AnswersOneRequestAndCloses) {
  EXPECT_EQ(get("/p?a=1%20%2b+%zz&a=2"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\nX: y\r\n"
            "Connection: close\r\n\r\nGET /p 1 + %zz|localhost");
  EXPECT_THAT(get("/p", "", "HEAD"), testing::EndsWith("close\r\n\r\n"));
  EXPECT_THAT(get("/throw"), testing::AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("no\\x1b[2J")));
  EXPECT_EQ(get("/large").size(), kLarge + get("/large", "", "HEAD").size());
  const Client halves(server_.port());
  for (const char* part : {"GET /p HT", "TP/1.1\r\nHost: a", "\r\n", "\r\n"}) {
    halves.send(part);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  halves.say_all();
  EXPECT_THAT(halves.receive(kPatience_s), HasSubstr("GET /p |a"));
}

TEST_F(HttpServerTest, HeadsAreBoundedBeforeTheyAreParsed) {
  const std::string line = "X: a\r\n";
  std::string headers;
  for (size_t i = 0; i + 1 < HttpServer::kMaxHeaders; ++i) headers += line;
  EXPECT_THAT(get("/", headers), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get("/", headers + line), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(get("/", "X: " + std::string(HttpServer::kMaxLineBytes - 3, 'a') + "\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get("/", "X: " + std::string(HttpServer::kMaxLineBytes, 'a') + "\r\n"),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(get("/" + std::string(HttpServer::kMaxLineBytes, 'a')), StartsWith("HTTP/1.1 431"));
  // The server takes no more of an endless head than the bound, and drops the rest for a moment.
  for (const std::string& endless : {std::string("X: a\r\n"), std::string(1000, 'a')}) {
    const Client client(server_.port());
    client.send("GET / HTTP/1.1\r\n");
    const double begin_s = now_s();
    while (now_s() - begin_s < 4 && client.send(endless)) {
    }
    EXPECT_LT(now_s() - begin_s, 3) << "the connection was closed";
  }
}

TEST_F(HttpServerTest, WhatIsNotHttpIsRefused) {
  for (const char* head :
       {"\r\n\r\n", "GET\r\n\r\n", "GET / \r\n\r\n", "GET / FTP/1\r\n\r\n", "GET a HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\n: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n"}) {
    HttpRequest request;
    EXPECT_EQ(parse_request(head, request), 400) << head;
  }
  HttpRequest request;
  EXPECT_EQ(parse_request("GET /?x&y=%4&=1&z=%00 HTTP/1.0\nHOST:  a \n\n", request), 0);
  EXPECT_EQ(request.header("host"), "a");
  EXPECT_EQ(request.parameter("y"), "%4");
  EXPECT_EQ(request.parameter("z"), std::string(1, '\0'));
}

TEST_F(HttpServerTest, SlowClientsDelayNobody) {
  std::vector<Client> slow;
  for (int i = 0; i < 300; ++i) {
    slow.emplace_back(server_.port());
    slow.back().send(i % 2 ? "GET / HTTP/1.1\r\nX" : "");
  }
  for (int i = 0; i < 30; ++i) {  // these ask for much and read nothing
    slow.emplace_back(server_.port());
    slow.back().send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  // If a client had to wait for the slow ones, its answer would come after their limit.
  for (int i = 0; i < 20; ++i) {
    const double begin_s = now_s();
    EXPECT_THAT(get("/p"), HasSubstr("GET /p"));
    EXPECT_LT(now_s() - begin_s, HttpServer::kHeadLimit_s);
  }
}

TEST_F(HttpServerTest, StreamsAreBoundedAndTheOthersAreClosed) {
  std::vector<Client> open;
  for (size_t i = 0; i < HttpLimits().streams; ++i) {
    open.emplace_back(server_.port());
    open.back().send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_THAT(open.back().receive_until("data\n"), StartsWith("HTTP/1.1 200")) << i;
  }
  for (int i = 0; i < 200; ++i) {
    const Client further(server_.port());
    further.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    bool has_ended = false;
    EXPECT_THAT(further.receive(kPatience_s, &has_ended), StartsWith("HTTP/1.1 503"));
    EXPECT_TRUE(has_ended);
  }
  EXPECT_THAT(get("/p"), HasSubstr("GET /p"));
  open.pop_back();
  std::string text;  // refused until the server has seen that one is gone
  for (const double begin_s = now_s();
       !text.starts_with("HTTP/1.1 200") && now_s() - begin_s < kPatience_s;) {
    const Client next(server_.port());
    next.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    text = next.receive_until("data\ndata\n");
  }
  EXPECT_THAT(text, testing::AllOf(StartsWith("HTTP/1.1 200"), testing::EndsWith("data\ndata\n")));
}

TEST_F(HttpServerTest, StopDoesNotWaitForClients) {
  std::vector<Client> slow;
  for (const char* begun : {"", "GET / HT", "GET /stream HTTP/1.1\r\n\r\n", "GET /large HTTP/1.1\r\n\r\n"})
    for (int i = 0; i < 20; ++i) {
      slow.emplace_back(server_.port());
      slow.back().send(begun);
    }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double begin_s = now_s();
  stop();
  EXPECT_LT(now_s() - begin_s, HttpServer::kHeadLimit_s);
}

// Waits for the limits.
TEST(LongHttpServer, WhoDoesNotFinishARequestOrReadsNothingIsClosed) {
  HttpServer server("127.0.0.1", 0, "",
                    [](const HttpRequest&) { return HttpAnswer{.body = std::string(30 << 20, 'x')}; });
  std::thread thread([&] { server.serve(); });
  const Client dribbling(server.port()), silent(server.port()), deaf(server.port());
  deaf.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const double begin_s = now_s();
  while (now_s() - begin_s < 20 && dribbling.send("G"))
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_NEAR(now_s() - begin_s, HttpServer::kHeadLimit_s, 1.5);
  bool has_ended = false;
  EXPECT_THAT(silent.receive(0.1, &has_ended), IsEmpty());
  EXPECT_TRUE(has_ended);
  std::this_thread::sleep_for(
      std::chrono::duration<double>(begin_s + HttpServer::kStallLimit_s + 1 - now_s()));
  EXPECT_LT(deaf.receive(2, &has_ended).size(), 30u << 20);
  EXPECT_TRUE(has_ended);
  server.stop();
  thread.join();
}

}  // namespace
}  // namespace ingot
