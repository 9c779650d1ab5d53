// A guest that lies, stalls or dies, at the other end of the host's socket. Whatever it does, the
// host ends within its own bounds with a named refusal, and never makes up an exit status.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/agent_call.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/guest/ready_call.h"
#include "casemate/sys/socket.h"
#include "tests/support/expect_refusal.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

std::string framed(FrameType type, std::string_view payload = {}) {
  return Writer().u32(static_cast<std::uint32_t>(payload.size())).u8(wire(type)).take() +
         "\0\0\0"s + std::string(payload);
}

std::string begun_and_started() { return framed(FrameType::begun) + framed(FrameType::started); }

Ended exited(int code) {
  Ended ended;
  ended.exit_code = code;
  ended.stopped_known = true;
  return ended;
}

void say(const sys::UniqueFd& connection, std::string_view bytes) {
  while (!bytes.empty()) {
    bytes.remove_prefix(sys::send_message(connection.get(), bytes, {}, sys::Blocking::yes));
  }
}

// Whatever a script still had to say when the host hung up is not the subject.
template <typename Act>
void until_the_host_hangs_up(Act act) {
  try {
    act();
  } catch (const std::system_error&) {
  }
}

// Waits for the host's next frame; nothing when it closed.
std::optional<Frame> hear(const sys::UniqueFd& connection) {
  FrameReader reader(connection.get());
  return await_frame(connection.get(), reader);
}

// Waits until the host has closed its end.
void hear_the_end(const sys::UniqueFd& connection) {
  while (hear(connection)) {
  }
}

using Script = std::function<void(sys::UniqueFd)>;

// What a test changes while threads of an earlier call still look at it.
template <typename Value>
class Shared {
 public:
  explicit Shared(Value value) : value_(std::move(value)) {}
  Shared& operator=(Value value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    return *this;
  }
  void reset() { *this = Value(); }
  Value get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  Value value_;
};

// The guest's side of one control stream, on a thread of its own. By default it opens and closes
// calls as an honest one does; what it does with attached connections is the test's.
struct FakeGuest {
  Shared<std::string> answer_to_open{framed(FrameType::call_opened, encode(CallOpened{}))};
  Shared<std::optional<std::string>> answer_to_close{
      framed(FrameType::call_closed, encode(CallClosed{true}))};
  Shared<Script> attached{[](sys::UniqueFd) {}};
  std::atomic<int> attachments = 0;
  std::vector<std::jthread> threads;  // last: joined first

  sys::UniqueFd connect() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    threads.emplace_back([this, control = std::move(far)]() mutable {
      until_the_host_hangs_up([&] { serve(std::move(control)); });
    });
    return std::move(near);
  }

  void serve(sys::UniqueFd control) {
    std::vector<std::jthread> attached_threads;
    FrameReader reader(control.get());
    while (std::optional<Frame> frame = await_frame(control.get(), reader)) {
      if (is(*frame, FrameType::open_call)) {
        const std::string answer = answer_to_open.get();
        if (answer.empty()) return;
        say(control, answer);
      } else if (is(*frame, FrameType::attach)) {
        ++attachments;
        attached_threads.emplace_back(
            [script = attached.get(), fd = std::move(frame->descriptors.at(0))]() mutable {
              until_the_host_hangs_up([&] { script(std::move(fd)); });
            });
      } else if (const auto answer = answer_to_close.get()) {
        say(control, *answer);
      }
    }
  }
};

class RecordingAccounting : public CallAccounting {
 public:
  CallCounters snapshot() noexcept override { return {.oom_kills = 3}; }
  void finish(const CallCounters& before, ExecResult& result) noexcept override {
    ++finished;
    EXPECT_EQ(before.oom_kills, 3U);
    if (out_of_memory) {
      result.outcome = Outcome::out_of_memory;
      result.limit = Limit::memory;
      result.exit_code.reset();
      result.signal.reset();
    }
    if (limit) result.limit = limit;
  }
  void closed(bool known) noexcept override { closings.push_back(known); }

  bool out_of_memory = false;
  std::optional<Limit> limit;
  int finished = 0;
  std::vector<bool> closings;
};

class LyingGuest : public testing::Test {
 protected:
  LyingGuest() {
    parts_.info.work_dir = "/workspace";
    parts_.connect = [this](const CallControl&) { return guest_.connect(); };
    parts_.account = [this](std::string_view, CallUse, const CallControl&) { return accounting_; };
    parts_.timing = {.silence = 5s, .backstop = 100ms, .cancel_grace = 100ms, .close_patience = 5s};
  }

