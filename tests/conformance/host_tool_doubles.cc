// Doubles of the road between a program and the host's functions: a relay of their own stands in
// it, and does one thing wrong.

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/conformance/doubles.h"

namespace casemate::conformance_tests {
namespace {

using conformance::Suite;

struct Flaws {
  bool one_at_a_time = false;
  bool first_process_only = false;
  bool refusals_cut_off = false;
  bool answers_in_ascii = false;
  // Every call of the sandbox gets the newest run's road.
  bool for_every_call = false;
  bool dead_after_a_cancellation = false;
  bool no_road = false;
};

// Between calls of one sandbox and their runs. Outlives all of them.
class Road {
 public:
  explicit Road(Flaws flaws) : flaws_(flaws), stopped_(sys::make_event()) {}
  ~Road() {
    sys::raise_event(stopped_.get());
    // The last of them may have started another.
    for (std::vector<std::thread> threads = taken(); !threads.empty(); threads = taken()) {
      for (std::thread& thread : threads) thread.join();
    }
  }
  Road(const Road&) = delete;
  Road& operator=(const Road&) = delete;

  std::unique_ptr<Call> open(Sandbox& good, CallProfile profile, const CallControl& control) {
    const bool offered = profile.host_tool_socket >= 0;
    if (offered && (flaws_.no_road || (flaws_.dead_after_a_cancellation && cancelled_))) {
      profile.host_tool_socket = -1;
      return good.open_call(profile, control);
    }
    if (!offered && !flaws_.for_every_call) return good.open_call(profile, control);
    if (offered) {
      const std::lock_guard lock(mutex_);
      run_ = sys::bind_to_fresh_name(profile.host_tool_socket);
    }
    sys::UniqueFd front = sys::make_stream_socket();
    profile.host_tool_socket = front.get();
    auto call = good.open_call(profile, control);
    sys::start_listening(front.get());
    spawn(
        [this, front = std::make_shared<sys::UniqueFd>(std::move(front))] { serve(front->get()); });
    return call;
  }

  void saw(const ExecResult& result) {
    if (result.outcome == Outcome::cancelled) cancelled_ = true;
  }

 private:
  std::vector<std::thread> taken() {
    const std::lock_guard lock(mutex_);
    return std::exchange(threads_, {});
  }

  // Takes the descriptor's readiness or the end: false for the end.
  bool ready(int fd) const {
    std::array<pollfd, 2> entries{pollfd{.fd = stopped_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = fd, .events = POLLIN, .revents = 0}};
    sys::poll_until(entries, std::nullopt);
    return entries[0].revents == 0;
  }

  void spawn(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back([work = std::move(work)] {
      try {
        work();
      } catch (const std::system_error&) {
        // One side went away, as sides do when a probe is over.
      }
    });
  }

  void serve(int front) {
    std::optional<pid_t> first;
    while (ready(front)) {
      auto connection = std::make_shared<sys::UniqueFd>(sys::accept_connection(front));
      if (!*connection) continue;
      ucred peer{};
      socklen_t size = sizeof peer;
      getsockopt(connection->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
      if (!first) first = peer.pid;
      if (flaws_.first_process_only && peer.pid != *first) continue;
      if (flaws_.one_at_a_time) {
        try {
          carry(connection->get());
        } catch (const std::system_error&) {
          // That caller went away; the next one may come.
        }
      } else {
        spawn([this, connection] { carry(connection->get()); });
      }
    }
  }

  // One request and its answer, as the probes' caller makes them.
  void carry(int caller) {
    std::string run;
    {
      const std::lock_guard lock(mutex_);
      run = run_;
    }
    const sys::UniqueFd host = sys::connect_to_address(run);
    const std::string request = frame(caller);
    if (request.empty()) return;
    pass(host.get(), request);
    std::string answer = frame(host.get());
    constexpr std::size_t kKindAt = 8;
    if (answer.size() <= kKindAt || (flaws_.refusals_cut_off && answer[kKindAt] != 0)) return;
    if (flaws_.answers_in_ascii) {
      for (std::size_t at = kKindAt + 1; at < answer.size(); ++at) {
        if (static_cast<unsigned char>(answer[at]) > 127) answer[at] = '?';
      }
    }
    pass(caller, answer);
  }

  // With its length; empty when the sender has ended.
  std::string frame(int from) const {
    std::string bytes;
    const auto fill = [&](std::size_t size) {
      std::array<char, 4096> buffer{};
      while (bytes.size() < size) {
        if (!ready(from)) return false;
        const std::size_t room = std::min(buffer.size(), size - bytes.size());
        const auto got =
            sys::receive_message(from, std::span(buffer).first(room), sys::Blocking::no);
        if (got.would_block) continue;
        if (got.bytes == 0) return false;
        bytes.append(buffer.data(), got.bytes);
      }
      return true;
    };
    if (!fill(4)) return {};
    std::size_t length = 0;
    for (std::size_t i = 4; i-- > 0;) length = length << 8U | static_cast<unsigned char>(bytes[i]);
    return fill(4 + length) ? bytes : std::string();
  }

  static void pass(int to, std::string_view bytes) {
    while (!bytes.empty()) {
      bytes.remove_prefix(sys::send_message(to, bytes, {}, sys::Blocking::yes));
    }
  }

  const Flaws flaws_;
  const sys::UniqueFd stopped_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  // Below: guarded by `mutex_`.
  std::string run_;
  std::vector<std::thread> threads_;
};

Double flawed(std::string name, Flaws flaws) {
  const auto road = std::make_shared<Road>(flaws);
  Faults faults;
  faults.open_call = [road](Sandbox& good, const CallProfile& profile, const CallControl& control) {
    return road->open(good, profile, control);
  };
  faults.exec = [road](Call& good, const ExecRequest& request, const CallControl& control) {
    ExecResult result = good.exec(request, control);
    road->saw(result);
    return result;
  };
  return {std::move(name), {Suite::host_tools}, std::move(faults)};
}

}  // namespace

std::vector<Double> host_tool_doubles() {
  std::vector<Double> all{
      flawed("offers no road to the host", {.no_road = true}),
      flawed("loses what is no ASCII in answers", {.answers_in_ascii = true}),
      flawed("carries one call at a time", {.one_at_a_time = true}),
      flawed("cuts callers off where the host refuses", {.refusals_cut_off = true}),
      flawed("serves the first process only", {.first_process_only = true}),
      flawed("serves every call of the sandbox", {.for_every_call = true}),
      flawed("offers no road after a cancellation", {.dead_after_a_cancellation = true}),
  };
  Faults faults;
  faults.exec = [](Call& good, const ExecRequest& request, const CallControl& control) {
    ExecResult result = good.exec(request, control);
    if (result.outcome == Outcome::cancelled) result.outcome = Outcome::signaled;
    return result;
  };
  all.push_back({"tells a cancellation as a signal", {Suite::host_tools}, std::move(faults)});
  Faults short_lived;
  short_lived.start = [](Call& good, ExecRequest request, const CallControl& control) {
    request.lifetime = Lifetime::call;
    return good.start(request, control);
  };
  all.push_back({"ends every program with its call", {Suite::host_tools}, std::move(short_lived)});
  return all;
}

}  // namespace casemate::conformance_tests
