#pragma once

// For tests: a guest that lies, stalls or dies, at the other end of the host's socket.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/sandbox.h"
#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/frame_bytes_test.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

inline std::string begun_and_started() {
  return framed(FrameType::begun) + framed(FrameType::started);
}

inline Ended exited(int code) {
  Ended ended;
  ended.exit_code = code;
  ended.stopped_known = true;
  return ended;
}

inline void say(const sys::UniqueFd& connection, std::string_view bytes) {
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
inline std::optional<Frame> hear(const sys::UniqueFd& connection) {
  FrameReader reader(connection.get());
  return await_frame(connection.get(), reader);
}

// Waits until the host has closed its end.
inline void hear_the_end(const sys::UniqueFd& connection) {
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
    parts_.timing = {.silence = std::chrono::seconds(5),
                     .backstop = std::chrono::milliseconds(100),
                     .cancel_grace = std::chrono::milliseconds(100),
                     .close_patience = std::chrono::seconds(5)};
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

}  // namespace casemate::guest