  std::unique_ptr<Call> open() {
    if (!sandbox_) sandbox_ = std::make_unique<AgentSandbox>(parts_);
    return sandbox_->open_call({}, {});
  }

  // Runs a program against a guest that hears the request and then says these bytes.
  ExecResult run_against(std::string bytes, ExecRequest request = {}, CallControl control = {}) {
    guest_.attached = [bytes = std::move(bytes)](sys::UniqueFd connection) {
      hear(connection);
      say(connection, bytes);
      hear_the_end(connection);
    };
    request.command = Argv{{"program"}};
    return open()->exec(request, control);
  }

  // The same, and then the guest closes.
  ExecResult run_until_closed(std::string bytes) {
    guest_.attached = [bytes = std::move(bytes)](sys::UniqueFd connection) {
      hear(connection);
      say(connection, bytes);
    };
    ExecRequest request;
    request.command = Argv{{"program"}};
    return open()->exec(request, {});
  }

  AgentSandboxParts parts_;
  std::shared_ptr<RecordingAccounting> accounting_ = std::make_shared<RecordingAccounting>();
  FakeGuest guest_;
  std::unique_ptr<AgentSandbox> sandbox_;
};

// -- Opening a call ------------------------------------------------------------------------------

TEST_F(LyingGuest, AWrongAnswerToOpeningIsAViolation) {
  for (const std::string& answer :
       {framed(FrameType::begun), framed(FrameType::call_opened),
        framed(FrameType::call_opened, encode(CallOpened{kProtocolVersion + 1})),
        framed(FrameType::call_opened, encode(CallOpened{}) + "x"), "\xff\xff\xff\xff\x03\0\0\0"s,
        "\0\0\0\0\x03\x01\0\0"s, framed(FrameType::failed, "x")}) {
    guest_.answer_to_open = answer;
    expect_refusal<SandboxUnavailable>([&] { open(); }, "broke the protocol");
  }
  EXPECT_EQ(accounting_->closings, std::vector<bool>(7, false));
}

TEST_F(LyingGuest, AGuestOfAnotherBuildIsNamedWithWhatReplacesIt) {
  guest_.answer_to_open =
      framed(FrameType::failed, encode(Failure{FailureReason::no_resources, EPROTO, "version"}));
  expect_refusal<SandboxUnavailable>([&] { open(); },
                                     {"another build of Casemate", "casemate run", "casemate rm"});
}

TEST_F(LyingGuest, AGuestThatClosesOrFailsInsteadOfOpeningIsUnavailable) {
  guest_.answer_to_open = "";
  expect_refusal<SandboxUnavailable>([&] { open(); }, "closed its connection");
  guest_.answer_to_open =
      framed(FrameType::failed, encode(Failure{FailureReason::no_resources, ENOSPC, "\x1b[2J"}));
  std::string logged;
  parts_.log = [&](LogLevel, std::string_view text) { logged = text; };
  sandbox_.reset();
  const std::string text =
      expect_refusal<SandboxUnavailable>([&] { open(); }, "No space left on device");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(logged.find("\\x1b[2J"), std::string::npos) << logged;
}

// As a guest does that cannot even serve a call: it says so, hears nothing and goes.
TEST_F(LyingGuest, WhatWasSaidBeforeTheRequestCameIsHeard) {
  parts_.connect = [](const CallControl&) {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    say(far, framed(FrameType::failed, encode(Failure{FailureReason::no_resources, EAGAIN, ""})));
    return std::move(near);
  };
  expect_refusal<SandboxUnavailable>([&] { open(); }, "Resource temporarily unavailable");
  parts_.connect = [](const CallControl&) {
    return sys::socket_pair(sys::SocketType::stream).first;
  };
  sandbox_.reset();
  expect_refusal<SandboxUnavailable>([&] { open(); }, "closed its connection");
}

TEST_F(LyingGuest, ASilentOpeningEndsByTheHostsBounds) {
  guest_.answer_to_open = "\x04";  // one byte of a header
  parts_.timing.silence = 50ms;
  expect_refusal<SandboxTimeout>([&] { open(); }, "said nothing");
  parts_.timing.silence = 5s;
  sandbox_.reset();
  sandbox_ = std::make_unique<AgentSandbox>(parts_);
  CallControl control;
  const auto begin = Clock::now();
  control.deadline = begin + 50ms;
  expect_refusal<SandboxTimeout>([&] { sandbox_->open_call({}, control); }, "deadline");
  EXPECT_LT(Clock::now() - begin, 4s);
  std::stop_source source;
  control = {};
  control.stop = source.get_token();
  std::jthread stopper([&] { source.request_stop(); });
  EXPECT_THROW(sandbox_->open_call({}, control), SandboxCancelled);
}

