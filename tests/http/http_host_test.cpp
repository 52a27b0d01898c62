#include "ingot/http/http_host.h"

#include <gtest/gtest.h>

#include <string>

namespace ingot {
namespace {

TEST(HttpHost, NamesOfOtherSitesAreNotOwn) {
  for (const char* host :
       {"127.0.0.1:6464", "127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:6464", "10.0.0.7:80", "node7:6464"})
    EXPECT_TRUE(is_own_host(host, "node7")) << host;
  for (const char* host :
       {"", "evil.example", "evil.example:6464", "127.0.0.1.evil.example", "localhost.evil.example", "node8",
        "[::1", "[]", "1.2.3", "127.0.0.1@evil.example"})
    EXPECT_EQ(is_own_host(host, "node7"), std::string(host) == "[::1") << host;
  for (const char* host : {"127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example", "node7"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(HttpHost, AddressesOfVersionSixAreBracketed) {
  EXPECT_EQ(http_url("127.0.0.1", 80), "http://127.0.0.1:80");
  EXPECT_EQ(http_url("::1", 80), "http://[::1]:80");
  EXPECT_EQ(http_url("[::1]", 80), "http://[::1]:80");
}

}  // namespace
}  // namespace ingot
