#include "apps/casemate/check_only.h"

#include <stdexcept>
#include <string_view>
#include <utility>

namespace casemate::app {

namespace {

class StartsNothing final : public SandboxBackend {
 public:
  explicit StartsNothing(std::shared_ptr<SandboxBackend> backend) : backend_(std::move(backend)) {}

  BackendDeclarations declarations() const override { return backend_->declarations(); }
  // Finding out would start something.
  BackendProbe probe() override { return {}; }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    throw WouldStart();
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
