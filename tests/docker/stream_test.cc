// Containers that share no directory with their host: of an engine behind TLS, and of a runtime
// that was named and may have a kernel of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "casemate/backends/docker/guest_volume.h"
#include "casemate/conformance/conformance.h"
#include "casemate/core/errors.h"
#include "casemate/sys/process.h"
#include "tests/docker/engines.h"
#include "tests/docker/other_process.h"

namespace casemate::docker_tests {
namespace {

class DockerStream : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerStream, testing::Values("remote", "runtime", "runsc"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerStream, RunsProgramsAndMovesFiles) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  call->write_file("work/in", std::string(3'000'000, 'x'), call->directory(), {});
  const ExecResult result =
      call->exec(python("open('out', 'w').write(open('in').read()[::-1]); print(1)"), {});
  EXPECT_EQ(result.stdout, "1\n") << result.stderr;
  EXPECT_EQ(call->read_file("work/out", call->directory(), 4'000'000, {}).size(), 3'000'000U);
  EXPECT_TRUE(call->close());
  EXPECT_TRUE(acquire()->info().reused);
  EXPECT_EQ(containers().size(), 1U);
  EXPECT_EQ(backend().dispose(key()), 1);
  EXPECT_EQ(containers().size(), 0U);
  EXPECT_THROW(sandbox->open_call({}, {}), SandboxUnavailable);
}

TEST_P(DockerStream, EndsWithItsLastLease) {
  acquire();
  const auto id = containers().at(0).id;
  backend_.reset();
  await_gone(id);
  backend_ = make_backend();
}

TEST_P(DockerStream, TwoProcessesThatAskAtOnceHaveOneContainer) {
  std::vector<std::unique_ptr<DockerBackend>> kept;
  const auto keeping = [&] {
    kept.push_back(make_backend());
    const auto sandbox = kept.back()->acquire(key(), spec(), {});
    const ExecResult result = sandbox->exec(shell("echo works"), {});
    return sandbox->info().id + (result.stdout == "works\n" ? "" : " and does not work");
  };
  OtherProcess one(keeping);
  OtherProcess two(keeping);
  one.go();
  two.go();
  const std::string first = one.hear();
  EXPECT_EQ(first, two.hear());
  EXPECT_EQ(first.size(), 24U) << first;
  EXPECT_EQ(containers().size(), 1U);
  // It lives as long as either holds it, and ends when both are killed.
  one.end();
  EXPECT_EQ(make_backend()->attach(key(), "test", {})->info().id, first);
  const std::string id = containers().at(0).id;
  two.end();
  await_gone(id);
}

TEST_P(DockerStream, ASandboxThatIsToBeKeptIsThereForTheNextHost) {
  SandboxSpec patient = spec();
  patient.keep_idle = std::chrono::minutes(10);
  const std::string id = backend().acquire(key(), patient, {})->info().id;
  backend_ = make_backend();
  const auto sandbox = acquire();
  EXPECT_TRUE(sandbox->info().reused);
  EXPECT_EQ(sandbox->info().id, id);
}

TEST_P(DockerStream, AnotherFingerprintReplacesWhatIsIdleAndIsRefusedWhatIsBusy) {
  const auto first = acquire();
  SandboxSpec other = spec();
  other.resources.pids = stated(64);
  {
    const auto call = first->open_call({}, {});
    EXPECT_THROW(acquire(other), SandboxBusy);
  }
  const auto second = acquire(other);
  EXPECT_NE(second->info().id, first->info().id);
  EXPECT_EQ(containers().size(), 1U);
  EXPECT_THROW(first->open_call({}, {}), SandboxUnavailable);
}

// An engine may leave the connection of an exec open whose container it has removed.
TEST_P(DockerStream, WhoHasACallOpenLearnsAtOnceThatItsSandboxWasDisposed) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  EXPECT_EQ(backend().dispose(key()), 1);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(call->close());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST_P(DockerStream, OneThatAnotherProcessDisposedOfIsMadeAnew) {
  const std::string first = acquire()->info().id;
  EXPECT_EQ(make_backend()->dispose(key()), 1);
  const auto second = acquire();
  EXPECT_NE(second->info().id, first);
  EXPECT_EQ(second->exec(shell("echo works"), {}).stdout, "works\n");
}

class DockerRemote : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerRemote, testing::Values("remote"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerRemote, AnEngineOfAnotherAuthorityOrThatDoesNotKnowUsIsRefused) {
  DockerBackendOptions unknown = options();
  unknown.tls_directory.clear();
  EXPECT_THROW(make_backend(unknown)->acquire(key(), spec(), {}), SandboxUnavailable);
  const BackendProbe probe = make_backend(unknown)->probe();
  EXPECT_FALSE(probe.available);
}

class DockerRuntime : public DockerTest {
 protected:
  Isolation seen_with(const std::string& runtime) {
    DockerBackendOptions named = options();
    named.runtime = runtime;
    named.image = kImage;
    const auto own = make_backend(named);
    const Isolation declared = own->declarations().isolation.value();
    EXPECT_EQ(containers().size(), 0U);
    EXPECT_EQ(own->acquire(key(), spec(), {})->info().isolation, declared);
    own->dispose(key());
    return declared;
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, DockerRuntime, testing::Values("runsc"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerRuntime, ARungIsLiftedByWhatIsSeenAndNotByAName) {
  EXPECT_EQ(seen_with("runsc"), Isolation::hardened_container);
  EXPECT_EQ(seen_with("hardened"), Isolation::container);
}

// The processes by which the engine under test watches containers.
std::set<int> shims() {
  const std::string socket = engine_under_test("docker").address.substr(sizeof "unix://" - 1);
  const std::string root = std::filesystem::path(socket).parent_path();
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::string words;
    std::getline(std::ifstream(entry.path() / "cmdline"), words);
    if (words.find("containerd-shim") != words.npos && words.find(root) != words.npos) {
      found.insert(std::stoi(name));
    }
  }
  return found;
}

// A container that Docker is told to start and gVisor cannot keeps such a process for good.
TEST_P(DockerRuntime, TheFirstOfABuildLeavesNoProcessOfTheEnginesBehind) {
  engine().remove_volume(docker::guest_volume(), {});
  const std::set<int> before = shims();
  const auto sandbox = acquire();
  EXPECT_EQ(sandbox->exec(shell("echo works"), {}).stdout, "works\n");
  const std::set<int> during = shims();
  // Not by their number: one of the test before may end meanwhile.
  EXPECT_FALSE(std::ranges::includes(before, during));
  EXPECT_EQ(backend().dispose(key()), 1);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (const int each : during) {
    if (before.contains(each)) continue;
    try {
      EXPECT_TRUE(sys::wait_ended(sys::open_pid(each).get(), until)) << each;
    } catch (const std::system_error&) {
      // It has ended since.
    }
  }
}

// Most of root's rights over the kernel that a container shares. What a program reads of process 1
// is what the engine gave to it.
constexpr char kRightsOfFirst[] =
    "with open('/proc/1/status') as status:\n"
    "    print([line.split()[1] for line in status if line.startswith('CapPrm')][0])\n";
constexpr char kFewRights[] = "00000000000001eb\n";

TEST_P(DockerRuntime, OnThisMachinesKernelItIsNotGivenTheRightToMakeNamespacesWhateverItIsCalled) {
  for (const char* runtime : {"", "runc", "hardened"}) {
    DockerBackendOptions named = options();
    named.runtime = runtime;
    named.image = kImage;
    const auto own = make_backend(named);
    const auto sandbox = own->acquire(key(), spec(), {});
    EXPECT_EQ(sandbox->info().isolation, Isolation::container) << runtime;
    EXPECT_EQ(sandbox->exec(python(kRightsOfFirst), {}).stdout, kFewRights) << runtime;
    own->dispose(key());
  }
}

// A configuration is changed while an application runs.
TEST_P(DockerRuntime, OneThatHasNoKernelOfItsOwnAnyMoreIsRefusedBeforeAnythingBegins) {
  DockerBackendOptions named = options();
  named.runtime = "fickle";
  named.image = kImage;
  const auto own = make_backend(named);
  EXPECT_EQ(own->acquire(key(), spec(), {})->info().isolation, Isolation::hardened_container);
  own->dispose(key());
  const std::string socket = engine_under_test("docker").address.substr(sizeof "unix://" - 1);
  const auto fallen = std::filesystem::path(socket).parent_path() / "fallen";
  std::ofstream(fallen) << "from here on\n";
  EXPECT_THROW(own->acquire(key(), spec(), {}), SandboxUnavailable);
  EXPECT_EQ(containers().size(), 0U);
  // Who sees it as it is now has a sandbox of the lower rung.
  const auto other = make_backend(named);
  EXPECT_EQ(other->acquire(key(), spec(), {})->info().isolation, Isolation::container);
  other->dispose(key());
  std::filesystem::remove(fallen);
}

TEST_P(DockerRuntime, WithAKernelOfItsOwnCallsDoNotSeeEachOther) {
  DockerBackendOptions with_image = options();
  with_image.image = kImage;
  const auto own = make_backend(with_image);
  const auto sandbox = own->acquire(key(), spec(), {});
  const auto call = sandbox->open_call({}, {});
  ExecRequest waiting = shell("echo secret > /tmp/file; echo secret > /dev/shm/file; echo; cat");
  waiting.stdin_mode = StdinMode::piped;
  std::unique_ptr<Process> process;
  std::string seen;
  waiting.on_output = [&](OutputStream, std::span<const char>) {
    seen =
        sandbox
            ->exec(python("import os\n"
                          "numbers = sorted(int(n) for n in os.listdir('/proc') if n.isdigit())\n"
                          "print(numbers == [1, os.getpid()], os.listdir('/proc/1'))\n"
                          "print(os.listdir('/tmp'), os.listdir('/dev/shm'))\n"
                          "print(os.path.exists('/dev/fuse'), os.path.exists('/dev/net'))\n"),
                   {})
            .stdout;
    process->close_stdin();
  };
  process = call->start(waiting, {});
  EXPECT_EQ(process->wait({}).exit_code, 0);
  EXPECT_EQ(seen, "True []\n[] []\nFalse False\n");
  own->dispose(key());
}

// And what asks for them goes on: the engine's own bound would have ended all of the sandbox.
TEST_P(DockerRuntime, WithAKernelOfItsOwnEachCallHasItsBoundOfProcesses) {
  DockerBackendOptions with_image = options();
  with_image.image = kImage;
  const auto own = make_backend(with_image);
  const auto sandbox = own->acquire(key(), spec(), {});
  for (int calls = 0; calls < 2; ++calls) {
    const ExecResult result = sandbox->exec(python("import os, signal\n"
                                                   "made = 0\n"
                                                   "try:\n"
                                                   "    while made < 400:\n"
                                                   "        if os.fork() == 0: signal.pause()\n"
                                                   "        made += 1\n"
                                                   "except BlockingIOError: pass\n"
                                                   "print(made)\n"),
                                            {});
    // gVisor counts a few too many or too few.
    const int made = std::atoi(result.stdout.c_str());
    EXPECT_GE(made, 100) << result.stderr;
    EXPECT_LE(made, 200) << result.stderr;
  }
  own->dispose(key());
}

class DockerStreamConformance : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerStreamConformance, testing::Values("remote", "runsc"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerStreamConformance, PassesEveryProbe) {
  DockerBackendOptions with_image = options();
  with_image.image = kImage;
  conformance::Subject subject(std::make_shared<DockerBackend>(with_image));
  EXPECT_EQ(conformance::run_conformance(subject).failures(), "");
}

}  // namespace
}  // namespace casemate::docker_tests
