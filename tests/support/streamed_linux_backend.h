#pragma once

// For tests: the linux backend's sandboxes, reached by one multiplexed stream alone.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/egress.h"
#include "casemate/egress/gateway.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/stream/multiplexed_stream.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/scratch.h"
#include "tests/support/stream_process.h"

namespace casemate {

// Each is spoken to over one stream to a guest program beside its agent. Without what does not go
// over a stream: the control groups of calls.
class StreamedLinuxBackend final : public SandboxBackend {
 public:
  explicit StreamedLinuxBackend(EgressOptions egress = {})
      : linux_({.state_dir = state_.path(), .log = {}, .control_groups = ControlGroups::none}),
        egress_(std::move(egress)) {}
  ~StreamedLinuxBackend() override {
    for (auto& [id, sandbox] : sandboxes_) sandbox->stream->close();
  }

  BackendDeclarations declarations() const override {
    BackendDeclarations declared = linux_.declarations();
    declared.capabilities.erase(Capability::snapshot);
    return declared;
  }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override {
    const std::shared_ptr<Sandbox> inner = linux_.acquire(key, spec, control);
    const std::lock_guard lock(mutex_);
    const std::string id = inner->info().id;
    std::shared_ptr<Streamed>& found = sandboxes_[id];
    if (!found) {
      found = std::make_shared<Streamed>(inner, directory_of(id), spec, egress_, inner->info());
    }
    return {found, found->sandbox.get()};
  }
  int dispose(const SandboxKey& key) noexcept override { return linux_.dispose(key); }
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override {
    return linux_.dispose_scope(scope, thread_id);
  }
  bool dispose_id(std::string_view id) noexcept override { return linux_.dispose_id(id); }
  BackendProbe probe() override { return linux_.probe(); }

  // The same sandbox by its own sockets.
  Sandbox& by_sockets(const std::string& id) { return *sandboxes_.at(id)->inner; }
  // The guest program at the other end of a sandbox's stream.
  StreamProcess& process_of(const std::string& id) { return sandboxes_.at(id)->process; }

 private:
  struct Streamed {
    Streamed(std::shared_ptr<Sandbox> of, const std::string& directory, const SandboxSpec& spec,
             const EgressOptions& egress, SandboxInfo info)
        : inner(std::move(of)),
          // Above the numbers that its process is given (stream_process.h).
          program(fcntl(guest::make_guest_program_file().get(), F_DUPFD_CLOEXEC, 10)),
          process("/proc/self/fd/" + std::to_string(program.get()),
                  {"stream", guest::kAgentSocketName}, StreamForm::socket, directory),
          stream(std::make_shared<guest::MultiplexedStream>(
              process.take_end(), guest::MultiplexedStreamOptions{.id = info.id})) {
      guest::AgentSandboxParts parts;
      parts.info = std::move(info);
      parts.connect = [over = stream](const CallControl& control) {
        return over->connect(control);
      };
      parts.first_process = [held = inner] { return held->first_process(); };
      if (spec.egress == Egress::allowlist) {
        parts.door_rules = door_rules(spec.egress_allow);
        EgressOptions own = egress;
        own.allow = spec.egress_allow;
        parts.egress = [own](std::string_view call) {
          EgressOptions of_call = own;
          of_call.call = call;
          return std::make_unique<EgressGateway>(std::move(of_call));
        };
      }
      sandbox = std::make_unique<guest::AgentSandbox>(std::move(parts));
    }
    ~Streamed() {
      sandbox.reset();
      stream->close();
    }

    std::shared_ptr<Sandbox> inner;
    sys::UniqueFd program;
    StreamProcess process;
    std::shared_ptr<guest::MultiplexedStream> stream;
    std::unique_ptr<Sandbox> sandbox;
  };

  // Of the sandbox with that id, which its record says.
  std::string directory_of(const std::string& id) const {
    for (const auto& entry :
         std::filesystem::directory_iterator(state_.path() / guest::kPublishedName)) {
      if (get(entry.path() / guest::kRecordName).find(id) != std::string::npos) return entry.path();
    }
    ADD_FAILURE() << "no directory of sandbox " << id;
    return "/";
  }

  Scratch state_;
  LinuxBackend linux_;
  EgressOptions egress_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Streamed>> sandboxes_;
};

}  // namespace casemate
