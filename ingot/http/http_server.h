// HttpServer answers requests over HTTP/1.1 on one thread, one request per connection, at once, later, or by
// a stream of events. No client can delay another or make it hold memory: heads, bodies, connections and
// times are bounded before anything is parsed (kMax...), and no call blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct HttpRequest {
  std::string method, path;                    // the path as it was sent, without the query
  std::map<std::string, std::string> query;    // decoded; the first value of each name
  std::map<std::string, std::string> headers;  // by names in lower case; the first value of each name
  std::string body;

  // Return the parameter of the query and the header; empty if there is none.
  std::string parameter(const std::string& name) const;
  std::string header(const std::string& name) const;
};

// kMore: the stream can be called again at once. kWaits: it is called again after a while, or after wake().
// kEnded: the text is its last one.
enum class HttpStreamState { kWaits, kMore, kEnded };
// Returns the next text of a stream, or "" if there is none yet. now_s: a clock that never goes back.
using HttpStream = std::function<std::string(double now_s, HttpStreamState& state)>;

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = "";
  HttpStream stream = nullptr;  // sent instead of the body until it ends or the client goes
  // If set, nothing is sent until it returns the answer, whose own `later` is ignored. It is called as
  // streams are, and destroyed when the client goes.
  std::function<std::optional<HttpAnswer>()> later = nullptr;
  std::string headers = "";  // further lines, each with "\r\n"
};

struct HttpLimits {
  size_t streams = 24;    // and answers that come later; further ones are refused with 503
  size_t body_bytes = 0;  // of a request; longer ones are refused with 413; 0: bodies are not read
};

class HttpServer {
 public:
  static constexpr size_t kMaxHeadBytes = 16 << 10;
  static constexpr size_t kMaxLineBytes = 8 << 10;
  static constexpr size_t kMaxHeaders = 100;
  static constexpr size_t kMaxConnections =
      128;  // a further one takes the place of the one that has waited longest for its request
  static constexpr double kHeadLimit_s = 5;    // from the first moment of a connection to the end of its head
  static constexpr double kBodyLimit_s = 30;   // and to the end of its body
  static constexpr double kStallLimit_s = 10;  // in which a client reads something of its answer
  static constexpr double kAnswerLimit_s = 120;  // in which it reads all of it

  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // Listens; port 0: a free one. headers: lines of every answer, each with "\r\n". The handler runs in
  // serve(); if it throws, the client gets 500 and the error's text. kUsage error if the address cannot be
  // used.
  HttpServer(const std::string& host, int port, std::string headers, Handler handler,
             const HttpLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  void serve();          // answers requests until stop()
  void stop() noexcept;  // from any thread; before serve() too
  // Makes serve() call all streams, and all answers that come later, at once. From any thread.
  void wake() noexcept;

 private:
  struct Connection;

  void accept_all(double now_s);
  bool make_room();
  void read(Connection& c, double now_s);
  void take_head(Connection& c, double now_s);
  void respond(Connection& c, double now_s);
  void send(Connection& c, HttpAnswer answer, double now_s);
  void refuse(Connection& c, int status, const char* why, double now_s);
  void write(Connection& c, double now_s);
  void finish(Connection& c);
  void refill(Connection& c, double now_s);
  double wait_s(double now_s) const;
  size_t streams() const;

  std::string headers_;
  Handler handler_;
  HttpLimits limits_;
  int listener_ = -1, waker_ = -1;
  int port_ = 0;
  std::atomic<bool> is_stopped_ = false;
  double accept_again_s_ = 0;  // after a connection could not be accepted for want of descriptors
  std::vector<std::unique_ptr<Connection>> connections_;  // the oldest first
};

// Parses the head of a request, which ends with an empty line, and returns the status of its refusal, or 0.
// Exposed for tests.
int parse_request(std::string_view head, HttpRequest& request);
// Returns the number of bytes of the request's body; nullopt if the head does not give it as a number.
std::optional<size_t> body_bytes(const HttpRequest& request);

}  // namespace ingot
