// One host, two backends: what each of them honestly is decides what runs where.
//
//   router_two_backends SECOND [IMAGE [STATE_DIR]]
//
// SECOND: docker, docker:ADDRESS (as in DOCKER_HOST), or oci:RUNTIME; linux stands behind it.
// IMAGE: one of the engine's with python3 (python:3-slim). STATE_DIR: of the second, and with
// -linux at its end of the first; empty: the user's.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/oci/oci_backend.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/policy/router.h"

namespace {

using Backend = std::shared_ptr<casemate::SandboxBackend>;

struct Demand {
  const char* what;
  casemate::SandboxSpec spec;
};

std::vector<Demand> demands() {
  casemate::SandboxSpec stronger = casemate::codeact_sandbox_spec();
  stronger.min_isolation = casemate::Isolation::hardened_container;
  casemate::SandboxSpec snapshots = casemate::codeact_sandbox_spec();
  snapshots.requires_capabilities.insert(casemate::Capability::snapshot);
  return {
      {"no network", casemate::codeact_sandbox_spec()},
      {"may reach example.org",
       casemate::codeact_sandbox_spec(
           {.egress_allow = {casemate::HostPattern::parse("example.org")}})},
      {"not on the host's kernel", stronger},
      {"keeps snapshots", snapshots},
  };
}

Backend second_backend(const std::string& word, const std::string& image,
                       const std::string& state_dir) {
  const std::string rest = word.find(':') == word.npos ? "" : word.substr(word.find(':') + 1);
  if (word.starts_with("oci")) {
    return std::make_shared<casemate::OciBackend>(
        casemate::OciBackendOptions{.runtime = rest, .state_dir = state_dir});
  }
  return std::make_shared<casemate::DockerBackend>(
      casemate::DockerBackendOptions{.host = rest, .image = image, .state_dir = state_dir});
}

void show(const std::string& who, const casemate::SandboxError& refusal) {
  std::cout << "  " << who << ": " << refusal.code() << ": " << refusal.message() << '\n';
}

void serve(const Demand& demand, const casemate::SandboxRouter& router,
           const std::vector<Backend>& backends) {
  std::cout << demand.what << '\n';
  for (const Backend& backend : backends) {
    const std::string name = backend->declarations().name;
    try {
      casemate::SandboxRouter({backend}, {.min_isolation = casemate::Isolation::container})
          .ensure_can_serve(demand.spec);
      std::cout << "  " << name << ": can serve it\n";
    } catch (const casemate::SandboxError& refusal) {
      show(name, refusal);
    }
  }
  const auto scope = router.scope("shop", "two-backends");  // disposes at the end of the block
  try {
    const auto sandbox = router.acquire({"shop", "two-backends", "agent"}, demand.spec, {});
    casemate::ExecRequest request;
    request.command = casemate::Argv{{"python3", "-c", "print(6 * 7)"}};
    const casemate::ExecResult result = sandbox->exec(request, {});
    std::cout << "  ran on " << sandbox->info().backend << ", "
              << to_string(sandbox->info().isolation) << ": " << result.stdout;
  } catch (const casemate::SandboxError& refusal) {
    std::cout << "  ran nowhere: " << refusal.code() << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string state = argc > 3 ? argv[3] : "";
  const std::vector<Backend> backends{
      second_backend(argc > 1 ? argv[1] : "docker", argc > 2 ? argv[2] : "python:3-slim", state),
      std::make_shared<casemate::LinuxBackend>(
          casemate::LinuxBackendOptions{.state_dir = state.empty() ? state : state + "-linux"})};
  // Where a program runs then depends on what it asks for, never on less than it asked for.
  const casemate::SandboxRouter router(backends,
                                       {.min_isolation = casemate::Isolation::container,
                                        .selection = casemate::Selection::first_that_can_serve});
  for (const Demand& demand : demands()) serve(demand, router, backends);

  // The host's own floor holds for all, and stands before any demand.
  std::cout << "a host whose floor is microvm\n";
  try {
    const casemate::SandboxRouter strict(backends,
                                         {.selection = casemate::Selection::first_that_can_serve});
    std::cout << "  has a backend that is strong enough\n";
  } catch (const casemate::SandboxBackendNotPermitted& refusal) {
    show("no router", refusal);
  }
  return 0;
} catch (const casemate::SandboxError& refusal) {
  std::cerr << refusal.code() << ": " << refusal.message() << '\n' << refusal.hint() << '\n';
  return 1;
}
