#include "casemate/backends/docker/docker_backend.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/core/errors.h"
#include "tests/support/scratch.h"

namespace casemate {
namespace {

TEST(DockerBackend, AnEngineOfAnotherMachineIsRefusedBeforeItIsAsked) {
  const Scratch scratch;
  DockerBackendOptions options;
  // Nobody listens there, which would be another refusal.
  options.host = "tcp://127.0.0.1:1";
  options.image = "debian:12";
  options.state_dir = (scratch / "state").string();
  DockerBackend backend(options);
  SandboxSpec spec;
  spec.kind = "test";
  try {
    backend.acquire({"scope", "thread", "agent"}, spec, {});
    FAIL() << "it was served";
  } catch (const SandboxUnavailable& refused) {
    EXPECT_EQ(refused.message(), "the engine is on another machine");
  }
}

}  // namespace
}  // namespace casemate
