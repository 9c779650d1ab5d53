// Several host processes with one engine, and one that is killed.

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "casemate/backends/docker/guest_volume.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/backends/docker/record.h"
#include "casemate/core/errors.h"
#include "tests/docker/engines.h"
#include "tests/docker/other_process.h"

namespace casemate::docker_tests {
namespace {

class DockerLifecycle : public DockerTest {};

INSTANTIATE_TEST_SUITE_P(Engines, DockerLifecycle, testing::Values("docker", "podman"),
                         [](const auto& each) { return each.param; });

TEST_P(DockerLifecycle, TwoProcessesThatAskAtOnceHaveOneContainer) {
  // The backend of the child lives as long as the child does: it never returns from `body` before.
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
  // It lives as long as either holds it.
  one.end();
  EXPECT_EQ(backend().attach(key(), "test", {})->info().id, first);
  // And anybody may end it.
  EXPECT_EQ(backend().dispose_scope("scope", "thread"), 1);
  EXPECT_EQ(containers().size(), 0U);
}

TEST_P(DockerLifecycle, ASandboxEndsWhenItsHostIsKilled) {
  std::unique_ptr<DockerBackend> kept;
  OtherProcess host([&] {
    kept = make_backend();
    return kept->acquire(key(), spec(), {})->info().id;
  });
  host.go();
  ASSERT_EQ(host.hear().size(), 24U);
  const std::string id = containers().at(0).id;
  host.end();
  await_gone(id);
  EXPECT_EQ(containers().size(), 0U);
}

TEST_P(DockerLifecycle, ASandboxThatIsToBeKeptIsThereForTheNextHost) {
  std::unique_ptr<DockerBackend> kept;
  OtherProcess host([&] {
    kept = make_backend();
    SandboxSpec patient = spec();
    patient.keep_idle = std::chrono::minutes(10);
    return kept->acquire(key(), patient, {})->info().id;
  });
  host.go();
  const std::string id = host.hear();
  host.end();
  const auto sandbox = acquire();
  EXPECT_TRUE(sandbox->info().reused);
  EXPECT_EQ(sandbox->info().id, id);
}

// LC-08
TEST_P(DockerLifecycle, ASandboxThatWasRemovedBehindItsHostIsMadeAnew) {
  const auto first = acquire();
  engine().remove(containers().at(0).id, {});
  EXPECT_THROW(first->open_call({}, {}), SandboxUnavailable);
  const auto second = acquire();
  EXPECT_NE(second->info().id, first->info().id);
  EXPECT_EQ(second->exec(shell("echo works"), {}).stdout, "works\n");
}

TEST_P(DockerLifecycle, InAContainerThatHasEndedOrIsGoneThereIsNoExec) {
  const std::string body = std::string(R"({"Image":")") + kImage +
                           R"(","Cmd":["/bin/true"],"HostConfig":{"NetworkMode":"none"}})";
  const auto id = engine().create("casemate-test-ended", body, {});
  ASSERT_TRUE(id);
  EXPECT_FALSE(engine().exec(*id, {"/bin/true"}, {})) << "which did not begin yet";
  engine().start(*id, {});
  ASSERT_TRUE(await(*id, [](const auto& found) { return found && !found->is_live(); }));
  EXPECT_FALSE(engine().exec(*id, {"/bin/true"}, {}));
  engine().remove(*id, {});
  EXPECT_FALSE(engine().exec(*id, {"/bin/true"}, {}));
}

// DK-07
TEST_P(DockerLifecycle, AForeignContainerOfTheNameIsRefusedAndNotTouched) {
  const std::string body = std::string(R"({"Image":")") + kImage +
                           R"(","Cmd":["/bin/true"],"HostConfig":{"NetworkMode":"none"}})";
  const auto id = engine().create(docker::container_name(key(), "test"), body, {});
  ASSERT_TRUE(id);
  EXPECT_THROW(acquire(), SandboxUnavailable);
  EXPECT_EQ(backend().dispose(key()), 0);
  EXPECT_TRUE(engine().inspect(*id, {}));
  engine().remove(*id, {});
}

