#include "casemate/mcp/http_head.h"

#include <gtest/gtest.h>

namespace casemate::mcp {
namespace {

HttpHead post(std::initializer_list<std::pair<std::string_view, std::string_view>> more = {}) {
  HttpHead head{.method = "POST", .target = "/mcp"};
  head.add("Content-Type", "application/json");
  head.add("Accept", "application/json, text/event-stream");
  for (const auto& [name, value] : more) head.add(name, value);
  return head;
}

unsigned named(const HttpNames& names,
               std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  const auto refusal = check_names(post(fields), names);
  return refusal ? refusal->status : 200;
}

unsigned formed(const HttpHead& head) {
  const auto refusal = check_form(head, "/mcp");
  return refusal ? refusal->status : 200;
}

TEST(HttpHead, AHostFieldThatNamesAnotherThanLoopbackIsRefusedOnLoopback) {
  for (const std::string_view host :
       {"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example",
        "128.0.0.1", "[::2]", "[::ffff:10.0.0.1]", "10.0.0.1:8080", "localhost@evil", "local host",
        "127.0.0.1:80:80", "[::1", "[::1]x", "0x7f.1", "127.1", "localhost:port", "[::1%lo]"}) {
    EXPECT_NE(named({}, {{"Host", host}}), 200u) << host;
  }
  EXPECT_EQ(named({}, {{"Host", "evil.example"}}), 403u);
  EXPECT_EQ(named({}, {}), 400u);
  EXPECT_EQ(named({}, {{"Host", ""}}), 400u);
  EXPECT_EQ(named({}, {{"Host", "localhost"}, {"host", "localhost"}}), 400u);
}

TEST(HttpHead, AnyLoopbackSpellingIsOurNameOnLoopback) {
  for (const std::string_view host :
       {"localhost", "LocalHost:8080", "localhost.", "127.0.0.1", "127.8.9.10:1", "[::1]",
        "[::1]:65535", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]:80", "localhost:"}) {
    EXPECT_EQ(named({}, {{"Host", host}}), 200u) << host;
  }
}

TEST(HttpHead, BeyondLoopbackAddressesAndGivenNamesAreOursAndOtherNamesAreNot) {
  const HttpNames names{.loopback_only = false, .also = {"mcp.example"}};
  for (const std::string_view host :
       {"192.0.2.7:8080", "[2001:db8::7]", "mcp.example", "MCP.example.:443", "localhost"}) {
    EXPECT_EQ(named(names, {{"Host", host}}), 200u) << host;
  }
  EXPECT_EQ(named(names, {{"Host", "evil.example"}}), 403u);
  EXPECT_EQ(named(names, {{"Host", "x.mcp.example"}}), 403u);
}

TEST(HttpHead, BeyondLoopbackAPageAtAnAddressIsOneOfOursOnlyAtTheAddressThatItAsks) {
  const HttpNames names{.loopback_only = false, .also = {"mcp.example"}};
  const auto from = [&](std::string_view origin, std::string_view host) {
    return named(names, {{"Host", host}, {"Origin", origin}});
  };
  EXPECT_EQ(from("http://192.0.2.7:8080", "192.0.2.7:9000"), 200u);
  EXPECT_EQ(from("https://[2001:db8::7]", "[2001:db8::7]"), 200u);
  EXPECT_EQ(from("https://mcp.example", "192.0.2.7"), 200u);
  for (const std::string_view origin :
       {"http://198.51.100.1", "http://[2001:db8::8]", "http://127.0.0.1", "http://localhost:3000",
        "http://[::1]", "http://192.0.2.70", "http://evil.example"}) {
    EXPECT_EQ(from(origin, "192.0.2.7:9000"), 403u) << origin;
  }
}

TEST(HttpHead, APageOfAnotherOriginIsRefusedAndItsAbsenceIsFine) {
  for (const std::string_view origin :
       {"http://evil.example", "https://evil.example:8080", "null", "", "file://", "localhost",
        "http://localhost@evil.example", "http://", "ftp://localhost", "http://localhost/x"}) {
    EXPECT_EQ(named({}, {{"Host", "localhost"}, {"Origin", origin}}), 403u) << origin;
  }
  for (const std::string_view origin :
       {"http://localhost:3000", "https://127.0.0.1", "HTTP://[::1]:8080"}) {
    EXPECT_EQ(named({}, {{"Host", "localhost"}, {"Origin", origin}}), 200u) << origin;
  }
  EXPECT_EQ(named({}, {{"Host", "localhost"},
                       {"Origin", "http://localhost"},
                       {"Origin", "http://evil.example"}}),
            400u);
}

TEST(HttpHead, ABearerTokenIsTakenFromItsSchemeAlone) {
  const auto token = [](std::string_view value) {
    return std::string(bearer_token(post({{"Authorization", value}})).value_or("(none)"));
  };
  EXPECT_EQ(token("Bearer abc"), "abc");
  EXPECT_EQ(token("bEaReR   abc  "), "abc");
  EXPECT_EQ(token("Basic abc"), "(none)");
  EXPECT_EQ(token("Bearer"), "(none)");
  EXPECT_EQ(token("Bearer "), "(none)");
  EXPECT_EQ(token("Bearerabc"), "(none)");
  EXPECT_EQ(token("abc"), "(none)");
}

TEST(HttpHead, AnotherPathMethodOrTypeIsRefusedWithItsStatus) {
  EXPECT_EQ(formed(post()), 200u);
  HttpHead head = post();
  head.target = "/mcp?x=1";
  EXPECT_EQ(formed(head), 200u);
  for (const std::string_view target : {"/", "/mcp/", "/mcpx", "/MCP", "mcp", "//mcp", "/x/../mcp",
                                        "http://localhost/mcp", "*", "/%6dcp"}) {
    head.target = target;
    EXPECT_EQ(formed(head), 404u) << target;
  }
  for (const std::string_view method : {"PUT", "OPTIONS", "HEAD", "get", "PATCH", "TRACE"}) {
    head = post();
    head.method = method;
    EXPECT_EQ(formed(head), 405u) << method;
  }
  head = {.method = "POST", .target = "/mcp"};
  EXPECT_EQ(formed(head), 415u);
  head.add("Content-Type", "Application/JSON ; charset=utf-8");
  EXPECT_EQ(formed(head), 200u);
}

TEST(HttpHead, WhoCannotReadBothKindsOfAnswersIsRefused) {
  const auto accepting = [](std::string_view method, std::string_view ranges) {
    HttpHead head{.method = std::string(method), .target = "/mcp"};
    head.add("Content-Type", "application/json");
    head.add("Accept", ranges);
    return formed(head);
  };
  EXPECT_EQ(accepting("POST", "application/json"), 406u);
  EXPECT_EQ(accepting("POST", "text/event-stream"), 406u);
  EXPECT_EQ(accepting("POST", "text/html, image/*"), 406u);
  EXPECT_EQ(accepting("POST", "application/json, text/event-stream;q=0"), 406u);
  EXPECT_EQ(accepting("POST", "application/json, text/event-stream; q=0.000"), 406u);
  EXPECT_EQ(accepting("POST", "text/event-stream, application/json"), 200u);
  EXPECT_EQ(accepting("POST", "text/*, application/json;q=0.5"), 200u);
  EXPECT_EQ(accepting("POST", "*/*"), 200u);
  EXPECT_EQ(accepting("GET", "application/json"), 406u);
  EXPECT_EQ(accepting("GET", "text/event-stream"), 200u);
}

TEST(HttpHead, AnAcceptFieldInTwoLinesReadsAsOneList) {
  HttpHead head{.method = "POST", .target = "/mcp"};
  head.add("content-type", "application/json");
  head.add("accept", "application/json");
  head.add("ACCEPT", "text/event-stream");
  EXPECT_EQ(formed(head), 200u);
}

TEST(HttpHead, FieldsOfMcpAreKeptAndOthersAreNot) {
  const HttpHead head =
      post({{"MCP-Session-Id", " x "}, {"Mcp-Param-Region", "y"}, {"Cookie", "z"}});
  EXPECT_EQ(head.field("mcp-session-id"), "x");
  EXPECT_EQ(head.field("mcp-param-region"), "y");
  EXPECT_FALSE(head.field("cookie"));
  EXPECT_EQ(check_names(post({{"Mcp-Session-Id", "x"}, {"mcp-session-id", "y"}}), {})->status,
            400u);
}

}  // namespace
}  // namespace casemate::mcp
