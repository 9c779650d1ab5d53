#include "casemate/mcp/stdio.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include "casemate/mcp/served_test.h"
#include "casemate/sys/unique_fd.h"
#include "casemate/sys/without_call_test.h"

namespace casemate::mcp {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPing = R"({"jsonrpc":"2.0","id":"p","method":"ping"})";
constexpr std::string_view kPong = R"({"jsonrpc":"2.0","id":"p","result":{}})";

// A server on one end of two pipes, or of one socket; the test is the client.
class Stdio : public testing::TestWithParam<bool> {
 protected:
  Stdio() {
    // As a host of `serve_stdio` has to.
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (GetParam()) {
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, in.data()), 0);
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, out.data()), 0);
      // Whatever a machine gives by default: a line of 200,000 bytes has no room in it.
      const int room = 64 * 1024;
      EXPECT_EQ(::setsockopt(out[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    } else {
      EXPECT_EQ(::pipe(in.data()), 0);
      EXPECT_EQ(::pipe(out.data()), 0);
    }
    server_in_.reset(in[0]);
    to_server_.reset(in[1]);
    from_server_.reset(out[0]);
    server_out_.reset(out[1]);
  }

  void start(ServerOptions options = test_options(), std::size_t max_pending = 1024 * 1024) {
    server_ = std::thread([this, options = std::move(options), max_pending]() mutable {
      end_ = serve(std::move(options), {server_in_.get(), server_out_.get(), max_pending},
                   stop_.get_token());
      server_out_.reset();
    });
  }

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(to_server_.get(), text.data(), text.size());
      ASSERT_GT(count, 0);
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  // One line; empty at the end.
  std::string read_line() {
    for (;;) {
      const auto newline = received_.find('\n');
      if (newline != received_.npos) {
        std::string line = received_.substr(0, newline);
        received_.erase(0, newline + 1);
        return line;
      }
      std::array<char, 4096> piece;
      const ssize_t count = ::read(from_server_.get(), piece.data(), piece.size());
      if (count <= 0) return {};
      received_.append(piece.data(), static_cast<std::size_t>(count));
    }
  }

  StdioEnd join() {
    server_.join();
    return end_;
  }

  sys::UniqueFd to_server_;
  sys::UniqueFd from_server_;
  std::stop_source stop_;

 private:
  sys::UniqueFd server_in_;
  sys::UniqueFd server_out_;
  std::thread server_;
  StdioEnd end_ = StdioEnd::stopped;
  std::string received_;
};

TEST_P(Stdio, AnswersLineByLineUntilTheInputEnds) {
  start();
  send(std::string(kPing) + "\n\n" + std::string(kPing) + "\r\n");
  EXPECT_EQ(read_line(), kPong);
  EXPECT_EQ(read_line(), kPong);
  send("NOT JSON\n");
  EXPECT_THAT(read_line(), HasSubstr("-32700"));
  send(initialize("2025-11-25") + "\n" + call("1", "wait", "{}") + "\n" + std::string(kPing));
  to_server_.reset();
  EXPECT_THAT(read_line(), HasSubstr("2025-11-25"));
  EXPECT_EQ(read_line(), kPong) << "the last line needs no newline";
  EXPECT_EQ(read_line(), "") << "what runs gets no answer";
  EXPECT_EQ(join(), StdioEnd::end_of_input);
}

TEST_P(Stdio, RefusesALineThatIsTooLongAndServesTheNext) {
  ServerOptions options = test_options();
  options.messages.max_bytes = 1000;
  start(std::move(options));
  send(std::string(1000, ' ') + "\n" + std::string(200'000, 'x') + "\n" + std::string(kPing) +
       "\n");
  EXPECT_THAT(read_line(), HasSubstr("at most 1000 bytes"));
  EXPECT_EQ(read_line(), kPong);
  to_server_.reset();
  EXPECT_EQ(join(), StdioEnd::end_of_input);
}

// MCP-18
TEST_P(Stdio, ReadsNoMoreOfAClientThatDoesNotRead) {
  start(test_options(), 1000);
  const std::string many = std::string(kPing) + "\n";
  std::size_t sent = 0;
  // Until nothing is taken any more: pipes and sockets hold less than these 64 MiB.
  for (; sent < 64 * 1024 * 1024; sent += many.size()) {
    pollfd entry{to_server_.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 500) == 0) break;
    send(many);
  }
  EXPECT_LT(sent, 64U * 1024 * 1024);
  to_server_.reset();
  EXPECT_EQ(join(), StdioEnd::end_of_input) << "nobody has to read for it to end";
}

