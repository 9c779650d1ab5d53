#pragma once

// Container engines of this test program's own, each started once and ended with the program.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/docker/engine.h"

namespace casemate::docker_tests {

struct EngineUnderTest {
  // "docker", "podman", or "remote": that docker once more, as if on another machine.
  std::string kind;
  // Where it listens; empty when it does not run.
  std::string address;
  // Of "remote": where it does so behind TLS, and the client's files.
  std::string tls_address;
  std::string tls_directory;
  // What it lacks here: a program, or the rights.
  std::string missing;
  // All is there, and it did not start all the same.
  std::string failure;
};

// Started at the first call. "runtime" is "docker" as well.
const EngineUnderTest& engine_under_test(const std::string& kind);

// The image that it has.
inline constexpr char kImage[] = "casemate-test";

// A test for each kind of engine, skipped with the reason where one is missing, failed where one is
// there and does not start. Has a state
// directory of its own, and expects at its end that the engine has nothing of ours and that the
// directory holds no place.
class DockerTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<DockerBackend> make_backend(DockerBackendOptions options = {}) const;
  DockerBackend& backend() { return *backend_; }
  DockerBackendOptions options() const;
  std::filesystem::path state() const { return state_; }

  static SandboxKey key(std::string thread = "thread") {
    return {"scope", std::move(thread), "agent"};
  }
  static SandboxSpec spec();
  std::shared_ptr<Sandbox> acquire(const SandboxSpec& wanted = spec()) {
    return backend().acquire(key(), wanted, {});
  }
  // All that the engine has of ours.
  std::vector<docker::Container> containers();
  docker::Engine& engine() { return *engine_; }
  // Waits until a container that ends by itself is gone.
  // Whether it comes to that in time.
  bool await(const std::string& id,
             const std::function<bool(const std::optional<docker::Container>&)>& is_so);
  void await_gone(const std::string& id);

  std::filesystem::path state_;
  std::unique_ptr<DockerBackend> backend_;
  std::unique_ptr<docker::Engine> engine_;
};

ExecRequest shell(std::string line);
ExecRequest python(std::string program);

}  // namespace casemate::docker_tests
