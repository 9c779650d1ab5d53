// The host's end of a stream: sandboxes over it, and guests that lie, stall or vanish.

#include "casemate/guest/stream/multiplexed_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/protocol.h"
#include "casemate/guest/stream/multiplexer.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/streamed_plain_sandbox.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

constexpr ChannelId kGuestFirst = 0x8000'0000;

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

void await_readable(int fd) {
  std::array<pollfd, 1> entries{pollfd{fd, POLLIN, 0}};
  ASSERT_EQ(sys::poll_until(entries, sys::SteadyTime::clock::now() + 60s), 1);
}

// Nothing more comes, and nothing of it is an error.
bool has_ended(const sys::UniqueFd& socket) {
  std::string buffer(4096, '\0');
  while (true) {
    await_readable(socket.get());
    const sys::ReceivedBytes got = sys::receive_bytes(socket.get(), buffer, sys::Blocking::no);
    if (got.would_block) return false;
    if (got.bytes == 0) return true;
  }
}

// -- Real guests ---------------------------------------------------------------------------------

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

// A server of the host's, which says back what it hears, and counts.
class EchoServer {
 public:
  EchoServer() : socket_(sys::make_stream_socket()) {}
  ~EchoServer() { close(); }
  int socket() const { return socket_.get(); }
  void serve() {
    sys::start_listening(socket_.get());
    thread_ = std::jthread([this] { run(); });
  }
  void close() {
    sys::raise_event(stop_.get());
    if (thread_.joinable()) thread_.join();
    socket_.reset();
  }
  std::size_t served() const { return served_; }
  std::size_t most() const { return most_; }

 private:
  void run() {
    std::vector<sys::UniqueFd> clients;
    while (true) {
      std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      for (const sys::UniqueFd& client : clients) entries.push_back({client.get(), POLLIN, 0});
      sys::poll_until(entries, std::nullopt);
      if (entries[0].revents != 0) return;
      for (std::size_t i = 0; i < clients.size(); ++i) {
        if (entries[i + 2].revents != 0 && !echo(clients[i].get())) clients[i].reset();
      }
      std::erase_if(clients, [](const sys::UniqueFd& client) { return !client; });
      if (entries[1].revents == 0) continue;
      while (sys::UniqueFd client = sys::accept_connection(socket_.get())) {
        clients.push_back(std::move(client));
        ++served_;
      }
      most_ = std::max(most_.load(), clients.size());
    }
  }

  /// Sends back what came. False once the client is gone, which it may be at either step.
  static bool echo(int client) try {
    std::string buffer(4096, '\0');
    const auto got = sys::receive_bytes(client, buffer, sys::Blocking::no);
    if (got.bytes == 0) return got.would_block;
    sys::send_message(client, std::span(buffer).first(got.bytes), {}, sys::Blocking::yes);
    return true;
  } catch (const std::system_error&) {
    return false;
  }

  sys::UniqueFd socket_;
  sys::UniqueFd stop_ = sys::make_event();
  std::atomic<std::size_t> served_ = 0;
  std::atomic<std::size_t> most_ = 0;
  std::jthread thread_;
};

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

// -- Lying guests --------------------------------------------------------------------------------

std::string message(ChannelId channel, int type, std::string_view payload = {}) {
  return Writer()
             .u32(channel)
             .u8(static_cast<std::uint8_t>(payload.size()))
             .u8(static_cast<std::uint8_t>(payload.size() >> 8))
             .u8(static_cast<std::uint8_t>(type))
             .u8(0)
             .take() +
         std::string(payload);
}
std::string number(std::uint32_t value) { return Writer().u32(value).take(); }
std::string hello(std::uint32_t version = kStreamVersion, std::uint32_t channels = 8) {
  return message(0, 1, "casemate" + number(version) + number(channels));
}
std::string connection_to(ChannelId listener) {
  return Writer().u8(static_cast<std::uint8_t>(ChannelKind::stream)).u32(listener).take();
}

