#include "casemate/core/backend.h"

#include <fmt/format.h>

#include "casemate/core/errors.h"

namespace casemate {

BackendProbe SandboxBackend::probe() { return {}; }

std::vector<SandboxRecord> SandboxBackend::list() { return {}; }

std::shared_ptr<Sandbox> SandboxBackend::attach(const SandboxKey& /*key*/, std::string_view kind,
                                                const CallControl& /*control*/) {
  throw NoSuchSandbox(
      fmt::format("no sandbox of kind '{}' is alive under this key: this backend keeps none to "
                  "attach to",
                  kind),
      "acquire one instead");
}

namespace {

[[noreturn]] void refuse_snapshots(std::string_view operation) {
  throw SandboxCapabilityNotSupported(
      fmt::format("{} is refused: this backend keeps no snapshots", operation),
      "select a backend that declares snapshot");
}

}  // namespace

SandboxSnapshot SandboxBackend::snapshot(const SandboxKey& /*key*/, std::string_view /*kind*/,
                                         const CallControl& /*control*/) {
  refuse_snapshots("snapshot");
}

std::shared_ptr<Sandbox> SandboxBackend::restore(const SandboxKey& /*key*/,
                                                 const SandboxSpec& /*spec*/,
                                                 std::string_view /*snapshot_id*/,
                                                 const CallControl& /*control*/) {
  refuse_snapshots("restore");
}

std::shared_ptr<Sandbox> SandboxBackend::fork(const SandboxKey& from, const SandboxKey& to,
                                              const SandboxSpec& spec, const CallControl& control) {
  check_key(to);
  if (from == to) {
    throw InvalidArgument("a sandbox is forked into the key that it has",
                          "give the fork a key of its own");
  }
  if (from.scope != to.scope) {
    throw InvalidArgument("a sandbox is forked into a key of another scope",
                          "give the fork a key of the same scope");
  }
  const SandboxSnapshot taken = snapshot(from, spec.kind, control);
  struct Disposal {
    SandboxBackend& backend;
    const std::string& id;
    ~Disposal() { backend.dispose_snapshot(id); }
  } const disposal{*this, taken.id};
  return restore(to, spec, taken.id, control);
}

bool SandboxBackend::dispose_snapshot(std::string_view /*id*/) noexcept { return false; }

}  // namespace casemate
