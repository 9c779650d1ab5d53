// Containers that share no directory with their host: of an engine behind TLS, and of a runtime
// that was named and may have a kernel of its own.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "casemate/conformance/conformance.h"
#include "casemate/core/errors.h"
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

class DockerStreamConformance : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerStreamConformance, testing::Values("remote"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerStreamConformance, PassesEveryProbe) {
  DockerBackendOptions with_image = options();
  with_image.image = kImage;
  conformance::Subject subject(std::make_shared<DockerBackend>(with_image));
  EXPECT_EQ(conformance::run_conformance(subject).failures(), "");
}

}  // namespace
}  // namespace casemate::docker_tests