class LyingGuestOfAStream : public testing::Test {
 protected:
  LyingGuestOfAStream() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    guest_ = std::move(far);
    stream_.emplace(StreamEnd::of(std::move(near)),
                    MultiplexedStreamOptions{.id = "0123456789abcdef",
                                             .log = [this](LogLevel, std::string_view text) {
                                               const std::lock_guard lock(mutex_);
                                               log_ += text;
                                             }});
  }

  void say(std::string_view bytes) {
    try {
      while (!bytes.empty()) {
        bytes.remove_prefix(sys::send_message(guest_.get(), bytes, {}, sys::Blocking::yes));
      }
    } catch (const std::system_error&) {
      // The host hung up.
    }
  }
  // Waits until the host has given the stream up.
  void expect_given_up(std::string_view why) {
    EXPECT_TRUE(has_ended(guest_));
    while (stream_->alive()) std::this_thread::yield();
    stream_->close();
    EXPECT_FALSE(stream_->alive());
    expect_refusal<SandboxUnavailable>([&] { stream_->connect({}); }, "");
    const std::lock_guard lock(mutex_);
    EXPECT_NE(log_.find(why), std::string::npos) << log_;
  }
  // A control connection and its call with a server's socket: channels 1 and 2.
  void open_call(int server) {
    control_ = stream_->connect({});
    OpenCall request{.version = kProtocolVersion, .id = "0123456789ab", .host_tools = true};
    FrameWriter writer(control_.get());
    writer.put(wire(FrameType::open_call), encode(request), std::array{server});
    ASSERT_TRUE(writer.flush());
    // Until both are opened, and the frame is there: 2 openings and some data.
    std::string heard;
    const std::string opened = message(2, 2, Writer().u8(2).u32(1).take());
    while (heard.find(opened) == std::string::npos) {
      std::string buffer(4096, '\0');
      await_readable(guest_.get());
      heard += buffer.substr(0, sys::receive_bytes(guest_.get(), buffer, sys::Blocking::no).bytes);
    }
  }

  std::mutex mutex_;
  std::string log_;
  sys::UniqueFd guest_;
  sys::UniqueFd control_;
  std::optional<MultiplexedStream> stream_;
};

TEST_F(LyingGuestOfAStream, ThatNeverAnswersIsWaitedForUntilTheDeadline) {
  EXPECT_THROW(stream_->await_ready({.deadline = std::chrono::steady_clock::now(), .stop = {}}),
               SandboxTimeout);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(stream_->connect({.deadline = {}, .stop = stop.get_token()}), SandboxCancelled);
}

TEST_F(LyingGuestOfAStream, ThatSaysSomethingElseFirstIsNamed) {
  say("SeaBIOS (version 1.16)\r\n");
  expect_given_up("broke the protocol");
}

TEST_F(LyingGuestOfAStream, OfAnotherVersionIsOfAnotherBuild) {
  say(hello(kStreamVersion + 1));
  EXPECT_TRUE(has_ended(guest_));
  expect_refusal<SandboxUnavailable>([&] { stream_->await_ready({}); }, "another build");
}

TEST_F(LyingGuestOfAStream, ThatVanishesAtAnyByteIsTheEnd) {
  const std::string said = hello() + message(1, 3, "data") + message(1, 5);
  for (std::size_t cut = 0; cut <= said.size(); ++cut) {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    MultiplexedStream stream(StreamEnd::of(std::move(near)), {});
    sys::UniqueFd control;
    if (cut >= hello().size()) {
      sys::send_message(far.get(), hello(), {}, sys::Blocking::yes);
      control = stream.connect({});
      // Opened, so that what follows is of a channel.
      std::string buffer(hello().size() + message(1, 2, connection_to(0)).size(), '\0');
      for (std::size_t got = 0; got < buffer.size();) {
        await_readable(far.get());
        got += sys::receive_bytes(far.get(), buffer, sys::Blocking::no).bytes;
      }
      if (cut > hello().size()) {
        sys::send_message(far.get(), said.substr(hello().size(), cut - hello().size()), {},
                          sys::Blocking::yes);
      }
    } else if (cut > 0) {
      sys::send_message(far.get(), said.substr(0, cut), {}, sys::Blocking::yes);
    }
    far.reset();
    while (stream.alive()) std::this_thread::yield();
    EXPECT_THROW(stream.connect({}), SandboxUnavailable) << cut;
    EXPECT_TRUE(!control || has_ended(control)) << cut;
  }
}

