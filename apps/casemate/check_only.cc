#include "apps/casemate/check_only.h"

#include <stdexcept>
#include <stop_token>
#include <string_view>
#include <utility>

#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

class StartsNothing final : public SandboxBackend {
 public:
  explicit StartsNothing(std::shared_ptr<SandboxBackend> backend) : backend_(std::move(backend)) {}

  BackendDeclarations declarations() const override { return backend_->declarations(); }
  // Finding out would start something.
  BackendProbe probe() override { return {}; }
  // Asked by somebody who has stopped already, it refuses what it can tell, and makes nothing.
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl&) override {
    std::stop_source stopped;
    stopped.request_stop();
    try {
      backend_->acquire(key, spec, {.deadline = {}, .stop = stopped.get_token()});
    } catch (const SandboxCancelled&) {
      throw WouldStart();
    }
    throw std::logic_error("a sandbox was had in spite of a stop");
  }
  int dispose(const SandboxKey&) noexcept override { return 0; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 0; }
  bool dispose_id(std::string_view) noexcept override { return false; }

 private:
  std::shared_ptr<SandboxBackend> backend_;
};

class NoSink final : public OutputSink {
 public:
  LandedArtifact deliver(const Artifact&) override {
    throw std::logic_error("a check has nothing to land");
  }
};

}  // namespace

std::vector<std::shared_ptr<SandboxBackend>> start_nothing(
    const std::vector<std::shared_ptr<SandboxBackend>>& backends) {
  std::vector<std::shared_ptr<SandboxBackend>> wrapped;
  wrapped.reserve(backends.size());
  for (const auto& backend : backends) wrapped.push_back(std::make_shared<StartsNothing>(backend));
  return wrapped;
}

std::shared_ptr<OutputSink> sink_for_check() { return std::make_shared<NoSink>(); }

}  // namespace casemate::app
