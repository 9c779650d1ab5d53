// The host's end of a stream: sandboxes over it, and the sockets of their calls.

#include "casemate/guest/stream/multiplexed_stream.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/stream/awaited_socket_test.h"
#include "casemate/guest/stream/echo_server_test.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/streamed_plain_sandbox.h"

namespace casemate::guest {
namespace {

ExecRequest shell(std::string line) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  return request;
}
ExecRequest python(std::string text) {
  ExecRequest request;
  request.command = Argv{{"/usr/bin/python3", "-c", std::move(text)}};
  return request;
}

class OverAStream : public testing::TestWithParam<StreamForm> {
 protected:
  StreamedPlainSandbox plain_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Forms, OverAStream, testing::Values(StreamForm::pipes, StreamForm::socket),
                         [](const auto& form) {
                           return form.param == StreamForm::pipes ? "pipes" : "socket";
                         });

TEST_P(OverAStream, ProgramsRunAndFilesMove) {
  const auto call = plain_.sandbox().open_call({}, {});
  const std::string content(3'000'000, 'x');
  call->write_file("work/in", content, call->directory(), {});
  const ExecResult result = call->exec(shell("cat in; echo err >&2; exit 3"), {});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.stdout.size() + result.stdout_missing_bytes, content.size());
  EXPECT_EQ(result.stderr, "err\n");
  EXPECT_EQ(call->read_file("work/in", call->directory(), 4'000'000, {}), content);
  EXPECT_TRUE(call->close());
}

TEST_P(OverAStream, AProgramWhoseOutputNobodyTakesHoldsUpNobody) {
  const auto call = plain_.sandbox().open_call({}, {});
  const auto stuck = call->start(shell("yes"), {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call->exec(shell("echo free"), {}).stdout, "free\n");
  // Nor its own end.
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(stuck->wait({.deadline = {}, .stop = stop.get_token()}).outcome, Outcome::cancelled);
}

TEST_P(OverAStream, ACancelDoesNotWaitBehindInputThatNobodyReads) {
  const auto call = plain_.sandbox().open_call({}, {});
  ExecRequest request = shell("sleep 1000");
  request.stdin_mode = StdinMode::piped;
  const auto process = call->start(request, {});
  std::stop_source stop;
  std::jthread writer([&] {
    // Until the pipe and the window are full; then the stop comes.
    process->write_stdin(std::string(100'000, 'x'), {});
    stop.request_stop();
  });
  writer.join();
  EXPECT_EQ(process->wait({.deadline = {}, .stop = stop.get_token()}).outcome, Outcome::cancelled);
}

TEST_P(OverAStream, CallsAndProgramsOfManyThreadsDoNotMix) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const auto call = plain_.sandbox().open_call({}, {});
      const std::string mine(200'000, static_cast<char>('a' + i));
      call->write_file("work/f", mine, call->directory(), {});
      EXPECT_EQ(call->exec(shell("wc -c <f; head -c 1 f"), {}).stdout,
                "200000\n" + mine.substr(0, 1));
      EXPECT_EQ(call->read_file("work/f", call->directory(), 1'000'000, {}), mine);
      EXPECT_TRUE(call->close());
    });
  }
}

// A busy mark: held by the host while the guest's program stays.
class MarkingAccounting : public CallAccounting {
 public:
  sys::UniqueFd mark_busy() override {
    auto [held, watched] = sys::socket_pair(sys::SocketType::stream);
    watch = std::move(watched);
    return std::move(held);
  }
  sys::UniqueFd watch;
};

TEST_P(OverAStream, AMarkIsHeldForAsLongAsTheProgramStays) {
  const auto accounting = std::make_shared<MarkingAccounting>();
  plain_.parts().account = [accounting](std::string_view, CallUse, const CallControl&) {
    return accounting;
  };
  auto call = plain_.sandbox().open_call({}, {});
  ExecRequest request = shell("until [ -e ../../go ]; do sleep 0.01; done");
  request.lifetime = Lifetime::sandbox;
  call->start(request, {}).reset();
  EXPECT_TRUE(call->close());
  std::array<pollfd, 1> entries{pollfd{accounting->watch.get(), POLLIN, 0}};
  EXPECT_EQ(sys::poll_until(entries, sys::SteadyTime::clock::now()), 0);
  const auto other = plain_.sandbox().open_call({}, {});
  EXPECT_EQ(other->exec(shell("touch ../../go"), {}).exit_code, 0);
  EXPECT_TRUE(has_ended(accounting->watch));
}