TEST_F(LyingGuest, AnEndThatIsNotKnownOrNotToldIsFalse) {
  guest_.answer_to_close = framed(FrameType::call_closed, encode(CallClosed{false}));
  EXPECT_FALSE(open()->close());
  guest_.answer_to_close = framed(FrameType::call_closed, "\x02");
  EXPECT_FALSE(open()->close());
  guest_.answer_to_close = framed(FrameType::begun);
  EXPECT_FALSE(open()->close());
  guest_.answer_to_close.reset();
  parts_.timing.close_patience = 50ms;
  sandbox_.reset();
  EXPECT_FALSE(open()->close());
  EXPECT_EQ(accounting_->closings, std::vector<bool>(4, false));
}

// What a guest answers to an opening that nobody waits for is read when somebody does.
TEST_F(LyingGuest, ACallThatWasOpenedAheadAndIsNoneIsMissedByNobody) {
  parts_.ready = std::make_shared<ReadyCall>();
  std::optional<std::string> lie;
  int lies = 0;
  parts_.connect = [&](const CallControl&) {
    if (!lie) return guest_.connect();
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    say(far, *std::exchange(lie, std::nullopt));
    ++lies;
    return std::move(near);
  };
  guest_.attached = [](sys::UniqueFd connection) {
    hear(connection);
    say(connection, begun_and_started() + framed(FrameType::ended, encode(exited(7))));
    hear_the_end(connection);
  };
  ExecRequest request;
  request.command = Argv{{"program"}};
  EXPECT_EQ(open()->exec(request, {}).exit_code, 7);
  for (const std::string& each :
       {framed(FrameType::begun), "\x04"s, framed(FrameType::call_opened, encode(CallOpened{})),
        framed(FrameType::failed, encode(Failure{FailureReason::no_resources, ENOSPC, ""}))}) {
    const auto call = open();
    lie = each;
    EXPECT_EQ(call->exec(request, {}).exit_code, 7);
  }
  EXPECT_EQ(open()->exec(request, {}).exit_code, 7);
  EXPECT_EQ(lies, 4);
  // The one that is open now, for which the guest would wait.
  sandbox_.reset();
  parts_.ready.reset();
}

// -- Programs ------------------------------------------------------------------------------------

TEST_F(LyingGuest, AnHonestSequenceIsTaken) {
  const ExecResult result =
      run_against(begun_and_started() + framed(FrameType::output_out, "text") +
                  framed(FrameType::ended, encode(exited(7))));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.stdout, "text");
  EXPECT_TRUE(result.stopped_known);
  EXPECT_EQ(accounting_->finished, 1);
  EXPECT_EQ(accounting_->closings, std::vector<bool>{true});
}

TEST_F(LyingGuest, EveryFrameOutOfPlaceIsAViolation) {
  const std::string ended = framed(FrameType::ended, encode(exited(0)));
  Ended timed_out;
  timed_out.cause = EndCause::timed_out;
  Ended cancelled;
  cancelled.cause = EndCause::cancelled;
  const std::vector<std::string> lies{
      // Order.
      framed(FrameType::started),
      framed(FrameType::output_out, "x"),
      ended,
      framed(FrameType::begun) + framed(FrameType::begun),
      framed(FrameType::begun) + ended,
      begun_and_started() + framed(FrameType::started),
      begun_and_started() +
          framed(FrameType::failed, encode(Failure{FailureReason::errno_value, ENOENT, ""})),
      // After the end.
      begun_and_started() + ended + framed(FrameType::output_out, "more"),
      begun_and_started() + ended + ended,
      // Size.
      begun_and_started() + "\x01\x00\x10\0\x13\0\0\0"s,
      begun_and_started() + framed(FrameType::output_out, std::string(kMaxData + 1, 'x')),
      begun_and_started() + framed(FrameType::output_err, ""),
      // Type.
      begun_and_started() + framed(static_cast<FrameType>(0)),
      begun_and_started() + framed(static_cast<FrameType>(255)),
      begun_and_started() + framed(FrameType::exec),
      begun_and_started() + framed(FrameType::data, "x"),
      begun_and_started() + "\0\0\0\0\x13\0\0\x01"s,
      // Content.
      framed(FrameType::begun, "x"),
      framed(FrameType::begun) + framed(FrameType::started, "x"),
      framed(FrameType::failed, encode(Failure{FailureReason::over_cap, 0, ""})),
      framed(FrameType::failed, "x"),
      begun_and_started() + framed(FrameType::ended, "x"),
      begun_and_started() + framed(FrameType::ended, encode(timed_out)),
      begun_and_started() + framed(FrameType::ended, encode(cancelled)),
      begun_and_started() + framed(FrameType::stdin_taken, encode_stdin_taken(1)),
      begun_and_started() + framed(FrameType::stdin_closed),
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    expect_refusal<SandboxUnavailable>([&] { run_against(lies[i]); }, "broke the protocol");
  }
}

