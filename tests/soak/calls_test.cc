// That nothing survives of a call that leads back to its host: host tools, and a way out.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "casemate/core/errors.h"
#include "casemate/egress/gateway_test.h"
#include "casemate/host_tools/session.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/soak/rounds.h"
#include "tests/soak/shared_number.h"
#include "tests/soak/soak.h"
#include "tests/support/name_server.h"
#include "tests/support/own_network.h"

namespace casemate::soak {
namespace {

using namespace std::chrono_literals;
using linux_tests::shell;

void expect_output(const ExecResult& result, std::string_view wanted) {
  if (result.outcome != Outcome::exited || result.stdout != wanted) {
    throw std::runtime_error("printed '" + result.stdout + "': " + result.stderr);
  }
}

// And waits for what that ends.
void end_keeper_of(const Sandbox& sandbox) {
  const pid_t agent = sandbox.first_process().value_or(-1);
  const pid_t keeper = linux_tests::keeper_of(agent);
  if (keeper <= 1) return;
  kill(keeper, SIGKILL);
  linux_tests::wait_until_gone(agent);
}

class ToolSoak : public Soak {
 protected:
  // Calls a function of the host's from a program, and `meanwhile` in it.
  static void live_with_tool(local::LocalBackend& host, const SandboxSpec& wanted,
                             const std::function<void(const Sandbox&)>& meanwhile) {
    const auto sandbox = acquire_surely(host, key(), wanted);
    const auto tool = [&](const boost::json::object& arguments, const HostToolContext&) {
      meanwhile(*sandbox);
      return boost::json::value(arguments);
    };
    HostToolSession session(registry_of({tool_of("ask", tool)}), {});
    const auto call = sandbox->open_call({.host_tool_socket = session.socket()}, {});
    session.serve();
    ExecRequest request = shell("casemate-call ask '{\"a\":1}'");
    for (auto& [name, value] : session.environment(call->host_tool_address())) {
      request.environment[name] = value;
    }
    expect_output(call->exec(request, {}), "{\"a\":1}\n");
    call->close();
    session.close();
    host.dispose(key());
  }

  void before_life() override { *calls_ = 0; }
  void after_life(const Stepped& stepped, const std::string& /*when*/) override {
    if (stepped.killed && *calls_ == 1) ++killed_in_a_call_;
  }
  // Long enough for some kills.
  void be_called() {
    ++*calls_;
    for (int i = 0; i < 60; ++i) getppid();
    ++*calls_;
  }

  SharedNumber calls_;
  int killed_in_a_call_ = 0;
};

// LC-04
TEST_F(ToolSoak, AHostThatIsKilledWhileAToolIsCalledLeavesNothing) {
  kill_at_any_step(Victim::host, [&](auto& host, const auto& wanted) {
    live_with_tool(host, wanted, [&](const Sandbox&) { be_called(); });
  });
  EXPECT_GT(killed_in_a_call_, 0) << "no kill came while the host's function ran";
}

// LC-04
TEST_F(ToolSoak, AKeeperThatIsKilledUnderHostToolsLeavesNothingAndItsHostGoesOn) {
  kill_at_any_step(Victim::keeper, [&](auto& host, const auto& wanted) {
    live_with_tool(host, wanted, [](const Sandbox&) {});
  });
}

// Its own steps are few while others are at work.
// LC-04
TEST_F(ToolSoak, AKeeperThatIsKilledByTheToolThatIsCalledLeavesNothingAndItsHostGoesOn) {
  remember_what_is_there();
  for (int round = 0; round < rounds(50); ++round) {
    {
      const auto host = make_host();
      EXPECT_THROW(live_with_tool(*host, kept_spec(), end_keeper_of), SandboxUnavailable);
      live_with_tool(*host, kept_spec(), [](const Sandbox&) {});
    }
    expect_nothing_left("round " + std::to_string(round));
    if (HasFailure()) return;
  }
}

// A server that sends back what comes, and knows of each connection how it ended.
class TalkingServer {
 public:
  TalkingServer() : origin_(kPublicIpv4, 80, [this](const Stream& stream) { talk(stream); }) {}

