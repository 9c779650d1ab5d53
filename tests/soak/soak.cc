#include "tests/soak/soak.h"

#include <sys/inotify.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "casemate/core/errors.h"
#include "tests/soak/rounds.h"
#include "tests/support/own_network.h"

namespace casemate::soak {
namespace {

using namespace std::chrono_literals;

const auto* const kNetwork =
    ::testing::AddGlobalTestEnvironment(new OwnNetwork(OwnNetwork::Rights::of_root_only));

// As a host does whose sandboxes were lost with their keeper.
void live_again_if_lost(const std::function<void()>& life) {
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      return life();
    } catch (const SandboxUnavailable&) {
      if (attempt == kAttempts) throw;
    } catch (const NoSuchSandbox&) {
      if (attempt == kAttempts) throw;
    }
  }
}

}  // namespace

std::shared_ptr<Sandbox> acquire_surely(local::LocalBackend& host, const SandboxKey& key,
                                        const SandboxSpec& spec) {
  try {
    return host.acquire(key, spec, {});
  } catch (const SandboxUnavailable& refusal) {
    throw std::runtime_error("no sandbox was to be had: " + refusal.message());
  }
}

std::string print(Sandbox& sandbox, const std::string& line) {
  const ExecResult result = sandbox.exec(linux_tests::shell(line), {});
  if (result.outcome != Outcome::exited || result.exit_code != 0) {
    throw std::runtime_error("'" + line + "' failed: " + result.stdout + result.stderr);
  }
  return result.stdout;
}

void Soak::SetUp() {
  LinuxTest::SetUp();
  if (IsSkipped()) return;
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
  backend().list();  // makes the state directory
  watch_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch_.get(), (state() / "new").c_str(), IN_CREATE), 0);
}

void Soak::TearDown() {
  LinuxTest::TearDown();
  prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

SandboxSpec Soak::kept_spec() {
  SandboxSpec kept = spec();
  kept.keep_idle = 1h;
  return kept;
}

void Soak::kill_at_any_step(Victim victim, const Life& life,
                            const std::vector<SandboxSpec>& specs) {
  remember_what_is_there();
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  for (int step = first_step(stride);; step += stride) {
    const SandboxSpec& wanted = specs.at(static_cast<std::size_t>(step / stride) % specs.size());
    before_life();
    const Stepped stepped = run_and_kill(victim, {step}, [&] {
      const auto host = make_host();
      if (victim == Victim::host) return life(*host, wanted);
      live_again_if_lost([&] { life(*host, wanted); });
    });
    const std::string when = "step " + std::to_string(step);
    if (victim == Victim::keeper || !stepped.killed) {
      EXPECT_EQ(stepped.status, 0) << when;
    }
    after_life(stepped, when);
    expect_nothing_left(when);
    if (HasFailure()) return;
    if (!stepped.killed) {
      std::cout << "killed " << killed << " times in a life of " << stepped.calls
                << " system calls\n";
      // A victim that was lost sight of has few.
      EXPECT_GT(stepped.calls, 300);
      return;
    }
    ++killed;
  }
}

// The groups of every sandbox that was begun since the last time.
std::vector<std::string> Soak::groups_left() {
  std::vector<std::string> found;
  alignas(inotify_event) char buffer[8192];
  for (ssize_t size = 0; (size = read(watch_.get(), buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(&buffer[at]);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if (event->len == 0) continue;
      for (std::string& group : linux_tests::control_groups_of(event->name)) {
        found.push_back(std::move(group));
      }
    }
  }
  return found;
}

// Those of an ordinary user, who can make none, are made by whoever starts this program and says
// so.
Inventory Soak::what_is_there() const {
  const bool own =
      OwnNetwork::why_not().empty() || std::getenv("CASEMATE_TEST_OWN_NAMESPACES") != nullptr;
  return take_inventory(own ? Namespaces::own : Namespaces::shared, directories());
}

void Soak::remember_what_is_there() {
  groups_left();
  before_ = what_is_there();
}

void Soak::expect_nothing_left(const std::string& when) {
  {
    const auto sweeper = another_backend();
    for (const SandboxRecord& record : sweeper->list()) sweeper->dispose_id(record.id);
  }
  ASSERT_TRUE(wait_for_descendants(20)) << when << ": processes are left";
  // What was still ending at the last sweep is for the next.
  another_backend()->list();
  ASSERT_EQ(differences(before_, what_is_there()), "") << when;
  ASSERT_EQ(groups_left(), std::vector<std::string>{}) << when;
}

}  // namespace casemate::soak
