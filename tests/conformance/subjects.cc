#include "tests/conformance/subjects.h"

#include <utility>

#include "casemate/backends/in_process/backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "tests/support/plain_sandbox.h"
#include "tests/support/scratch.h"
#include "tests/support/streamed_linux_backend.h"

namespace casemate::conformance_tests {
namespace {

CapabilitySet files_only() {
  return {Capability::files_in, Capability::files_out, Capability::files_list,
          Capability::files_delete};
}

// One sandbox for every key; ends with its last handle.
class PlainBackend final : public SandboxBackend {
 public:
  BackendDeclarations declarations() const override {
    BackendDeclarations declared;
    declared.name = "plain";
    declared.isolation = Isolation::process;
    declared.capabilities = files_only();
    declared.capabilities.insert(Capability::exec);
    return declared;
  }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    return {plain_, &plain_->sandbox()};
  }
  int dispose(const SandboxKey&) noexcept override { return 1; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 1; }
  bool dispose_id(std::string_view) noexcept override { return true; }

 private:
  std::shared_ptr<PlainSandbox> plain_ = std::make_shared<PlainSandbox>();
};

class FakeSubject final : public conformance::Subject {
 public:
  explicit FakeSubject(std::shared_ptr<in_process::InProcessSandboxBackend> backend)
      : Subject(backend), store_(backend->sandbox()->store()), sandbox_(backend->sandbox()) {}

  void plant(Call&, std::span<const conformance::Planted> all, const CallControl&) override {
    for (const auto& one : all) {
      store_.put(one.path, one.link_to ? in_process::Seed(EntryKind::symlink) : one.bytes);
    }
  }
  std::vector<std::optional<std::string>> look(Call&, std::span<const std::string> paths,
                                               const CallControl&) override {
    std::vector<std::optional<std::string>> found;
    for (const std::string& path : paths) found.push_back(store_.bytes(path));
    return found;
  }

 private:
  in_process::Store& store_;
  std::shared_ptr<in_process::InProcessSandbox> sandbox_;
};

class LinuxWithState final : public SandboxBackend {
 public:
  LinuxWithState() : linux_({.state_dir = state_.path(), .log = {}}) {}
  BackendDeclarations declarations() const override { return linux_.declarations(); }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override {
    return linux_.acquire(key, spec, control);
  }
  int dispose(const SandboxKey& key) noexcept override { return linux_.dispose(key); }
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override {
    return linux_.dispose_scope(scope, thread_id);
  }
  bool dispose_id(std::string_view id) noexcept override { return linux_.dispose_id(id); }
  BackendProbe probe() override { return linux_.probe(); }
  SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                           const CallControl& control) override {
    return linux_.snapshot(key, kind, control);
  }
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                   std::string_view id, const CallControl& control) override {
    return linux_.restore(key, spec, id, control);
  }
  bool dispose_snapshot(std::string_view id) noexcept override {
    return linux_.dispose_snapshot(id);
  }

 private:
  Scratch state_;
  LinuxBackend linux_;
};

}  // namespace

std::shared_ptr<SandboxBackend> plain_backend() { return std::make_shared<PlainBackend>(); }

std::unique_ptr<conformance::Subject> fake_subject(Isolation claimed) {
  in_process::InProcessBackendOptions options;
  options.declarations.isolation = claimed;
  options.declarations.capabilities = files_only();
  options.declarations.egress_modes = {};
  return std::make_unique<FakeSubject>(
      std::make_shared<in_process::InProcessSandboxBackend>(nullptr, std::move(options)));
}

std::shared_ptr<SandboxBackend> linux_backend() { return std::make_shared<LinuxWithState>(); }

std::shared_ptr<SandboxBackend> streamed_linux_backend() {
  return std::make_shared<StreamedLinuxBackend>();
}

std::string why_no_linux() {
  static const std::string reason = [] {
    const BackendProbe probe = LinuxWithState().probe();
    return probe.available ? "" : "the linux backend does not work here: " + probe.reason;
  }();
  return reason;
}

}  // namespace casemate::conformance_tests