class GroupAccounting : public CallAccounting {
 public:
  explicit GroupAccounting(int group) : group_(group) {}
  std::vector<int> groups() const override { return {group_}; }

 private:
  int group_;
};

TEST_P(OverAStream, ACallThatWouldJoinControlGroupsIsRefusedAndNotLeftUnbounded) {
  const sys::UniqueFd file = sys::make_event();
  plain_.parts().account = [&](std::string_view, CallUse, const CallControl&) {
    return std::make_shared<GroupAccounting>(file.get());
  };
  EXPECT_THROW(plain_.sandbox().open_call({}, {}), SandboxUnavailable);
  EXPECT_TRUE(plain_.stream().alive());
}

TEST_P(OverAStream, AKilledGuestIsTheEndOfEverythingOverIt) {
  const auto call = plain_.sandbox().open_call({}, {});
  const auto process = call->start(shell("sleep 1000"), {});
  plain_.process().kill();
  EXPECT_THROW(process->wait({}), SandboxUnavailable);
  plain_.process().wait();
  while (plain_.stream().alive()) std::this_thread::yield();
  EXPECT_THROW(plain_.sandbox().open_call({}, {}), SandboxUnavailable);
}

TEST_P(OverAStream, ItsCloseIsTheEndOfTheGuest) {
  auto call = plain_.sandbox().open_call({}, {});
  const auto process = call->start(shell("sleep 1000"), {});
  plain_.stream().close();
  EXPECT_EQ(plain_.process().wait(), 0);
  EXPECT_THROW(process->wait({}), SandboxUnavailable);
  expect_refusal<SandboxUnavailable>([&] { plain_.sandbox().open_call({}, {}); }, "closed");
}

