#pragma once

// The docker backend's one object, by subject: acquire.cc (get-or-create and handles), create.cc
// (making one), dispose.cc (ending and sweeping), docker_backend.cc (administration and the front).

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/backends/docker/container_stream.h"
#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/docker/engine.h"
#include "casemate/backends/docker/lease.h"
#include "casemate/backends/docker/places.h"
#include "casemate/backends/docker/record.h"

namespace casemate {

class DockerBackend::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(DockerBackendOptions options);

  BackendDeclarations declarations();
  BackendProbe probe();
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control);
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control);
  std::vector<SandboxRecord> list();
  // Ends all that carry those labels, whoever made them. Returns how many lived.
  int dispose_labelled(const std::map<std::string, std::string>& labels) noexcept;
  bool dispose_id(std::string_view id) noexcept;
  const Log& log() const { return options_.log; }

 private:
  // What is about to be made, or looked for.
  struct Wanted {
    const SandboxKey& key;
    const SandboxSpec& spec;
    std::string digest;
    std::string name;
    std::string fingerprint;
    docker::ImageFacts image;
  };

  const docker::Places& places();
  // Whether a sandbox of that key and kind was made with this state directory.
  bool has_place(const std::string& digest);
  docker::ImageFacts choose_image(const SandboxSpec& spec, const CallControl& control);
  docker::ImageFacts bring_image(const std::string& reference, const std::string& digest,
                                 const CallControl& control);
  // Under the key's lock. Null: what was in the way is gone, so that one can be made.
  std::shared_ptr<const docker::HeldContainer> adopt(const Wanted& wanted,
                                                     const CallControl& control);
  std::shared_ptr<const docker::HeldContainer> create(const Wanted& wanted,
                                                      const CallControl& control);
  // Whether containers are reached by a stream: those of another machine's engine, and of a runtime
  // that may have a kernel of its own, to which a socket of this one's is nothing.
  bool streams() const;
  // To a container that runs, with a lease that wishes that (absent: leaves what another wished).
  // Null: it ends, or has ended.
  std::shared_ptr<docker::ContainerStream> open_stream(
      const std::string& id, std::optional<std::chrono::milliseconds> keep_idle,
      const CallControl& control);
  std::shared_ptr<const docker::HeldContainer> start_streamed(const std::string& id,
                                                              docker::Record record,
                                                              std::chrono::milliseconds keep_idle,
                                                              sys::UniqueFd directory,
                                                              const CallControl& control);
  std::shared_ptr<const docker::HeldContainer> start_and_greet(const std::string& id,
                                                               docker::Record record,
                                                               sys::UniqueFd directory,
                                                               const CallControl& control);
  std::shared_ptr<Sandbox> hand_out(const std::shared_ptr<const docker::HeldContainer>& held,
                                    bool reused);
  // Removes what the host keeps for sandboxes of that digest, none of which lives. Under its lock.
  void clear_places(const std::string& digest);
  // Whether the runtime that was named brings a kernel of its own, by what is seen of a sandbox
  // that is made for that, once. Of another machine's engine nothing can be seen.
  bool has_own_kernel() noexcept;
  bool see_own_kernel(const SandboxKey& key);
  Isolation isolation() noexcept;
  // Kills and removes it, and what the host keeps for it. Whether it lived.
  bool end(const docker::Container& container, const CallControl& control);
  // Within the caller's bounds.
  void sweep(const CallControl& bounds) noexcept;
  void sweep_ended(const docker::Container& container, const CallControl& control);

  DockerBackendOptions options_;
  docker::Engine engine_;
  docker::HeldContainers held_;
  std::mutex mutex_;
  std::unique_ptr<const docker::Places> places_;
  std::atomic<bool> swept_ = false;
  // Whether the engine was asked for what it holds.
  bool asked_ = false;
  // The proof asks this backend for a sandbox.
  std::recursive_mutex evidence_mutex_;
  std::optional<bool> own_kernel_;
};

namespace docker {

// What an engine said no to, as the provider's refusal: its words go to the log.
[[noreturn]] void throw_refused(const Log& log, std::string_view what,
                                const EngineRefused& refused);

}  // namespace docker

}  // namespace casemate