// Serves artifacts of 200 kB, and is asked for so many of one.
class StdioOfArtifacts : public Stdio {
 protected:
  void ask_for(int reads) {
    ServerOptions options = test_options();
    options.read_artifact = [this](const LandedArtifact&, std::uint64_t) {
      ++begun_;
      return std::string(200'000, 'x');
    };
    start(std::move(options), 1000);
    send(initialize("2025-03-26") + "\n" + call("1", "land", R"({"name":"a.txt"})") + "\n");
    read_line();
    std::string landed = read_line();
    landed.erase(0, landed.find("casemate://"));
    const std::string uri = landed.substr(0, landed.find('"'));
    for (int id = 0; id < reads; ++id) {
      send(R"({"jsonrpc":"2.0","id":)" + std::to_string(id) +
           R"(,"method":"resources/read","params":{"uri":")" + uri + "\"}}\n");
    }
  }
  std::atomic<int> begun_ = 0;
};

TEST_P(StdioOfArtifacts, BeginsNoMoreThanAClientThatReadsSlowlyHasRoomFor) {
  constexpr int kReads = 40;
  ask_for(kReads);
  for (int read = 0; read < kReads; ++read) {
    // What the pipe or the socket holds, what waits behind it, and what was begun since.
    EXPECT_LE(begun_, read + 5);
    EXPECT_GT(read_line().size(), 200'000U);
  }
  to_server_.reset();
  EXPECT_EQ(join(), StdioEnd::end_of_input);
}

TEST_P(StdioOfArtifacts, EndsThoughCallsWaitForRoom) {
  ask_for(20);
  to_server_.reset();
  EXPECT_EQ(join(), StdioEnd::end_of_input);
}

TEST_P(Stdio, EndsWhenItIsToldTo) {
  start();
  send(std::string(kPing) + "\n");
  EXPECT_EQ(read_line(), kPong);
  stop_.request_stop();
  EXPECT_EQ(join(), StdioEnd::stopped);
}

TEST_P(Stdio, EndsWhenNobodyReadsAnyMore) {
  start();
  from_server_.reset();
  EXPECT_EQ(join(), StdioEnd::output_closed);
}

// As a file on FUSE may: without the check it would be asked for ever.
TEST(StdioToAFile, EndsWhenTheFileTakesNothing) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself looks at memory by writing it somewhere";
#endif
  std::array<int, 2> in{};
  ASSERT_EQ(::pipe(in.data()), 0);
  const sys::UniqueFd server_in(in[0]);
  const sys::UniqueFd to_server(in[1]);
  ASSERT_EQ(::write(to_server.get(), (std::string(kPing) + "\n").data(), kPing.size() + 1),
            std::ssize(kPing) + 1);
  const sys::UniqueFd out(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  StdioEnd end = StdioEnd::stopped;
  sys::without_call(SYS_write, 0, 0, [&] {
    end = serve(test_options(), {server_in.get(), out.get(), 1024 * 1024}, std::stop_token());
  });
  EXPECT_EQ(end, StdioEnd::output_closed);
}

constexpr auto name_of = [](const auto& kind) { return kind.param ? "Sockets" : "Pipes"; };
INSTANTIATE_TEST_SUITE_P(Over, Stdio, testing::Values(false, true), name_of);
INSTANTIATE_TEST_SUITE_P(Over, StdioOfArtifacts, testing::Values(false, true), name_of);

}  // namespace
}  // namespace casemate::mcp
