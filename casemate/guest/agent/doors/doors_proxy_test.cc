// What the proxy's door says and does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "casemate/guest/agent/doors/doors_fixture_test.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::StartsWith;

TEST_F(DoorsTest, ConnectMakesATunnelAlsoForWhatWasSaidAhead) {
  EXPECT_EQ(talk("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\nahead"),
            "HTTP/1.1 200 Connection established\r\n\r\nahead");
  EXPECT_THAT(host_.requests(),
              ElementsAre(EgressRequest{EgressDoor::http_connect, "a.test", 443}));
}

TEST_F(DoorsTest, TunnelIsHalfClosedEitherWay) {
  host_.set_serve([](int socket) {
    send_all(socket, "all of it");
    shutdown(socket, SHUT_WR);
    EXPECT_EQ(receive_all(socket), "late");
  });
  const sys::UniqueFd socket = proxy();
  send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
  EXPECT_THAT(receive_all(socket.get()), EndsWith("\r\n\r\nall of it"));
  send_all(socket.get(), "late");
  shutdown(socket.get(), SHUT_WR);
  host_.finish();
}

TEST_F(DoorsTest, DenialSaysThatItIsPolicy) {
  host_.set_answer({EgressCode::not_on_list, "denied.test is not on the list: policy"});
  const std::string answer =
      talk("CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 Forbidden by the policy of this sandbox\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\ndenied.test is not on the list: policy\n"));
  EXPECT_THAT(talk("GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
}

// EG-02: the target is what is decided, and its refusal comes before that of another Host.
TEST_F(DoorsTest, TargetIsAskedForWhateverHostSays) {
  host_.set_answer({EgressCode::not_on_list, "policy"});
  EXPECT_THAT(talk("CONNECT denied.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(host_.requests().at(0).host, "denied.test");
  EXPECT_THAT(talk("CONNECT allowed.test:" + std::to_string(port_) +
                   " HTTP/1.1\r\nHost: other.test\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(host_.requests().size(), 1U);
}

TEST_F(DoorsTest, OtherFailuresHaveTheirStatus) {
  const std::string request = "CONNECT a.test:443 HTTP/1.0\r\n\r\n";
  host_.set_answer({EgressCode::unreachable, "no"});
  EXPECT_THAT(talk(request), StartsWith("HTTP/1.1 502 "));
  host_.set_answer({EgressCode::too_slow, "no"});
  EXPECT_THAT(talk(request), StartsWith("HTTP/1.1 504 "));
  host_.set_answer({EgressCode::malformed, "no"});
  EXPECT_THAT(talk(request), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(talk("BREW\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(DoorsTest, PlainRequestGoesAloneAndItsAnswerEndsTheConnection) {
  std::string heard;
  host_.set_serve([&](int socket) {
    heard = receive(socket,
                    "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n"
                    "Connection: close\r\n\r\nhello"s.size());
    send_all(socket, "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
    shutdown(socket, SHUT_WR);
    heard += receive_all(socket);
  });
  // EG-04, EG-06: what hides behind the first request goes nowhere.
  const std::string answer = talk(
      "POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
      "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n");
  EXPECT_EQ(answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
  host_.finish();
  EXPECT_EQ(heard,
            "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
            "hello");
  EXPECT_EQ(host_.requests().size(), 1U);
}

TEST_F(DoorsTest, ChunkedBodyIsHeldToItsForm) {
  host_.set_serve([](int socket) { static_cast<void>(receive_all(socket)); });
  EXPECT_THAT(talk("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(DoorsTest, ServerThatSaysNothingOrNoHttpIsABadGateway) {
  host_.set_serve([](int) {});
  EXPECT_THAT(talk("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"),
              StartsWith("HTTP/1.1 502 "));
  host_.set_serve([](int socket) { send_all(socket, "SSH-2.0-x\r\n\r\n"); });
  EXPECT_THAT(talk("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"),
              StartsWith("HTTP/1.1 502 "));
}

TEST_F(DoorsTest, SocksReachesAName) {
  EXPECT_EQ(talk("\x05\x01\0\x05\x01\0\x03\x06"s + "a.test" + "\x01\xbb"s + "ahead"),
            "\x05\0\x05\0\0\x01\0\0\0\0\0\0"s + "ahead");
  EXPECT_THAT(host_.requests(), ElementsAre(EgressRequest{EgressDoor::socks, "a.test", 443}));
}

TEST_F(DoorsTest, SocksRefusesWhatItDoesNotDo) {
  const std::string greeting = "\x05\x01\0"s;
  const std::string end = "\x01\xbb"s;
  EXPECT_EQ(talk("\x04\x01\0\x50\x7f\0\0\x01\0"s).substr(0, 2), "\0\x5b"s) << "SOCKS4";
  EXPECT_EQ(talk("\x05\x01\x02"s), "\x05\xff"s) << "only with a password";
  EXPECT_EQ(talk(greeting + "\x05\x02\0\x03\x01"s + "a" + end).substr(2, 2), "\x05\x07"s) << "BIND";
  EXPECT_EQ(talk(greeting + "\x05\x03\0\x03\x01"s + "a" + end).substr(2, 2), "\x05\x07"s) << "UDP";
  EXPECT_EQ(talk(greeting + "\x05\x01\0\x03\x03"s + "a\0b"s + end).substr(2, 2), "\x05\x01"s);
  EXPECT_TRUE(host_.requests().empty());
  host_.set_answer({EgressCode::not_on_list, "policy"});
  EXPECT_EQ(talk(greeting + "\x05\x01\0\x03\x01"s + "a" + end).substr(2, 2), "\x05\x02"s);
}

}  // namespace
}  // namespace casemate::guest