TEST_F(LyingGuest, MoreInputTakenThanSentIsAViolation) {
  guest_.attached = [](sys::UniqueFd connection) {
    hear(connection);
    say(connection, begun_and_started());
    hear(connection);
    say(connection, framed(FrameType::stdin_taken, encode_stdin_taken(5)));
    hear_the_end(connection);
  };
  const std::unique_ptr<Call> call = open();
  ExecRequest request;
  request.command = Argv{{"program"}};
  request.stdin_mode = StdinMode::piped;
  const std::unique_ptr<Process> process = call->start(request, {});
  process->write_stdin("1234"s, {});
  expect_refusal<SandboxUnavailable>([&] { process->wait({}); }, "more input taken");
  expect_refusal<SandboxUnavailable>([&] { process->wait({}); }, "more input taken");
}

// EX-13: a stream closed without an exit status is an error, never exit 0.
TEST_F(LyingGuest, EX_13_AStreamThatEndsWithoutAStatusIsUnavailable) {
  for (const std::string& said :
       {""s, framed(FrameType::begun), begun_and_started(),
        begun_and_started() + framed(FrameType::output_out, std::string(1024, 'x'))}) {
    expect_refusal<SandboxUnavailable>([&] { run_until_closed(said); }, "closed its connection");
  }
  // Inside a frame it is a lie.
  expect_refusal<SandboxUnavailable>([&] { run_until_closed(begun_and_started() + "\x05\0\0\0"s); },
                                     "broke the protocol");
}

// EX-13: silence after 1 KiB.
TEST_F(LyingGuest, EX_13_SilenceAfterSomeOutputEndsByTheHostsClock) {
  const std::string said =
      begun_and_started() + framed(FrameType::output_out, std::string(1024, 'x'));
  ExecRequest request;
  request.timeout = 50ms;
  const auto begin = Clock::now();
  expect_refusal<SandboxTimeout>([&] { run_against(said, request); }, "said nothing");
  EXPECT_GE(Clock::now() - begin, 150ms);
  CallControl control;
  control.deadline = Clock::now() + 50ms;
  expect_refusal<SandboxTimeout>([&] { run_against(said, {}, control); }, "deadline");
}

// EX-07: what had come of the output when the guest was lost goes with the refusal.
TEST_F(LyingGuest, EX_07_ALostGuestLeavesWhatTheProgramHadPrinted) {
  const std::string said = begun_and_started() + framed(FrameType::output_out, "pre\n") +
                           framed(FrameType::output_err, "warning\n");
  const auto expect_output = [&](auto act) {
    try {
      act();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const SandboxError& failure) {
      const auto* received = dynamic_cast<const ReceivedOutput*>(&failure);
      ASSERT_NE(received, nullptr) << failure.what();
      EXPECT_EQ(received->out.bytes, "pre\n");
      EXPECT_EQ(received->err.bytes, "warning\n");
    }
  };
  expect_output([&] { run_until_closed(said); });
  expect_output([&] { run_against(said + framed(FrameType::ended, "a lie")); });
  ExecRequest request;
  request.timeout = 10ms;
  parts_.timing.backstop = 1s;
  expect_output([&] { run_against(said, request); });
  request.timeout.reset();
  request.capture_bytes = 1;
  try {
    run_against(said + framed(FrameType::stdin_closed), request);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const SandboxUnavailable& failure) {
    EXPECT_EQ(dynamic_cast<const ReceivedOutput&>(failure).out.missing_bytes, 3U);
  }
}

TEST_F(LyingGuest, ALostGuestLeavesTheSameOutputToEveryLaterWait) {
  guest_.attached = [](sys::UniqueFd connection) {
    hear(connection);
    say(connection, begun_and_started() + framed(FrameType::output_out, "pre"));
  };
  const std::unique_ptr<Call> call = open();
  ExecRequest request;
  request.command = Argv{{"program"}};
  const std::unique_ptr<Process> process = call->start(request, {});
  for (int i = 0; i < 2; ++i) {
    try {
      process->wait({});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const SandboxUnavailable& failure) {
      EXPECT_EQ(dynamic_cast<const ReceivedOutput&>(failure).out.bytes, "pre");
    }
  }
}

