// A guest that lies or stalls about files.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/guest/agent_call.h"
#include "casemate/guest/lying_guest_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

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
