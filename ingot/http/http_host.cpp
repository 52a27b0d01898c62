#include "ingot/http/http_host.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace ingot {
namespace {

// Returns the host of "host", "host:port", "[v6]" or "[v6]:port" in lower case.
std::string host_of(std::string_view text) {
  std::string host;
  if (text.starts_with("["))
    host = text.substr(1, std::min(text.find(']'), text.size()) - 1);
  else if (std::ranges::count(text, ':') > 1)
    host = text;
  else
    host = text.substr(0, text.find(':'));
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  return host;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return host_of(name.data());
}

}  // namespace

bool is_own_host(std::string_view host_header, std::string_view own) {
  const std::string host = host_of(host_header);
  if (host.empty()) return false;
  return is_address(host) || host == "localhost" || host == host_of(own) || host == machine_name();
}

bool is_loopback(std::string_view host) {
  const std::string name = host_of(host);
  return name == "localhost" || name == "::1" || (name.starts_with("127.") && is_address(name));
}

std::string http_url(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos && !host.starts_with("[");
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

}  // namespace ingot
