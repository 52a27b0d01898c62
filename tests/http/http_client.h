// A client of an HTTP server of this process.
#pragma once

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace ingot::test {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr double kPatience_s = 60;

class HttpClient {
 public:
  explicit HttpClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~HttpClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  HttpClient(HttpClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Returns false once the server has closed the connection.
  bool send(std::string_view text) const {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void say_all() const { ::shutdown(fd_, SHUT_WR); }
  // Returns what comes until the server closes or the seconds are over; has_ended says which.
  std::string receive(double seconds, bool* has_ended = nullptr) const {
    std::string text;
    const double end_s = now_s() + seconds;
    pollfd waiting{fd_, POLLIN, 0};
    while (now_s() < end_s && ::poll(&waiting, 1, static_cast<int>(1e3 * (end_s - now_s())) + 1) > 0) {
      char buffer[65536];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (has_ended) *has_ended = n <= 0;
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
  // Returns what comes until it contains the text, or the server closes.
  std::string receive_until(std::string_view wanted) const {
    std::string text;
    const double end_s = now_s() + kPatience_s;
    for (bool has_ended = false; !has_ended && now_s() < end_s && text.find(wanted) == std::string::npos;)
      text += receive(0.01, &has_ended);
    return text;
  }

 private:
  int fd_;
};

// Returns the whole answer to a request with a body, for which a busy machine has time.
inline std::string post(int port, const std::string& path, const std::string& body,
                        const std::string& more = "", const char* method = "POST") {
  const HttpClient client(port);
  client.send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
                          more, body.size(), body));
  return client.receive(kPatience_s);
}

}  // namespace ingot::test
