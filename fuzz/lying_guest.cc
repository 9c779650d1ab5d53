// The host's side of a sandbox whose guest sends whatever it likes: each operation gives a value
// within its bounds or a named refusal, and never an exit status that the guest did not send.
//
// The first byte chooses the operation, the second what of the control stream is the input's: the
// part up to the first 0xFF; the rest is what comes on attached connections.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/socket.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::guest;
using namespace std::chrono_literals;

constexpr std::size_t kMaxSaid = 64 * 1024;
constexpr std::uint64_t kMaxRead = 1000;
constexpr std::uint64_t kCapture = 256;

std::string framed(FrameType type, std::string_view payload) {
  Writer header;
  header.u32(static_cast<std::uint32_t>(payload.size())).u8(wire(type));
  return header.take() + std::string(3, '\0') + std::string(payload);
}

void say(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    bytes.remove_prefix(sys::send_message(connection, bytes, {}, sys::Blocking::yes));
  }
}

// Answers on one control stream, and to each attached connection says `attached` and hangs up.
void serve(const sys::UniqueFd& control, std::string_view said, std::string_view attached) {
  try {
    if (!said.empty()) {
      say(control.get(), said);
      return;
    }
    FrameReader reader(control.get());
    while (auto frame = await_frame(control.get(), reader)) {
      if (is(*frame, FrameType::open_call)) {
        say(control.get(), framed(FrameType::call_opened, encode(CallOpened{})));
      } else if (is(*frame, FrameType::attach)) {
        say(frame->descriptors.at(0).get(), attached);
      } else {
        say(control.get(), framed(FrameType::call_closed, encode(CallClosed{true})));
      }
    }
  } catch (const std::system_error&) {
    // The host hung up, as it should.
  } catch (const ProtocolError&) {
  }
}

void check_result(const ExecResult& result) {
  require((result.outcome == Outcome::exited) == result.exit_code.has_value(),
          "there is an exit code after an exit, and only then");
  require(!result.exit_code || (*result.exit_code >= 0 && *result.exit_code <= 255),
          "an exit code is 0 to 255");
  require((result.outcome == Outcome::signaled) == result.signal.has_value(),
          "there is a signal after one, and only then");
  require(result.stdout.size() <= kCapture && result.stderr.size() <= kCapture,
          "what is kept of a stream is within its cap");
  require(result.wall.count() >= 0 && result.cpu.count() >= 0, "no time is negative");
}

void operate(Call& call, unsigned operation) {
  switch (operation % 5) {
    case 0: {
      ExecRequest request;
      request.command = Argv{{"true"}};
      request.capture_bytes = kCapture;
      check_result(call.exec(request, {}));
      break;
    }
    case 1:
      require(call.read_file("a", "/workspace", kMaxRead, {}).size() <= kMaxRead,
              "a file that is read is within its cap");
      break;
    case 2: {
      const auto entries = call.list_dir("", "/workspace", {});
      require(std::ranges::is_sorted(entries, {}, &SandboxEntry::path), "a listing is sorted");
      for (const SandboxEntry& entry : entries) {
        require(entry.path.find('/') == std::string::npos && !entry.path.empty(),
                "a listing has names");
        require(entry.kind == EntryKind::file || !entry.size_bytes, "only files have sizes");
      }
      break;
    }
    case 3:
      if (const auto entry = call.stat_file("a", "/workspace", {})) {
        require(entry->path == "a", "an entry is the one that was asked for");
        require(entry->kind == EntryKind::file || !entry->size_bytes, "only files have sizes");
      }
      break;
    default:
      call.write_file("a", std::string(100, 'x'), "/workspace", {});
      call.remove("a", "/workspace", Recursive::no, {});
  }
}

}  // namespace

void fuzz_lying_guest(std::string_view bytes) {
  Input input(bytes);
  const unsigned operation = input.byte();
  const bool control_lies = input.byte() % 4 == 3;
  const std::string_view said = input.rest().substr(0, kMaxSaid);

  std::jthread guest;
  AgentSandboxParts parts;
  parts.info.work_dir = "/workspace";
  parts.timing = {
      .silence = 200ms, .backstop = 200ms, .cancel_grace = 200ms, .close_patience = 200ms};
  parts.connect = [&](const CallControl&) {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    guest = std::jthread([control_lies, said, control = std::move(far)] {
      serve(control, control_lies ? said : std::string_view(), said);
    });
    return std::move(near);
  };
  AgentSandbox sandbox(std::move(parts));
  try {
    const std::unique_ptr<Call> call = sandbox.open_call({}, {});
    require(call->directory().starts_with("/workspace/"), "a call has its directory");
    operate(*call, operation);
    call->close();
  } catch (const SandboxError&) {
    // Named: that is all that is asked.
  }
}

}  // namespace casemate::fuzz
