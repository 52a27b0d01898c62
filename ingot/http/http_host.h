// Names of hosts in requests and addresses.
#pragma once

#include <string>
#include <string_view>

namespace ingot {

// True for an IP address, "localhost", `own` and this machine's name, each with or without a port. A server
// refuses requests whose Host header is another name, because the page of another site may have had its name
// pointed here (DNS rebinding).
bool is_own_host(std::string_view host_header, std::string_view own);
// True for an address or name that only this machine can reach.
bool is_loopback(std::string_view host);

// "http://127.0.0.1:6464"
std::string http_url(const std::string& host, int port);

}  // namespace ingot