TEST_P(OverAStream, AForkedChildOfTheHostDisturbsNothing) {
  plain_.stream().await_ready({});
  const pid_t child = fork();
  if (child == 0) {
    plain_.stream().close();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(plain_.sandbox().exec(shell("echo here"), {}).stdout, "here\n");
}

// -- Sockets of a call ---------------------------------------------------------------------------

class SocketsOverAStream : public testing::Test {
 protected:
  std::unique_ptr<Call> open(EchoServer& server) {
    auto call = plain_.sandbox().open_call({.host_tool_socket = server.socket()}, {});
    server.serve();
    return call;
  }
  static ExecRequest client(const Call& call, const std::string& text) {
    ExecRequest request = python(
        "import socket, sys, threading\n"
        "def connect():\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    s.connect(sys.argv[1])\n"
        "    return s\n" +
        text);
    std::get<Argv>(request.command).words.push_back(call.host_tool_address());
    return request;
  }

  StreamedPlainSandbox plain_;
};

TEST_F(SocketsOverAStream, AProgramReachesTheServerOfItsCall) {
  EchoServer one;
  EchoServer two;
  const auto first = open(one);
  const auto second = open(two);
  const char* const text = "s = connect(); s.sendall(b'hello'); print(s.recv(10))";
  EXPECT_EQ(first->exec(client(*first, text), {}).stdout, "b'hello'\n");
  EXPECT_EQ(one.served(), 1U);
  EXPECT_EQ(two.served(), 0U);
  EXPECT_EQ(second->exec(client(*second, text), {}).stdout, "b'hello'\n");
  EXPECT_EQ(two.served(), 1U);
}

TEST_F(SocketsOverAStream, EachDirectionOfAConnectionEndsForItself) {
  EchoServer server;
  const auto call = open(server);
  const ExecResult result = call->exec(client(*call, R"(
s = connect()
s.sendall(b'x' * 1000)
got = b''
while len(got) < 1000: got += s.recv(1000)
s.shutdown(socket.SHUT_WR)
print(len(got), s.recv(1))
)"),
                                       {});
  EXPECT_EQ(result.stdout, "1000 b''\n") << result.stderr;
}

// What a tunnel's end is told by: whether all was said, or the other side broke off.
TEST_F(SocketsOverAStream, WhoClosedAltogetherIsGoneWhenTheEndIsRead) {
  const sys::UniqueFd server = sys::make_stream_socket();
  const auto call = plain_.sandbox().open_call({.host_tool_socket = server.get()}, {});
  sys::start_listening(server.get());
  const auto process = call->start(client(*call, R"(
held = []
for i in range(200):
    s = connect()
    s.sendall(b'x' * (i % 7 + 1))
    if i % 2:
        s.close()
    else:
        s.shutdown(socket.SHUT_WR)
        held.append(s)
threading.Event().wait()
)"),
                                   {});
  for (int i = 0; i < 200; ++i) {
    await_readable(server.get());
    const sys::UniqueFd connection = sys::accept_connection(server.get());
    ASSERT_TRUE(has_ended(connection));
    pollfd entry{connection.get(), 0, 0};
    EXPECT_EQ(poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0, i % 2 == 1) << i;
  }
  std::stop_source stop;
  stop.request_stop();
  process->wait({.deadline = {}, .stop = stop.get_token()});
}

TEST_F(SocketsOverAStream, AServerThatHasClosedRefuses) {
  EchoServer server;
  const auto call = open(server);
  server.close();
  const ExecResult result = call->exec(client(*call, R"(
try:
    s = connect()
    s.sendall(b'x')
    print(s.recv(1))
except OSError:
    print(b'')
)"),
                                       {});
  EXPECT_EQ(result.stdout, "b''\n") << result.stderr;
  EXPECT_TRUE(plain_.stream().alive());
}

// A flood: ten thousand connections of twenty threads, each used once; and more held at once than
// there may be.
TEST_F(SocketsOverAStream, TenThousandConnectionsAreServedAFewAtATime) {
  EchoServer server;
  const auto call = open(server);
  const ExecResult result = call->exec(client(*call, R"(
def work():
    for _ in range(500):
        s = connect()
        s.sendall(b'x')
        assert s.recv(1) == b'x'
        s.close()
threads = [threading.Thread(target=work) for _ in range(20)]
for t in threads: t.start()
for t in threads: t.join()
print('done')
)"),
                                       {});
  EXPECT_EQ(result.stdout, "done\n") << result.stderr;
  EXPECT_EQ(server.served(), 10'000U);
}

TEST_F(SocketsOverAStream, AProgramThatHoldsAllItsConnectionsLeavesOthersTheirs) {
  EchoServer greedy_server;
  EchoServer other_server;
  const auto greedy = open(greedy_server);
  const auto other = open(other_server);
  // The kernel has more of them wait than are taken.
  const auto process = greedy->start(client(*greedy, R"(
held = [connect() for _ in range(300)]
held[0].sendall(b'x')
print(held[0].recv(1), flush=True)
threading.Event().wait()
)"),
                                     {});
  EXPECT_EQ(
      other->exec(client(*other, "s = connect(); s.sendall(b'me'); print(s.recv(10))"), {}).stdout,
      "b'me'\n");
  // When it ends, one that waited may be there before one of its others is found to be gone.
  EXPECT_LE(greedy_server.most(), 256U);
  std::stop_source stop;
  stop.request_stop();
  process->wait({.deadline = {}, .stop = stop.get_token()});
}

TEST_F(SocketsOverAStream, BytesThatTheServerDoesNotTakeHoldUpTheirConnectionOnly) {
  // Listens, accepts nothing, reads nothing.
  const sys::UniqueFd deaf = sys::make_stream_socket();
  const auto call = plain_.sandbox().open_call({.host_tool_socket = deaf.get()}, {});
  sys::start_listening(deaf.get());
  const auto process = call->start(client(*call, R"(
s = connect()
print('connected', flush=True)
while True: s.sendall(b'x' * 100000)
)"),
                                   {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call->exec(shell("echo free"), {}).stdout, "free\n");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(process->wait({.deadline = {}, .stop = stop.get_token()}).outcome, Outcome::cancelled);
}

}  // namespace
}  // namespace casemate::guest