// A refusal that a listener threw is about something else.
TEST_F(LyingGuest, WhatAListenerThrowsStaysAsItIs) {
  ExecRequest request;
  request.on_output = [](OutputStream, std::span<const char>) {
    throw SandboxUnavailable("another sandbox");
  };
  try {
    run_against(begun_and_started() + framed(FrameType::output_out, "pre"), request);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const SandboxUnavailable& failure) {
    EXPECT_STREQ(failure.what(), "another sandbox");
    EXPECT_EQ(dynamic_cast<const ReceivedOutput*>(&failure), nullptr);
  }
}

TEST_F(LyingGuest, AGuestLostBeforeTheStartLeavesNoOutput) {
  try {
    run_until_closed(framed(FrameType::begun));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const SandboxUnavailable& failure) {
    EXPECT_EQ(dynamic_cast<const ReceivedOutput*>(&failure), nullptr);
  }
}

TEST_F(LyingGuest, SilenceBeforeTheStartEndsByTheHostsClock) {
  parts_.timing.silence = 50ms;
  for (const std::string& said : {""s, framed(FrameType::begun)}) {
    expect_refusal<SandboxTimeout>([&] { run_against(said); }, "said nothing");
  }
}

// A guest that never stops talking is bounded by the caller's deadline all the same.
TEST_F(LyingGuest, EndlessOutputEndsByTheDeadline) {
  guest_.attached = [](sys::UniqueFd connection) {
    hear(connection);
    say(connection, begun_and_started());
    while (true) say(connection, framed(FrameType::output_out, std::string(kMaxData, 'x')));
  };
  ExecRequest request;
  request.command = Argv{{"program"}};
  CallControl control;
  control.deadline = Clock::now() + 100ms;
  const std::unique_ptr<Call> call = open();
  EXPECT_THROW(call->exec(request, control), SandboxTimeout);
}