TEST_F(LyingGuestOfAStream, ThatStopsReadingForGoodIsTheEndAtTheNextWrite) {
  std::array<int, 2> to_guest{};
  std::array<int, 2> to_host{};
  ASSERT_EQ(pipe2(to_guest.data(), O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(to_host.data(), O_CLOEXEC), 0);
  sys::UniqueFd guest_in(to_guest[0]);
  const sys::UniqueFd guest_out(to_host[1]);
  MultiplexedStream stream({sys::UniqueFd(to_host[0]), sys::UniqueFd(to_guest[1])}, {});
  ASSERT_EQ(write(guest_out.get(), hello().data(), hello().size()),
            static_cast<ssize_t>(hello().size()));
  stream.await_ready({});
  guest_in.reset();
  EXPECT_TRUE(has_ended(stream.connect({})));
  EXPECT_THROW(stream.connect({}), SandboxUnavailable);
}

TEST_F(LyingGuestOfAStream, ThatSaysGoodbyeIsGone) {
  say(hello() + message(0, 7));
  expect_given_up("goodbye");
}

TEST_F(LyingGuestOfAStream, ThatOpensChannelsToNothingIsGivenUp) {
  say(hello() + message(kGuestFirst, 2, connection_to(2)));
  expect_given_up("no listener");
}

TEST_F(LyingGuestOfAStream, ThatSendsBeyondItsCreditIsGivenUp) {
  say(hello());
  const sys::UniqueFd control = stream_->connect({});
  std::string buffer(hello().size() + message(1, 2, connection_to(0)).size(), '\0');
  for (std::size_t got = 0; got < buffer.size();) {
    await_readable(guest_.get());
    got += sys::receive_bytes(guest_.get(), buffer, sys::Blocking::no).bytes;
  }
  // Nobody reads the connection: what its socket takes and the window, and no more.
  for (int i = 0; i < 200; ++i) say(message(1, 3, std::string(kMaxStreamPayload, 'x')));
  expect_given_up("credit");
}

TEST_F(LyingGuestOfAStream, ThatOpensMoreConnectionsThanItMayIsGivenUp) {
  say(hello());
  EchoServer server;
  open_call(server.socket());
  server.serve();
  for (ChannelId i = 0; i < kMaxStreamChannels + 1; ++i) {
    say(message(kGuestFirst + i, 2, connection_to(2)));
  }
  expect_given_up("more channels");
  EXPECT_LE(server.served(), std::size_t{kMaxStreamChannels});
}

TEST_F(LyingGuestOfAStream, ThatFloodsWithoutReadingIsGivenUp) {
  say(hello());
  const sys::UniqueFd never_listens = sys::make_stream_socket();
  open_call(never_listens.get());
  // Each is refused, which it would have to read.
  for (ChannelId i = 0; i < 200'000; ++i) {
    say(message(kGuestFirst + i, 2, connection_to(2)) + message(kGuestFirst + i, 5));
    if (!stream_->alive()) break;
  }
  expect_given_up("does not read");
}

TEST_F(LyingGuestOfAStream, ThatDoesNotReadDoesNotHoldUpItsClose) {
  say(hello());
  std::vector<sys::UniqueFd> connections;
  for (int i = 0; i < 8; ++i) {
    connections.push_back(stream_->connect({}));
    FrameWriter writer(connections.back().get());
    writer.put(1, std::string(kMaxPayload, 'x'));
    writer.flush();
  }
  // More are refused here already.
  expect_refusal<SandboxUnavailable>([&] { stream_->connect({}); }, "8 connections");
  stream_->close();
  for (const sys::UniqueFd& each : connections) EXPECT_TRUE(has_ended(each));
}

}  // namespace
}  // namespace casemate::guest
