#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>

#include "casemate/guest/agent/doors/chunked_body.h"
#include "casemate/guest/agent/doors/request_head.h"
#include "casemate/guest/agent/doors/response_head.h"

using namespace std::string_literals;
using testing::HasSubstr;
using testing::Not;

namespace casemate::guest {
namespace {

ProxyRequest good(std::string_view head) {
  auto read = read_request_head(head);
  if (const auto* bad = std::get_if<BadRequest>(&read)) {
    ADD_FAILURE() << bad->why << ": " << head;
    return {};
  }
  return std::get<ProxyRequest>(read);
}

// Through both steps, as a door goes.
bool is_bad(std::string_view head) {
  const auto found = find_head_end(head);
  if (std::holds_alternative<BadRequest>(found)) return true;
  const auto end = std::get<HeadEnd>(found).end;
  return end && std::holds_alternative<BadRequest>(read_request_head(head.substr(0, *end)));
}

TEST(RequestHead, ConnectNamesHostAndPort) {
  const ProxyRequest request =
      good("CONNECT Allowed.Test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n");
  EXPECT_TRUE(request.tunnel);
  EXPECT_EQ(request.host, "allowed.test");
  EXPECT_EQ(request.port, 443);
  EXPECT_TRUE(request.host_agrees);
  EXPECT_EQ(good("CONNECT [2001:db8::7]:443 HTTP/1.0\r\n\r\n").host, "2001:db8::7");
}

// EG-02: what is decided is the target; Host is only held against it.
TEST(RequestHead, HostDecidesNothing) {
  const ProxyRequest request =
      good("CONNECT denied.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n");
  EXPECT_EQ(request.host, "denied.test");
  EXPECT_FALSE(request.host_agrees);
  EXPECT_FALSE(good("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n").host_agrees);
  EXPECT_FALSE(good("GET http://a.test:81/ HTTP/1.1\r\nHost: a.test\r\n\r\n").host_agrees);
  EXPECT_TRUE(good("GET http://a.test/ HTTP/1.1\r\nHost: A.test.:80\r\n\r\n").host_agrees);
  EXPECT_TRUE(good("CONNECT a.test:444 HTTP/1.1\r\nHost: a.test\r\n\r\n").host_agrees);
}

TEST(RequestHead, AbsoluteFormIsForwardedAsOriginForm) {
  const ProxyRequest request = good(
      "POST HTTP://Allowed.TEST:8080/a/b?c=@d HTTP/1.1\r\nhost: allowed.test:8080\r\n"
      "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nProxy-Connection: keep-alive\r\n"
      "Proxy-Authorization: secret\r\nUpgrade: h2c\r\nTE: trailers\r\nX-Kept:  two words \r\n"
      "Content-Length: 5\r\n\r\n");
  EXPECT_FALSE(request.tunnel);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.host, "allowed.test");
  EXPECT_EQ(request.port, 8080);
  EXPECT_EQ(request.body, (BodyLength{BodyLength::Form::length, 5}));
  EXPECT_EQ(request.forwarded_head,
            "POST /a/b?c=@d HTTP/1.1\r\nHost: allowed.test:8080\r\nX-Kept: two words\r\n"
            "Content-Length: 5\r\nConnection: close\r\n\r\n");
}

TEST(RequestHead, TargetWithoutAPathHasTheRoot) {
  EXPECT_THAT(good("GET http://a.test HTTP/1.0\r\n\r\n").forwarded_head,
              testing::StartsWith("GET / HTTP/1.1\r\nHost: a.test\r\n"));
  EXPECT_THAT(good("GET http://a.test?q HTTP/1.0\r\n\r\n").forwarded_head,
              testing::StartsWith("GET /?q HTTP/1.1\r\n"));
}

// EG-04
TEST(RequestHead, OddTargetsAndLinesAreMalformed) {
  for (const std::string& line :
       {"GET / HTTP/1.1"s, "GET //denied.test/ HTTP/1.1"s, "GET http:/denied.test HTTP/1.1"s,
        "GET http:denied.test HTTP/1.1"s, "GET http:///denied.test HTTP/1.1"s,
        "GET http://user@denied.test/ HTTP/1.1"s, "GET http://a.test@denied.test/ HTTP/1.1"s,
        "GET http://a.test\\@denied.test/ HTTP/1.1"s, "GET http://a.test#@denied.test/ HTTP/1.1"s,
        "GET https://a.test/ HTTP/1.1"s, "GET ftp://a.test/ HTTP/1.1"s,
        "GET http://a.test/ http://denied.test/ HTTP/1.1"s, "GET\thttp://a.test/\tHTTP/1.1"s,
        "GET  http://a.test/ HTTP/1.1"s, " GET http://a.test/ HTTP/1.1"s,
        "GET http://a.test/ HTTP/1.1 "s, "GET http://a.test/ HTTP/2.0"s,
        "GET http://a.test/ HTTP/1.1x"s, "GET http://a.test/"s, "GET http://a.test/\0b HTTP/1.1"s,
        "GET http://a\0.test/ HTTP/1.1"s, "G(T http://a.test/ HTTP/1.1"s, "* HTTP/1.1"s,
        "OPTIONS * HTTP/1.1"s, "CONNECT a.test HTTP/1.1"s, "CONNECT http://a.test:80 HTTP/1.1"s,
        "CONNECT user@a.test:443 HTTP/1.1"s, "CONNECT a.test:443/x HTTP/1.1"s,
        "CONNECT a.test:0443 HTTP/1.1"s, "PRI * HTTP/2.0"s,
        // EG-12
        "CONNECT 127\xe3\x80\x82"
        "0\xe3\x80\x82"
        "0\xe3\x80\x82"
        "1:80 HTTP/1.1"s,
        "CONNECT allowed\xef\xbc\x8etest.evil.test:443 HTTP/1.1"s,
        "CONNECT \xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.0.0.1:80 HTTP/1.1"s}) {
    EXPECT_TRUE(is_bad(line + "\r\nHost: a.test\r\n\r\n")) << line;
  }
}

// EG-06
TEST(RequestHead, RequestThatTwoReadersCouldPartDifferentlyIsMalformed) {
  for (const std::string& fields : {"Content-Length: 5\r\nTransfer-Encoding: chunked"s,
                                    "Transfer-Encoding: chunked\r\nContent-Length: 5"s,
                                    "Content-Length: 5\r\nContent-Length: 6"s,
                                    "Content-Length: 5\r\nContent-Length: 5"s,
                                    "Content-Length: 5, 5"s,
                                    "Content-Length: +5"s,
                                    "Content-Length: -5"s,
                                    "Content-Length: 0x5"s,
                                    "Content-Length: "s,
                                    "Content-Length: 5 5"s,
                                    "Content-Length: 99999999999999999999"s,
                                    "Transfer-Encoding: xchunked"s,
                                    "Transfer-Encoding: gzip, chunked"s,
                                    "Transfer-Encoding: chunked, identity"s,
                                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"s,
                                    "Transfer-Encoding:"s,
                                    "Transfer-Encoding: \x0b"
                                    "chunked"s,
                                    "Content-Length : 5"s,
                                    " Content-Length: 5"s,
                                    "X: y\r\n folded"s,
                                    "X: y\r\n\tfolded"s,
                                    "no colon"s,
                                    ": empty name"s,
                                    "X y: z"s,
                                    "X: a\0b"s,
                                    "X: a\x01"
                                    "b"s,
                                    "Host: a.test"s,
                                    "Connection: content-length"s,
                                    "Connection: Host"s,
                                    "Connection: close, transfer-encoding"s,
                                    "X: a\nY: b"s,
                                    "X: a\rY: b"s,
                                    "X: a\r"s}) {
    EXPECT_TRUE(is_bad("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n\r\n"))
        << fields;
  }
  EXPECT_TRUE(is_bad("POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
  EXPECT_TRUE(is_bad("GET http://a.test/ HTTP/1.1\r\n\r\n")) << "without Host";
  EXPECT_TRUE(is_bad("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n"));
  EXPECT_TRUE(is_bad("GET http://a.test/ HTTP/1.1\nHost: a.test\n\n"));
}

TEST(RequestHead, EndIsFoundOrTheHeadRefusedAtOnce) {
  const std::string head = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
  for (std::size_t size = 0; size < head.size(); ++size) {
    const auto found = find_head_end(std::string_view(head).substr(0, size));
    ASSERT_TRUE(std::holds_alternative<HeadEnd>(found)) << size;
    EXPECT_FALSE(std::get<HeadEnd>(found).end) << size;
  }
  EXPECT_EQ(std::get<HeadEnd>(find_head_end(head + "body")).end, head.size());
  EXPECT_TRUE(std::holds_alternative<BadRequest>(find_head_end("GET a\n")));
  EXPECT_TRUE(std::holds_alternative<BadRequest>(find_head_end("GET a\rb")));
  EXPECT_TRUE(std::holds_alternative<BadRequest>(find_head_end("\x16\x03\x01")));
}

TEST(RequestHead, HeadAndFieldsAreBounded) {
  const std::string start = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n";
  std::string most = start + "X: ";
  most += std::string(kMaxRequestHead - most.size() - 4, 'x') + "\r\n\r\n";
  ASSERT_EQ(most.size(), kMaxRequestHead);
  EXPECT_FALSE(is_bad(most));
  most.insert(start.size() + 3, "x");
  EXPECT_TRUE(is_bad(most));
  EXPECT_TRUE(is_bad(std::string(kMaxRequestHead, 'x')));
  std::string fields = start;
  for (std::size_t i = 1; i < kMaxRequestHeaders; ++i) fields += "X: y\r\n";
  EXPECT_FALSE(is_bad(fields + "\r\n"));
  EXPECT_TRUE(is_bad(fields + "X: y\r\n\r\n"));
}

std::size_t follow(ChunkedBody& body, std::string_view bytes, std::size_t at_once) {
  std::size_t total = 0;
  while (!bytes.empty() && !body.over() && !body.broken()) {
    const std::string_view piece = bytes.substr(0, at_once);
    const std::size_t taken = body.follow(piece);
    total += taken;
    if (taken < piece.size()) break;
    bytes.remove_prefix(taken);
  }
  return total;
}

TEST(ChunkedBody, EndsWithItsLastChunkHoweverItComes) {
  const std::string body = "5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\n";
  for (std::size_t at_once = 1; at_once <= body.size() + 9; ++at_once) {
    ChunkedBody chunks;
    EXPECT_EQ(follow(chunks, body + "GET http://", at_once), body.size()) << at_once;
    EXPECT_TRUE(chunks.over());
  }
}

TEST(ChunkedBody, HasOneSpelling) {
  for (const std::string& body :
       {"5;ext\r\nhello\r\n"s, "5\nhello\r\n"s, " 5\r\nhello\r\n"s, "0x5\r\nhello\r\n"s,
        "+5\r\nhello\r\n"s, "\r\n"s, "5\r\nhelloX\r\n"s, "5\r\nhello\rX"s, "g\r\n"s,
        "1000000000000000\r\n"s, "0\r\nTrailer: x\r\n\r\n"s, "0\r\n\rX"s, "5 \r\nhello\r\n"s}) {
    ChunkedBody chunks;
    follow(chunks, body, 3);
    EXPECT_TRUE(chunks.broken()) << body;
  }
}

std::string through(ResponseHead& head, std::string_view bytes, std::size_t at_once) {
  std::string out;
  while (!bytes.empty()) {
    head.put(bytes.substr(0, at_once));
    out += head.take();
    bytes.remove_prefix(std::min(at_once, bytes.size()));
  }
  return out;
}

TEST(ResponseHead, SaysThatTheConnectionEnds) {
  const std::string answer =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\n"
      "Keep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nhi\r\n\r\n";
  for (std::size_t at_once = 1; at_once <= answer.size(); ++at_once) {
    ResponseHead head;
    EXPECT_EQ(through(head, answer, at_once),
              "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
              "Connection: close\r\n\r\nhi\r\n\r\n");
    EXPECT_TRUE(head.passed());
  }
}

TEST(ResponseHead, IsBrokenWhereItIsNoHttp) {
  for (const std::string& answer :
       {"SSH-2.0-x\r\n\r\n"s, "HTTP/1.1 101 Switching\r\n\r\n"s, "HTTP/2 200\r\n\r\n"s,
        "HTTP/1.1 2x0 OK\r\n\r\n"s, std::string(kMaxResponseHead + 9, 'x')}) {
    ResponseHead head;
    EXPECT_EQ(through(head, answer, 1000), "");
    EXPECT_TRUE(head.broken()) << answer.substr(0, 40);
    EXPECT_FALSE(head.began());
  }
}

}  // namespace
}  // namespace casemate::guest
