#include "tests/seam/scenario_backends.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/microvm/microvm_backend.h"
#include "casemate/backends/oci/oci_backend.h"
#include "casemate/backends/oci/runtime.h"
#include "tests/docker/engines.h"
#include "tests/support/plain_sandbox.h"

namespace casemate::seam {
namespace {

using Made = BackendUnderTest::Made;

constexpr char kSearch[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

Made tried(std::shared_ptr<SandboxBackend> backend) {
  // An engine that is busy with its start may not answer in time at once.
  BackendProbe probe;
  for (int tries = 0; tries < 5; ++tries) {
    probe = backend->probe();
    if (probe.available) break;
  }
  if (!probe.available) return {.failure = "it is there and does not work: " + probe.reason};
  return {.backend = std::move(backend)};
}

// Plain processes of this machine, behind the real guest program and without a boundary.
class PlainBackend final : public SandboxBackend {
 public:
  PlainBackend() : plain_(std::make_shared<PlainSandbox>()) {
    plain_->parts().info.limits_not_held = {Limit::memory, Limit::pids, Limit::disk, Limit::cpu};
  }

  BackendDeclarations declarations() const override {
    return {.name = "plain",
            .isolation = Isolation::process,
            .egress_modes = {Egress::closed},
            .capabilities = {Capability::exec, Capability::files_in, Capability::files_out},
            .os_families = {OsFamily::posix},
            .enforceable_limits = {Limit::files, Limit::time}};
  }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    return {plain_, &plain_->sandbox()};
  }
  int dispose(const SandboxKey&) noexcept override { return 0; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 0; }
  bool dispose_id(std::string_view) noexcept override { return false; }

 private:
  std::shared_ptr<PlainSandbox> plain_;
};

Made make_plain(const std::filesystem::path&) {
  return {.backend = std::make_shared<PlainBackend>()};
}

Made make_linux(const std::filesystem::path& state) {
  // What an ordinary user may not bound is compared nowhere; its suites run as one elsewhere.
  if (geteuid() != 0)
    return {.missing = "limits are compared, and root is who may set all of them"};
  Made made =
      tried(std::make_shared<LinuxBackend>(LinuxBackendOptions{.state_dir = state.string()}));
  if (!made.backend) return made;
  const auto held = made.backend->declarations().enforceable_limits;
  for (const Limit limit : {Limit::memory, Limit::pids, Limit::disk, Limit::cpu}) {
    if (!held.contains(limit)) return {.missing = "limits are compared, and not all are held here"};
  }
  return made;
}

Made make_oci(const std::string& runtime, const std::filesystem::path& state) {
  if (!oci::find_program(runtime, kSearch)) {
    return {.missing = "the OCI runtime " + runtime + " is not installed"};
  }
  return tried(std::make_shared<OciBackend>(
      OciBackendOptions{.runtime = runtime, .state_dir = state.string()}));
}

Made make_docker(const std::string& kind, const std::filesystem::path& state) {
  const docker_tests::EngineUnderTest& engine = docker_tests::engine_under_test(kind);
  if (engine.address.empty()) return {.missing = engine.missing, .failure = engine.failure};
  if (kind == "runsc" && !oci::find_program(kind, kSearch)) {
    return {.missing = "the OCI runtime runsc is not installed"};
  }
  DockerBackendOptions options;
  options.host = engine.address;
  if (kind == "runsc") options.runtime = kind;
  options.image = docker_tests::kImage;
  options.pull = DockerPull::never;
  options.state_dir = state.string();
  return tried(std::make_shared<DockerBackend>(std::move(options)));
}

// This machine's python3 and what it needs: a machine shares no files with the host.
constexpr char kMakeImage[] =
    "/usr/bin/python3 -B -c 'import pathlib, sys; sys.path.insert(0, \"tests/cases\"); "
    "import machine_image; machine_image.make_machine_root(pathlib.Path(sys.argv[1]))' ";

// Emulated, whatever the processor has.
Made make_microvm(const std::filesystem::path& state) {
  for (const char* program : {"qemu-system-x86_64", "mksquashfs"}) {
    if (!oci::find_program(program, kSearch)) {
      return {.missing = std::string(program) + " is not installed (scripts/bootstrap engines)"};
    }
  }
  const std::filesystem::path kernel = "build/machine_kernel";
  if (!std::filesystem::exists(kernel)) {
    return {.missing = "there is no kernel for virtual machines (scripts/machine_kernel)"};
  }
  const std::string image = state.string() + "-root";
  if (std::system((kMakeImage + image).c_str()) != 0) return {.failure = "no image could be made"};
  MicrovmBackendOptions options;
  options.state_dir = state.string();
  options.images.directory = state.string() + "-images";
  options.kernel_root = std::filesystem::absolute(kernel).string();
  options.accelerator = microvm::Accelerator::tcg;
  return {.backend = std::make_shared<MicrovmBackend>(std::move(options)), .image = "dir:" + image};
}

BackendUnderTest oci_with(const std::string& runtime) {
  return {"oci_" + runtime,
          [runtime](const std::filesystem::path& state) { return make_oci(runtime, state); },
          runtime == "runsc" ? 2 : 1};
}

BackendUnderTest engine_of(const std::string& name, const std::string& kind) {
  return {name, [kind](const std::filesystem::path& state) { return make_docker(kind, state); },
          kind == "runsc" ? 2 : 1};
}

}  // namespace

const std::vector<BackendUnderTest>& backends_under_test() {
  static const std::vector<BackendUnderTest> all{
      {kReference, make_linux},
      oci_with("crun"),
      oci_with("runc"),
      oci_with("runsc"),
      engine_of("docker", "docker"),
      engine_of("docker_runsc", "runsc"),
      engine_of("podman", "podman"),
      {"microvm", make_microvm, 3},
      {kWithoutABoundary, make_plain},
  };
  return all;
}

}  // namespace casemate::seam
