#include "ingot/http/http_server.h"

#include <fmt/core.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

constexpr double kPoll_s = 0.25;   // between two calls of a stream
constexpr double kDrain_s = 1;     // in which a client may still send what is not read
constexpr double kNoRoom_s = 0.1;  // pause after accept() found no descriptor

double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

// Decodes %41 and + of a query; a % without two hex digits stays.
std::string decoded(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
        std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      out += static_cast<char>(16 * digit(text[i + 1]) + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Returns the text up to the separator, and removes both from `text`.
std::string_view cut(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view first = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return first;
}

std::string_view cut_line(std::string_view& text) {
  std::string_view line = cut(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string found_in(const std::map<std::string, std::string>& texts, const std::string& name) {
  const auto found = texts.find(name);
  return found == texts.end() ? "" : found->second;
}

// Returns the end of a request's head, the first empty line; 0 if it has not come yet.
size_t head_end(std::string_view text) {
  const size_t a = text.find("\r\n\r\n"), b = text.find("\n\n");
  if (a == text.npos && b == text.npos) return 0;
  return a < b ? a + 4 : b + 2;
}

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

}  // namespace

std::string HttpRequest::parameter(const std::string& name) const { return found_in(query, name); }
std::string HttpRequest::header(const std::string& name) const { return found_in(headers, name); }

std::optional<size_t> body_bytes(const HttpRequest& request) {
  const std::string text = request.header("content-length");
  size_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (request.headers.contains("transfer-encoding")) return std::nullopt;
  if (text.empty() && !request.headers.contains("content-length")) return 0;
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

int parse_request(std::string_view head, HttpRequest& request) {
  std::string_view line = cut_line(head);
  if (line.size() > HttpServer::kMaxLineBytes) return 431;
  request.method = cut(line, ' ');
  std::string_view target = cut(line, ' ');
  if (request.method.empty() || !target.starts_with('/') || !line.starts_with("HTTP/1.")) return 400;
  request.path = cut(target, '?');
  while (!target.empty()) {
    std::string_view value = cut(target, '&');
    const std::string name = decoded(cut(value, '='));
    request.query.emplace(name, decoded(value));
  }
  for (size_t n = 0; !(line = cut_line(head)).empty(); ++n) {
    if (n == HttpServer::kMaxHeaders || line.size() > HttpServer::kMaxLineBytes) return 431;
    const size_t colon = line.find(':');
    if (colon == 0 || colon == line.npos || line[0] == ' ' || line[0] == '\t') return 400;
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    while (value.ends_with(' ')) value.remove_suffix(1);
    const std::string name = lower(line.substr(0, colon));
    const bool is_new = request.headers.emplace(name, value).second;
    if (!is_new && (name == "host" || name == "content-length")) return 400;
  }
  return 0;
}

struct HttpServer::Connection {
  enum class State { kReading, kReadingBody, kWaiting, kWriting, kStreaming, kDraining, kOver };

  Connection(int descriptor, double now_s) : fd(descriptor), begin_s(now_s), moved_s(now_s) {}
  ~Connection() { close_fd(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Returns the time at which the connection is closed unless something happens.
  double deadline_s() const {
    if (state == State::kReading) return begin_s + kHeadLimit_s;
    if (state == State::kReadingBody) return begin_s + kHeadLimit_s + kBodyLimit_s;
    if (state == State::kDraining) return moved_s + kDrain_s;
    if (out.empty()) return INFINITY;
    return std::min(moved_s + kStallLimit_s, stream ? INFINITY : begin_s + kAnswerLimit_s);
  }
  bool has_output() const { return sent < out.size(); }
  // True if stream or later is called next.
  bool is_called() const { return (later || stream) && !has_output(); }

  int fd;
  State state = State::kReading;
  double begin_s, moved_s;  // of the state; of the last byte that the client took
  double call_s = 0;        // when the stream is called next
  HttpRequest request;
  std::string in, out;
  size_t body_size = 0, sent = 0;
  bool has_said_all = false;  // the client sends nothing more and still reads
  HttpStream stream = nullptr;
  std::function<std::optional<HttpAnswer>()> later = nullptr;
};

HttpServer::HttpServer(const std::string& host, int port, std::string headers, Handler handler,
                       const HttpLimits& limits)
    : headers_(std::move(headers)), handler_(std::move(handler)), limits_(limits) {
  std::string name = host;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  std::string why = "the host is unknown";
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  for (const addrinfo* at = found; at && listener_ < 0; at = at->ai_next) {
    listener_ = ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (listener_ >= 0 && ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        ::bind(listener_, at->ai_addr, at->ai_addrlen) == 0 && ::listen(listener_, 128) == 0)
      break;
    why = std::strerror(errno);
    close_fd(listener_);
  }
  if (found) ::freeaddrinfo(found);
  waker_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXSERV> service{};
  if (listener_ >= 0 && waker_ >= 0 &&
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, service.data(), service.size(),
                    NI_NUMERICSERV) == 0) {
    port_ = std::atoi(service.data());
    return;
  }
  close_fd(listener_);
  close_fd(waker_);
  fail(ErrorKind::kUsage,
       "cannot listen on port {} of {}: {}; choose another --port (0: a free one) or --host", port,
       visible_line(host), why);
}

HttpServer::~HttpServer() {
  close_fd(listener_);
  close_fd(waker_);
}

void HttpServer::stop() noexcept {
  is_stopped_ = true;
  wake();
}

void HttpServer::wake() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(waker_, &one, sizeof one);
}

size_t HttpServer::streams() const {
  return static_cast<size_t>(
      std::ranges::count_if(connections_, [](const auto& c) { return c->stream || c->later; }));
}

// Returns the seconds until something must be done without an event.
double HttpServer::wait_s(double now_s) const {
  double next_s = now_s + 60;
  if (accept_again_s_ > now_s) next_s = accept_again_s_;
  for (const auto& c : connections_) {
    next_s = std::min(next_s, c->deadline_s());
    if (c->is_called()) next_s = std::min(next_s, c->call_s);
  }
  return std::max(next_s - now_s, 0.0);
}

void HttpServer::serve() {
  std::vector<pollfd> waiting;
  while (!is_stopped_) {
    double now_s = steady_now_s();
    waiting.assign(
        {{waker_, POLLIN, 0}, {listener_, static_cast<short>(accept_again_s_ > now_s ? 0 : POLLIN), 0}});
    for (const auto& c : connections_)
      waiting.push_back(
          {c->fd, static_cast<short>((c->has_said_all ? 0 : POLLIN) | (c->has_output() ? POLLOUT : 0)), 0});
    const int ready =
        ::poll(waiting.data(), waiting.size(), static_cast<int>(std::ceil(wait_s(now_s) * 1e3)));
    if (ready < 0 && errno != EINTR)
      fail(ErrorKind::kInternal, "the server cannot wait for requests: {}", std::strerror(errno));
    now_s = steady_now_s();
    uint64_t woken = 0;
    if (ready > 0 && waiting[0].revents != 0 && ::read(waker_, &woken, sizeof woken) < 0) woken = 0;
    for (size_t i = 0; i < connections_.size() && !is_stopped_; ++i) {
      Connection& c = *connections_[i];
      const short events = ready > 0 ? waiting[i + 2].revents : static_cast<short>(0);
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read(c, now_s);
      if (c.is_called() && (now_s >= c.call_s || woken > 0)) refill(c, now_s);
      if (c.has_output()) write(c, now_s);
      if (now_s >= c.deadline_s()) c.state = Connection::State::kOver;
    }
    const auto is_over = [](const auto& c) { return c->state == Connection::State::kOver; };
    std::erase_if(connections_, is_over);
    if (ready > 0 && waiting[1].revents != 0) accept_all(now_s);
    std::erase_if(connections_, is_over);
  }
  connections_.clear();
}

// Closes the connection that has waited longest for its request. Returns false if there is none.
bool HttpServer::make_room() {
  const auto oldest = std::ranges::find_if(connections_, [](const auto& c) {
    return c->state == Connection::State::kReading || c->state == Connection::State::kReadingBody ||
           c->state == Connection::State::kDraining;
  });
  if (oldest == connections_.end()) return false;
  connections_.erase(oldest);
  return true;
}

void HttpServer::accept_all(double now_s) {
  while (true) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const bool is_full = errno == EMFILE || errno == ENFILE;
      if (is_full && make_room()) continue;
      if (is_full) accept_again_s_ = now_s + kNoRoom_s;
      return;
    }
    if (connections_.size() >= kMaxConnections && !make_room()) {
      ::close(fd);
      continue;
    }
    connections_.push_back(std::make_unique<Connection>(fd, now_s));
    read(*connections_.back(), now_s);
  }
}

void HttpServer::read(Connection& c, double now_s) {
  std::array<char, 16 << 10> buffer;
  const ssize_t n = ::recv(c.fd, buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == 0 && c.state == Connection::State::kWriting) {
    c.has_said_all = true;
    return;
  }
  if (n <= 0) {
    c.state = Connection::State::kOver;
    return;
  }
  using State = Connection::State;
  if (c.state != State::kReading && c.state != State::kReadingBody)
    return;  // what comes after the request is dropped
  c.in.append(buffer.data(), static_cast<size_t>(n));
  if (c.state == State::kReading && (head_end(c.in) > 0 || c.in.size() > kMaxHeadBytes))
    take_head(c, now_s);
  else if (c.state == State::kReadingBody && c.in.size() >= c.body_size)
    respond(c, now_s);
}

void HttpServer::refuse(Connection& c, int status, const char* why, double now_s) {
  c.in = {};
  send(c, {.status = status, .body = std::string(why) + "\n"}, now_s);
}

void HttpServer::take_head(Connection& c, double now_s) {
  const size_t end = head_end(c.in);
  const int status =
      end == 0 || end > kMaxHeadBytes ? 431 : parse_request(std::string_view(c.in).substr(0, end), c.request);
  if (status == 431) return refuse(c, status, "the request is too long", now_s);
  if (status == 400) return refuse(c, status, "the request is not HTTP/1.1", now_s);
  c.in.erase(0, end);
  if (limits_.body_bytes > 0) {
    const std::optional<size_t> size = body_bytes(c.request);
    if (!size) return refuse(c, 411, "give the length of the body as Content-Length", now_s);
    if (*size > limits_.body_bytes) return refuse(c, 413, "the body is too long", now_s);
    c.body_size = *size;
  }
  c.state = Connection::State::kReadingBody;
  if (c.in.size() >= c.body_size) return respond(c, now_s);
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (lower(c.request.header("expect")) == "100-continue")
    ::send(c.fd, kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
}

void HttpServer::respond(Connection& c, double now_s) {
  HttpAnswer answer;
  c.in.resize(c.body_size);
  c.request.body = std::move(c.in);
  c.in = {};
  try {
    answer = handler_(c.request);
  } catch (const std::exception& error) {
    answer = {.status = 500, .body = visible_text(error.what()) + "\n"};
  }
  c.request.body = {};
  if ((answer.stream || answer.later) && streams() >= limits_.streams)
    answer = {.status = 503, .body = "too many clients wait; try again later\n"};
  if (!answer.later) return send(c, std::move(answer), now_s);
  c.state = Connection::State::kWaiting;
  c.later = std::move(answer.later);
}

void HttpServer::send(Connection& c, HttpAnswer answer, double now_s) {
  c.out = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", answer.status, reason_of(answer.status),
                      answer.type);
  if (!answer.stream) c.out += fmt::format("Content-Length: {}\r\n", answer.body.size());
  c.out += headers_ + answer.headers + "Connection: close\r\n\r\n";
  const bool is_head_only = c.request.method == "HEAD";
  if (!is_head_only) c.out += answer.body;
  c.state = Connection::State::kWriting;
  c.begin_s = c.moved_s = now_s;
  if (answer.stream && !is_head_only) {
    c.stream = std::move(answer.stream);
    c.state = Connection::State::kStreaming;
  }
  write(c, now_s);
}

void HttpServer::write(Connection& c, double now_s) {
  const ssize_t n = ::send(c.fd, c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR) c.state = Connection::State::kOver;
    return;
  }
  c.moved_s = now_s;
  c.sent += static_cast<size_t>(n);
  if (c.has_output()) return;
  c.out.clear();
  c.sent = 0;
  if (!c.stream) finish(c);
}

void HttpServer::finish(Connection& c) {
  // If the socket were closed with unread bytes, the client could lose the answer.
  ::shutdown(c.fd, SHUT_WR);
  c.state = c.has_said_all ? Connection::State::kOver : Connection::State::kDraining;
}

void HttpServer::refill(Connection& c, double now_s) {
  HttpStreamState state = HttpStreamState::kWaits;
  try {
    if (c.later) {
      std::optional<HttpAnswer> answer = c.later();
      if (!answer) {
        c.call_s = now_s + kPoll_s;
        return;
      }
      c.later = nullptr;
      return send(c, std::move(*answer), now_s);
    }
    c.out = c.stream(now_s, state);
  } catch (const std::exception&) {
    c.state = Connection::State::kOver;  // the client may ask again
    return;
  }
  c.moved_s = now_s;
  c.call_s = state == HttpStreamState::kMore ? now_s : now_s + kPoll_s;
  if (state != HttpStreamState::kEnded) return;
  c.stream = nullptr;
  c.state = Connection::State::kWriting;
  c.begin_s = now_s;
  if (c.out.empty()) finish(c);
}

}  // namespace ingot
