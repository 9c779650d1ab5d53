#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/backend.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"

namespace casemate {

// As it declares itself, and as a router and `casemate.toml` select it.
inline constexpr std::string_view kDockerBackendName = "docker";

// Whether an image that the engine does not have is brought there.
enum class DockerPull { missing, never };

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct DockerBackendOptions {
  // Where the engine listens, as in DOCKER_HOST: `unix:///PATH` or `tcp://HOST:PORT`. Empty: the
  // first of /run/docker.sock, /var/run/docker.sock, /run/podman/podman.sock and, in
  // $XDG_RUNTIME_DIR, docker.sock and podman/podman.sock that is there. No environment variable is
  // read.
  std::string host{};
  // Of an engine behind TCP: the directory with ca.pem, cert.pem and key.pem. Empty: plain text,
  // which gives whoever reaches that port root on the engine's machine.
  std::string tls_directory{};
  // What the engine calls a runtime ("runsc"); empty: its default. Where it can be seen that its
  // sandboxes have a kernel of their own the rung is `hardened_container`, else `container`,
  // whatever it is called: that takes an engine of this machine and `image`, and costs the first
  // who asks for `declarations` the start of one sandbox.
  std::string runtime{};
  // Of specs that name no image.
  std::string image{};
  DockerPull pull = DockerPull::missing;
  // "linux/arm64": what is pulled, and what an image has to be. Empty: as the engine has it.
  std::string platform{};
  // How long a pull may stand still.
  std::chrono::seconds pull_patience{600};
  // Gets a line for people when a pull makes a step; from the thread in `acquire`.
  std::function<void(std::string_view)> progress{};
  // Where what this user shares with its containers is; mode 700, and seen by the engine under the
  // same path. Empty: as in LinuxBackendOptions.
  std::string state_dir{};
  Log log{};
};

// Sandboxes that a container engine makes: Docker's, or Podman's service that is compatible with
// it, over its API and without a program of its own. Rung `container`: the kernel is shared with
// the host.
//
// A sandbox is one container with our guest program as its first process, no network, a root that
// cannot be written and no right but to give each call a user id of its own (over a kernel of its
// own, also namespaces). What it declares, how each limit is held and what it does not protect is
// written in README.md beside this header.
//
// Whoever may talk to an engine is root on its machine: this process is. The sandbox is not, and
// never sees the engine.
//
// A sandbox belongs to the processes that acquired it: as LinuxBackend says. What processes that
// were killed left is found by its labels.
class DockerBackend final : public SandboxBackend {
 public:
  // Talks to nobody. An address or TLS files that cannot be used are `InvalidArgument` when a
  // sandbox is asked for, and the reason of `probe`: a host may have them from variables that are
  // meant for others.
  explicit DockerBackend(DockerBackendOptions options = {});
  ~DockerBackend() override;

  // Of an engine that was not asked yet, what every one holds. Asks it once, for at most two
  // seconds.
  BackendDeclarations declarations() const override;
  // Beside the refusals of the base: `SandboxImageInvalid` for an image that there is not, that is
  // not of the platform or digest asked for, or that the engine cannot pull.
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override;
  int dispose(const SandboxKey& key) noexcept override;
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override;
  bool dispose_id(std::string_view id) noexcept override;
  // Asks the engine what it is. Makes no container.
  BackendProbe probe() override;
  std::vector<SandboxRecord> list() override;
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control) override;

 private:
  class Impl;
  // Shared with the sandboxes, which may outlive the backend.
  std::shared_ptr<Impl> impl_;
};

}  // namespace casemate
