#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "casemate/core/backend.h"

namespace bwrap {

// Sandboxes by plain bubblewrap: the example of docs/writing-a-backend.md. Each call is one `bwrap`
// with Casemate's guest program as its first process. They live as long as this process.
class BwrapBackend final : public casemate::SandboxBackend {
 public:
  // `guest_program`: the path of casemate-place-guest.
  explicit BwrapBackend(std::string guest_program);

  casemate::BackendDeclarations declarations() const override;
  std::shared_ptr<casemate::Sandbox> acquire(const casemate::SandboxKey& key,
                                             const casemate::SandboxSpec& spec,
                                             const casemate::CallControl& control) override;
  int dispose(const casemate::SandboxKey& key) noexcept override;
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override;
  bool dispose_id(std::string_view id) noexcept override;
  // Runs /bin/true in a sandbox.
  casemate::BackendProbe probe() override;

 private:
  class Place;
  struct Kept {
    std::shared_ptr<Place> place;
    // Of this place alone: its successor under the same key has another.
    std::string id;
    std::string fingerprint;
  };
  template <typename Picks>
  int end_those(Picks picks) noexcept;

  const std::string guest_program_;
  std::mutex mutex_;
  // By key and kind. Guarded by `mutex_`.
  std::map<std::pair<casemate::SandboxKey, std::string>, Kept> kept_;
};

}  // namespace bwrap