TEST_F(LyingGuest, ACancelThatIsNotAnsweredIsCancelledAndNotKnown) {
  std::stop_source source;
  CallControl control;
  control.stop = source.get_token();
  ExecRequest request;
  std::jthread stopper;
  request.on_output = [&](OutputStream, std::span<const char>) {
    stopper = std::jthread([&] { source.request_stop(); });
  };
  const ExecResult result =
      run_against(begun_and_started() + framed(FrameType::output_out, "kept"), request, control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_FALSE(result.stopped_known);
  EXPECT_EQ(result.stdout, "kept");
}

TEST_F(LyingGuest, AStopWhileStartingIsCancelledToo) {
  std::stop_source source;
  CallControl control;
  control.stop = source.get_token();
  guest_.attached = [&](sys::UniqueFd connection) {
    hear(connection);
    source.request_stop();
    hear_the_end(connection);
  };
  ExecRequest request;
  request.command = Argv{{"program"}};
  const std::unique_ptr<Call> call = open();
  const ExecResult result = call->exec(request, control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_FALSE(result.stopped_known);
}

// What waits in the socket since long ago is no silence.
TEST_F(LyingGuest, TheBackstopCountsFromWhenSomebodyListens) {
  std::promise<void> all_said;
  guest_.attached = [&](sys::UniqueFd connection) {
    hear(connection);
    std::string said = begun_and_started();
    for (int i = 0; i < 100; ++i) said += framed(FrameType::output_out, "x");
    Ended ended;
    ended.cause = EndCause::timed_out;
    say(connection, said + framed(FrameType::ended, encode(ended)));
    all_said.set_value();
    hear_the_end(connection);
  };
  const std::unique_ptr<Call> call = open();
  ExecRequest request;
  request.command = Argv{{"program"}};
  request.timeout = 10ms;
  const std::unique_ptr<Process> process = call->start(request, {});
  all_said.get_future().wait();
  std::this_thread::sleep_for(150ms);  // the event is that time has passed: timeout and backstop
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.stdout.size(), 100U);
}

TEST_F(LyingGuest, DestroyingARunningProcessCancelsItAndWaitsForItsEnd) {
  std::atomic<bool> ended_said = false;
  guest_.attached = [&](sys::UniqueFd connection) {
    hear(connection);
    say(connection, begun_and_started());
    const std::optional<Frame> frame = hear(connection);
    EXPECT_TRUE(frame && is(*frame, FrameType::cancel));
    ended_said = true;
    Ended ended;
    ended.cause = EndCause::cancelled;
    say(connection, framed(FrameType::ended, encode(ended)));
    hear_the_end(connection);
  };
  parts_.timing.cancel_grace = 20s;
  const std::unique_ptr<Call> call = open();
  ExecRequest request;
  request.command = Argv{{"program"}};
  call->start(request, {}).reset();
  EXPECT_TRUE(ended_said);
}

// -- Accounting ----------------------------------------------------------------------------------

TEST_F(LyingGuest, AStreamThatEndsBecauseMemoryRanOutIsOutOfMemory) {
  accounting_->out_of_memory = true;
  const ExecResult result =
      run_until_closed(begun_and_started() + framed(FrameType::output_out, "kept"));
  EXPECT_EQ(result.outcome, Outcome::out_of_memory);
  EXPECT_EQ(result.limit, Limit::memory);
  EXPECT_EQ(result.stdout, "kept");
  EXPECT_FALSE(result.stopped_known);
}

TEST_F(LyingGuest, AFullDiskIsNamedWhenTheProgramFailedAndNothingElseBit) {
  const auto end_with = [&](int code) {
    Ended ended = exited(code);
    ended.disk_full = true;
    return run_against(begun_and_started() + framed(FrameType::ended, encode(ended))).limit;
  };
  EXPECT_EQ(end_with(1), Limit::disk);
  EXPECT_EQ(end_with(0), std::nullopt);
  accounting_->limit = Limit::pids;
  EXPECT_EQ(end_with(1), Limit::pids);
}

TEST_F(LyingGuest, ThatProcessesRanOutIsNamedWhenTheProgramFailed) {
  const auto end_with = [&](int code) {
    Ended ended = exited(code);
    ended.processes_ran_out = true;
    return run_against(begun_and_started() + framed(FrameType::ended, encode(ended))).limit;
  };
  EXPECT_EQ(end_with(1), Limit::pids);
  EXPECT_EQ(end_with(0), std::nullopt);
}

TEST_F(LyingGuest, WhatTheGuestsCountersSayIsNamed) {
  Ended forks = exited(0);
  forks.forks_refused = true;
  const auto end_with = [&](const Ended& ended) {
    return run_against(begun_and_started() + framed(FrameType::ended, encode(ended)));
  };
  EXPECT_EQ(end_with(forks).limit, Limit::pids);
  EXPECT_EQ(end_with(forks).outcome, Outcome::exited);
  Ended child = exited(0);
  child.memory_ran_out = true;
  EXPECT_EQ(end_with(child).limit, Limit::memory);
  EXPECT_EQ(end_with(child).outcome, Outcome::exited);
  Ended itself;
  itself.cause = EndCause::signaled;
  itself.signal = SIGKILL;
  itself.memory_ran_out = true;
  EXPECT_EQ(end_with(itself).limit, Limit::memory);
  EXPECT_EQ(end_with(itself).outcome, Outcome::out_of_memory);
}

TEST_F(LyingGuest, GroupsTravelWithTheOpening) {
  class Grouped : public CallAccounting {
   public:
    std::vector<int> groups() const override { return {null_.get()}; }

   private:
    sys::UniqueFd null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  };
  parts_.account = [](std::string_view, CallUse, const CallControl&) {
    return std::make_shared<Grouped>();
  };
  auto [near, far] = sys::socket_pair(sys::SocketType::stream);
  parts_.connect = [end = std::make_shared<sys::UniqueFd>(std::move(near))](const CallControl&) {
    return std::move(*end);
  };
  std::size_t descriptors = 0;
  std::jthread guest([&, control = std::move(far)] {
    descriptors = hear(control)->descriptors.size();
    say(control, framed(FrameType::call_opened, encode(CallOpened{})));
    hear(control);
    say(control, framed(FrameType::call_closed, encode(CallClosed{true})));
  });
  EXPECT_TRUE(open()->close());
  guest.join();
  EXPECT_EQ(descriptors, 1U);
}

// -- Files ---------------------------------------------------------------------------------------

class LyingFileServer : public LyingGuest {
 protected:
  // Opens a call whose file servers answer each request with these bytes.
  std::unique_ptr<Call> open_with(std::string answer) {
    guest_.attached = [answer = std::move(answer)](sys::UniqueFd connection) {
      while (const std::optional<Frame> frame = hear(connection)) {
        if (is(*frame, FrameType::data) || is(*frame, FrameType::write_file) ||
            is(*frame, FrameType::unpack)) {
          continue;
        }
        say(connection, answer);
      }
    };
    return open();
  }
};

TEST_F(LyingFileServer, EveryAnswerOutOfPlaceIsAViolation) {
  const auto lies_to = [&](std::string answer, auto act) {
    const std::unique_ptr<Call> call = open_with(std::move(answer));
    expect_refusal<SandboxUnavailable>([&] { act(*call); }, "broke the protocol");
  };
  const auto listing = [](const std::string& name) {
    Writer writer;
    append_entry(writer, {name, WireKind::file, 1});
    return framed(FrameType::entries, writer.take()) + framed(FrameType::end);
  };
  const auto write = [](Call& call) { call.write_file("f", "x"s, "/w", {}); };
  const auto stat = [](Call& call) { call.stat_file("f", "/w", {}); };
  const auto read = [](Call& call) { call.read_file("f", "/w", 4, {}); };
  const auto remove = [](Call& call) { call.remove("f", "/w", Recursive::no, {}); };
  const auto list = [](Call& call) { call.list_dir("f", "/w", {}); };

  lies_to(framed(FrameType::end), write);
  lies_to(framed(FrameType::done, "x"), write);
  lies_to(framed(FrameType::failed, "x"), write);
  lies_to(framed(FrameType::done), stat);
  lies_to(framed(FrameType::entry, "\x02"), stat);
  lies_to(framed(FrameType::entry, "\x01\x09\0\0\0\0\0\0\0\0"s), stat);
  lies_to(framed(FrameType::done), read);
  lies_to(framed(FrameType::data, "12345"), read);  // beyond what was asked for
  lies_to(framed(FrameType::data, "1234") + framed(FrameType::data, "5"), read);
  lies_to(framed(FrameType::data, ""), read);
  lies_to(framed(FrameType::end, "x"), read);
  lies_to(framed(FrameType::data, "1234"), remove);
  lies_to(framed(FrameType::failed, encode(Failure{FailureReason::directory, ENOENT, ""})), remove);
  lies_to(framed(FrameType::data, "x"), list);
  for (const std::string& name : {""s, "."s, ".."s, "a/b"s, "a\0b"s, std::string(256, 'n')}) {
    lies_to(listing(name), list);
  }
}

TEST_F(LyingFileServer, MoreEntriesThanTheCapAreAViolation) {
  Writer writer;
  for (int i = 0; i < 1000; ++i) append_entry(writer, {"name", WireKind::file, 0});
  const std::string piece = framed(FrameType::entries, writer.take());
  std::string answer;
  for (int i = 0; i < 101; ++i) answer += piece;
  const std::unique_ptr<Call> call = open_with(answer);
  expect_refusal<SandboxUnavailable>([&] { call->list_dir("", "/w", {}); }, "more entries");
}

TEST_F(LyingFileServer, ASnapshotIsHeldToItsBoundAndItsFrames) {
  std::string kept;
  const auto archive = [&](Call& call) {
    kept.clear();
    dynamic_cast<AgentCall&>(call).archive(4, [&](std::string_view bytes) { kept += bytes; }, {});
  };
  const auto lies_to = [&](const std::string& answer, std::string_view text) {
    const std::unique_ptr<Call> call = open_with(answer);
    expect_refusal<SandboxUnavailable>([&] { archive(*call); }, text);
    EXPECT_LE(kept.size(), 4U);
  };
  lies_to(framed(FrameType::data, "12345"), "more files than its disk can hold");
  lies_to(framed(FrameType::data, "1234") + framed(FrameType::data, "5"), "more files");
  lies_to(framed(FrameType::data), "broke the protocol");
  lies_to(framed(FrameType::done), "broke the protocol");
  lies_to(framed(FrameType::end, "x"), "broke the protocol");
  lies_to(framed(FrameType::failed, encode(Failure{FailureReason::over_cap, 0, ""})),
          "broke the protocol");
  const std::unique_ptr<Call> call =
      open_with(framed(FrameType::data, "1234") + framed(FrameType::end));
  archive(*call);
  EXPECT_EQ(kept, "1234");
}

TEST_F(LyingFileServer, ASnapshotIsStoppedThoughTheGuestNeverPauses) {
  const std::string piece = framed(FrameType::data, "x");
  std::stop_source source;
  CallControl control;
  int pieces = 0;
  const auto archive = [&](const std::function<void()>& after_one) {
    pieces = 0;
    const auto call = open_with(piece + piece + piece + framed(FrameType::end));
    const auto put = [&](std::string_view) {
      if (++pieces == 1) after_one();
    };
    dynamic_cast<AgentCall&>(*call).archive(100, put, control);
  };
  EXPECT_NO_THROW(archive([] {}));
  EXPECT_EQ(pieces, 3);
  control.stop = source.get_token();
  EXPECT_THROW(archive([&] { source.request_stop(); }), SandboxCancelled);
  EXPECT_EQ(pieces, 1);
  control = {.deadline = Clock::now() + 1s, .stop = {}};
  EXPECT_THROW(archive([&] { std::this_thread::sleep_until(*control.deadline); }), SandboxTimeout);
  EXPECT_EQ(pieces, 1);

  control = {};
  std::stop_source other;
  const auto call = open_with(framed(FrameType::done));
  pieces = 0;
  const auto next = [&]() -> std::string {
    if (++pieces == 1) other.request_stop();
    return pieces <= 3 ? "bytes" : "";
  };
  control.stop = other.get_token();
  EXPECT_THROW(dynamic_cast<AgentCall&>(*call).unpack(next, control), SandboxCancelled);
  EXPECT_EQ(pieces, 1);
}

TEST_F(LyingFileServer, WhatAGuestSaysOfAFileThatItCannotKeepIsShownEscaped) {
  const std::unique_ptr<Call> call = open_with(framed(
      FrameType::failed, encode(Failure{FailureReason::errno_value, EACCES, "a\x1b[31m\n"})));
  const auto archive = [&] {
    dynamic_cast<AgentCall&>(*call).archive(4, [](std::string_view) {}, {});
  };
  expect_refusal<SandboxFileError>(archive, {"'a\\x1b[31m\\n'", "Permission denied"});
}

TEST_F(LyingFileServer, UnpackingIsAnsweredOnceAndInPlace) {
  const auto unpack = [](Call& call) {
    std::string left = "bytes";
    dynamic_cast<AgentCall&>(call).unpack([&] { return std::exchange(left, ""); }, {});
  };
  for (const std::string& lie : {framed(FrameType::end), framed(FrameType::done, "x"),
                                 framed(FrameType::data, "x"), framed(FrameType::failed, "x")}) {
    const std::unique_ptr<Call> call = open_with(lie);
    expect_refusal<SandboxUnavailable>([&] { unpack(*call); }, "broke the protocol");
  }
  const std::unique_ptr<Call> call = open_with(framed(FrameType::done));
  EXPECT_NO_THROW(unpack(*call));
}

TEST_F(LyingFileServer, SilenceEndsByTheHostsClockAndTheNextOperationStartsAnew) {
  parts_.timing.silence = 500ms;
  const std::unique_ptr<Call> call = open_with("\x01\0"s);
  EXPECT_THROW(call->stat_file("f", "/w", {}), SandboxTimeout);
  CallControl control;
  control.deadline = Clock::now() + 20ms;
  expect_refusal<SandboxTimeout>([&] { call->read_file("f", "/w", 1, control); }, "deadline");
  EXPECT_EQ(guest_.attachments, 2);
}

TEST_F(LyingGuest, APlaceForAProgramIsAskedForWithItsCallAndUsedByTheFirst) {
  guest_.attached = [](sys::UniqueFd connection) {
    FrameReader reader(connection.get());
    await_frame(connection.get(), reader);
    say(connection, framed(FrameType::begun, "") + framed(FrameType::started, "") +
                        framed(FrameType::ended, encode(Ended{.stopped_known = true})));
  };
  AgentSandbox sandbox(parts_);
  CallProfile profile;
  profile.starts_program = true;
  ExecRequest request;
  request.command = Argv{{"true"}};
  const std::unique_ptr<Call> call = sandbox.open_call(profile, {});
  EXPECT_EQ(call->exec(request, {}).exit_code, 0);
  EXPECT_EQ(guest_.attachments, 1);
  EXPECT_EQ(call->exec(request, {}).exit_code, 0);
  EXPECT_EQ(guest_.attachments, 2);
}

TEST_F(LyingGuest, ACallThatEndedWithItsSandboxSaysNothingMoreToTheGuest) {
  const std::unique_ptr<Call> call = open();
  call->end_with_sandbox();
  EXPECT_TRUE(call->close());
  ExecRequest request;
  request.command = Argv{{"true"}};
  expect_refusal<SandboxUnavailable>([&] { call->start(request, {}); }, "closed");
}

TEST_F(LyingFileServer, AConnectionIsUsedAgainAfterAnAnswer) {
  const std::unique_ptr<Call> call =
      open_with(framed(FrameType::failed, encode(Failure{FailureReason::errno_value, EIO, ""})));
  for (int i = 0; i < 3; ++i) EXPECT_THROW(call->stat_file("f", "/w", {}), SandboxFileError);
  EXPECT_EQ(guest_.attachments, 1);
}

TEST_F(LyingFileServer, AServerThatCannotWorkIsUnavailable) {
  const std::unique_ptr<Call> call =
      open_with(framed(FrameType::failed, encode(Failure{FailureReason::no_resources, EPERM, ""})));
  expect_refusal<SandboxUnavailable>([&] { call->stat_file("f", "/w", {}); }, "not permitted");
}

}  // namespace
}  // namespace casemate::guest
