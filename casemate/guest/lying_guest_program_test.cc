// A guest that lies, stalls or dies while a program runs. Whatever it does, the host ends within
// its own bounds with a named refusal, and never makes up an exit status.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/lying_guest_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

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

}  // namespace
}  // namespace casemate::guest