TEST_P(DockerLifecycle, AnImageThatIsNotThereIsRefusedWhereNoneMayBePulled) {
  SandboxSpec missing = spec();
  missing.image = "casemate-test-of-nobody:none";
  EXPECT_THROW(acquire(missing), SandboxImageInvalid);
  missing.image.reset();
  EXPECT_THROW(acquire(missing), SandboxImageNotSupported);
  missing.image = "host";
  EXPECT_THROW(acquire(missing), SandboxImageNotSupported);
}

TEST_P(DockerLifecycle, AnotherEnginesSweepLeavesWhatLives) {
  const EngineUnderTest& other = engine_under_test(GetParam() == "docker" ? "podman" : "docker");
  if (other.address.empty()) GTEST_SKIP() << other.missing;
  const auto sandbox = acquire();
  DockerBackendOptions theirs = options();
  theirs.host = other.address;
  EXPECT_EQ(make_backend(theirs)->list().size(), 0U);
  EXPECT_EQ(make_backend()->attach(key(), "test", {})->info().id, sandbox->info().id);
}

// As where no descriptor is left: that it cannot be looked at does not make it nobody's.
TEST_P(DockerLifecycle, ASandboxWhosePlaceCannotBeOpenedIsNotEnded) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  const auto place = std::filesystem::directory_iterator(state() / "docker/places")->path();
  const auto aside = state() / "aside";
  std::filesystem::rename(place, aside);
  std::ofstream(place).put('x');
  EXPECT_THROW(make_backend()->acquire(key(), spec(), {}), SandboxUnavailable);
  EXPECT_THROW(make_backend()->attach(key(), "test", {}), SandboxUnavailable);
  std::filesystem::remove(place);
  std::filesystem::rename(aside, place);
  EXPECT_EQ(call->exec(shell("echo lives"), {}).stdout, "lives\n");
  EXPECT_EQ(make_backend()->acquire(key(), spec(), {})->info().id, sandbox->info().id);
}

TEST_P(DockerLifecycle, AForeignContainerOfTheHelpersNameIsRefusedAndNotTouched) {
  // So that the guest program has to be brought again.
  engine().remove_volume(docker::guest_volume(), {});
  const std::string body = std::string(R"({"Image":")") + kImage +
                           R"(","Cmd":["/bin/true"],"HostConfig":{"NetworkMode":"none"}})";
  const auto id = engine().create(docker::container_name(key(), "test") + "-fill", body, {});
  ASSERT_TRUE(id);
  EXPECT_THROW(acquire(), SandboxUnavailable);
  EXPECT_TRUE(engine().inspect(*id, {}));
  engine().remove(*id, {});
}

TEST_P(DockerLifecycle, WhatAnotherUserLeftUnstartedIsRefusedAndNotTouched) {
  docker::Record record;
  record.key = key();
  record.kind = "test";
  record.place = "0123456789abcdef";
  auto labels = docker::labels_of(key(), spec(), "");
  for (const std::string& text : {docker::encode_record(record), std::string("unreadable")}) {
    labels[std::string(docker::kRecordLabel)] = text;
    boost::json::object all;
    for (const auto& [name, value] : labels) all[name] = value;
    const auto id = engine().create(
        docker::container_name(key(), "test"),
        boost::json::serialize(boost::json::object{{"Image", kImage},
                                                   {"Cmd", {"/bin/true"}},
                                                   {"Labels", std::move(all)},
                                                   {"HostConfig", {{"NetworkMode", "none"}}}}),
        {});
    ASSERT_TRUE(id);
    EXPECT_THROW(acquire(), SandboxUnavailable);
    EXPECT_TRUE(engine().inspect(*id, {}));
    engine().remove(*id, {});
  }
}

TEST_P(DockerLifecycle, ARefusedPullSaysWhy) {
  try {
    // Nobody listens there.
    engine().pull("127.0.0.1:1/casemate-test:none", "", {}, std::chrono::seconds(60), {});
    FAIL() << "it was pulled";
  } catch (const docker::EngineRefused& refused) {
    EXPECT_NE(std::string(refused.what()).find("127.0.0.1:1"), std::string::npos) << refused.what();
  }
}

}  // namespace
}  // namespace casemate::docker_tests