  // Waits until every conversation that was begun is over, however: at most 20 s.
  bool wait_until_silent() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return talking_ == 0; });
  }
  // Of those that were under way.
  int cut_off() {
    const std::lock_guard lock(mutex_);
    return cut_off_;
  }

 private:
  // Of a line each; the last is "bye".
  void talk(const Stream& stream) {
    count([&] { ++talking_; });
    std::string line;
    bool begun = false;
    while (line != "bye\n") {
      line.clear();
      while (!line.ends_with('\n')) {
        const std::string byte = stream.read(1);
        if (byte.empty()) {
          return count([&] {
            --talking_;
            if (begun) ++cut_off_;
          });
        }
        line += byte;
      }
      begun = true;
      stream.send(line);
    }
    count([&] { --talking_; });
  }
  template <typename Act>
  void count(Act act) {
    const std::lock_guard lock(mutex_);
    act();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int talking_ = 0;
  int cut_off_ = 0;
  Origin origin_;
};

class EgressSoak : public Soak {
 protected:
  void SetUp() override {
    if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
    Soak::SetUp();
    if (IsSkipped()) return;
    names_.emplace(std::map<std::string, std::string>{{"allowed.test", kPublicIpv4}});
  }

  // A program talks to a server outside. `meanwhile` is told when it has begun, and the program
  // waits for a word that never comes where `for_ever` says so.
  enum class Talk { to_its_end, for_ever };
  static void live_with_tunnel(local::LocalBackend& host, SandboxSpec wanted, Talk talk,
                               const std::function<void(const Sandbox&)>& meanwhile) {
    wanted.egress = Egress::allowlist;
    wanted.egress_allow = {HostPattern::parse("allowed.test")};
    const auto sandbox = acquire_surely(host, key(), wanted);
    const auto call = sandbox->open_call({.starts_program = true}, {});
    ExecRequest request;
    request.command =
        Argv{{"/bin/bash", "-c",
              "exec 3<>/dev/tcp/allowed.test/80\n"
              "for word in a b c d e f g h i j; do echo $word >&3; read -r answer <&3\n"
              "[ $answer = $word ] || exit 1; done\n"
              "echo talked\n" +
                  std::string(talk == Talk::for_ever ? "read -r answer <&3\n" : "") +
                  "echo bye >&3; read -r answer <&3"}};
    request.on_output = [&](OutputStream, std::span<const char>) { meanwhile(*sandbox); };
    expect_output(call->exec(request, {}), "talked\n");
    call->close();
    host.dispose(key());
  }

  void before_life() override { server_.emplace(); }
  void after_life(const Stepped& /*stepped*/, const std::string& when) override {
    EXPECT_TRUE(server_->wait_until_silent()) << when << ": a tunnel was left";
    cut_off_ += server_->cut_off();
    server_.reset();
  }

  std::optional<NameServer> names_;
  std::optional<TalkingServer> server_;
  int cut_off_ = 0;
};

// LC-04
TEST_F(EgressSoak, AHostThatIsKilledWhileATunnelIsOpenLeavesNothing) {
  kill_at_any_step(Victim::host, [](auto& host, const auto& wanted) {
    live_with_tunnel(host, wanted, Talk::to_its_end, [](const Sandbox&) {});
  });
  EXPECT_GT(cut_off_, 0) << "no kill came while a tunnel was open";
}

// LC-04
TEST_F(EgressSoak, AKeeperThatIsKilledUnderEgressLeavesNothingAndItsHostGoesOn) {
  kill_at_any_step(Victim::keeper, [](auto& host, const auto& wanted) {
    live_with_tunnel(host, wanted, Talk::to_its_end, [](const Sandbox&) {});
  });
}

// LC-04
TEST_F(EgressSoak, AKeeperThatIsKilledWhileATunnelIsOpenLeavesNothingAndItsHostGoesOn) {
  remember_what_is_there();
  for (int round = 0; round < rounds(50); ++round) {
    const std::string when = "round " + std::to_string(round);
    before_life();
    {
      const auto host = make_host();
      EXPECT_THROW(live_with_tunnel(*host, kept_spec(), Talk::for_ever, end_keeper_of),
                   SandboxUnavailable);
      live_with_tunnel(*host, kept_spec(), Talk::to_its_end, [](const Sandbox&) {});
    }
    after_life({}, when);
    expect_nothing_left(when);
    if (HasFailure()) return;
  }
  EXPECT_EQ(cut_off_, rounds(50));
}

}  // namespace
}  // namespace casemate::soak
