#include "apps/casemate/mcp_http.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::app {
namespace {

std::optional<mcp::HttpOptions> options_of(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return mcp_http_options(parse_line(pointers, kMcpHttpOptions), Log());
}

TEST(McpHttp, ServesNoHttpUnlessAskedTo) { EXPECT_FALSE(options_of({})); }

TEST(McpHttp, AnOptionOfHttpWithoutHttpIsRefused) {
  for (const char* option : {"--http-name", "--token-file", "--tls-cert", "--tls-key"}) {
    expect_refusal<InvalidArgument>([&] { options_of({option, "x"}); },
                                    {option, "--http HOST:PORT"});
  }
}

TEST(McpHttp, APlaceIsAHostAndAPort) {
  for (const auto& [text, host, port] :
       std::vector<std::tuple<std::string, std::string, int>>{{"127.0.0.1:8080", "127.0.0.1", 8080},
                                                              {"localhost:0", "localhost", 0},
                                                              {"[::1]:65535", "::1", 65535}}) {
    const auto options = options_of({"--http", text});
    ASSERT_TRUE(options);
    EXPECT_EQ(options->http.host, host);
    EXPECT_EQ(options->http.port, port);
  }
  for (const char* text : {"", "8080", ":8080", "localhost", "localhost:", "localhost:x", "::1:80",
                           "[]:80", "[::1:80", "localhost:65536", "localhost:-1"}) {
    expect_refusal<InvalidArgument>([&] { options_of({"--http", text}); }, "--http");
  }
}

TEST(McpHttp, ACertificateNeedsItsKey) {
  expect_refusal<InvalidArgument>([] { options_of({"--http", "localhost:0", "--tls-cert", "x"}); },
                                  "--tls-key");
  expect_refusal<InvalidArgument>([] { options_of({"--http", "localhost:0", "--tls-key", "x"}); },
                                  "--tls-cert");
}

TEST(McpHttp, WhatServingWouldRefuseIsRefusedBefore) {
  const Scratch scratch;
  expect_refusal<InvalidArgument>([] { options_of({"--http", "0.0.0.0:0"}); }, "bearer tokens");
  expect_refusal<InvalidArgument>([] { options_of({"--http", "no.such.host.invalid:0"}); },
                                  "leads to no address");
  put(scratch / "pem", "no certificate");
  expect_refusal<InvalidArgument>(
      [&] {
        options_of(
            {"--http", "localhost:0", "--tls-cert", scratch / "pem", "--tls-key", scratch / "pem"});
      },
      "the certificate");
}

TEST(McpHttp, TheTokenFileIsReadAtTheStart) {
  const Scratch scratch;
  const std::string path = scratch / "tokens";
  expect_refusal<InvalidArgument>(
      [&] { options_of({"--http", "localhost:0", "--token-file", path}); }, "cannot be read");
  put(path, "0123456789012345678901\n");
  EXPECT_TRUE(options_of({"--http", "localhost:0", "--token-file", path})->http.tokens);
}

}  // namespace
}  // namespace casemate::app
