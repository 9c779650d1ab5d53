// A guest that lies, stalls or dies as a call is opened or closed: the host ends within its own
// bounds with a named refusal.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/lying_guest_test.h"
#include "casemate/guest/ready_call.h"
#include "tests/support/expect_refusal.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

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

}  // namespace
}  // namespace casemate::guest
