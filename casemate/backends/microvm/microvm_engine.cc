#include "casemate/backends/microvm/microvm_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/backends/microvm/host_identity.h"
#include "casemate/backends/microvm/initramfs.h"
#include "casemate/backends/microvm/saved_machines.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/machine/machine_plan.h"
#include "casemate/images/collection.h"
#include "casemate/images/packed.h"
#include "casemate/images/store.h"
#include "casemate/images/store_directory.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/subordinate_ids.h"
#include "casemate/sys/file.h"
#include "casemate/sys/staged_file.h"

namespace casemate::microvm {
namespace {

constexpr TransferLimits kCeiling{
    .max_bytes_per_file = 64 * kMiB, .max_total_bytes = 256 * kMiB, .max_files = 256};
// What machines are started from, and what is saved of them.
constexpr std::chrono::hours kUnusedFor{24 * 14};
constexpr char kKernelSuffix[] = ".kernel";
constexpr char kInitrdSuffix[] = ".initrd";
constexpr std::size_t kMaxKernelBytes = 128 << 20;
constexpr std::size_t kMaxChildrenBytes = 4096;
constexpr std::uint64_t kMilliPerProcessor = 1000;
// What it translates (128 MiB at most, under emulation), and itself: some 100 MiB.
constexpr std::uint64_t kHypervisorBytes = 384 * kMiB;

std::string identity_of(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) < 0) return "";
  return fmt::format("{} {} {} {}.{}", path, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

// Where a name with a slash or, in the absolute directories of PATH, another can be run.
std::vector<std::string> find_programs(const std::string& name) {
  std::vector<std::string> found;
  const auto look_at = [&](const std::string& path) {
    if (access(path.c_str(), X_OK) == 0) found.push_back(path);
  };
  if (name.find('/') != name.npos) {
    look_at(name);
    return found;
  }
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable == nullptr ? "/usr/bin:/bin" : variable;
  while (!rest.empty()) {
    const std::string_view directory = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(directory.size() + 1, rest.size()));
    if (directory.starts_with('/')) look_at(fmt::format("{}/{}", directory, name));
  }
  return found;
}

void find_hypervisor(const std::string& name, Findings& findings) {
  for (const std::string& path : find_programs(name)) {
    std::error_code error;
    const std::string real = std::filesystem::canonical(path, error);
    if (real.starts_with("/usr/")) {
      findings.qemu = real;
      return;
    }
    if (findings.hidden_qemu.empty()) findings.hidden_qemu = path;
  }
}

std::string kernel_directory(const std::string& store) { return store + "/kernel"; }

// `kernels` is empty where there is no place for images, and so none for kernels beside them.
Findings look(const MicrovmBackendOptions& options, const std::string& kernels) {
  Findings findings;
  find_hypervisor(options.qemu, findings);
  findings.qemu_identity = identity_of(findings.qemu);
  findings.has_mksquashfs = !find_programs(options.mksquashfs).empty();
  if (!options.kernel_root.empty()) {
    findings.kernel = find_kernel(options.kernel_root);
  } else {
    if (!kernels.empty()) findings.kernel = find_kernel(kernels);
    if (!findings.kernel) findings.kernel = find_kernel("");
  }
  return findings;
}

// Whether it is there; it is in use now then.
bool note_use(int directory, const std::string& name) {
  return utimensat(directory, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0;
}

void write_boot_file(int directory, const std::string& name, std::string_view content) {
  sys::write_whole_file(directory, name, 0444, [&](int file) {
    sys::write_all(file, content, "writing what machines are started from");
  });
}

// Of other builds and kernels, which nobody uses any more; whoever runs from one has it open.
void prune_boot_files(int directory) {
  std::vector<images::CollectableImage> found;
  for (const std::string& name : sys::list_directory_at(directory, ".")) {
    struct stat status{};
    if (name == images::kIdleTimesName ||
        fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) {
      continue;
    }
    found.push_back({.id = name, .bytes = 0, .used = status.st_mtim.tv_sec});
  }
  try {
    images::collect(directory, found, {.unused_for = kUnusedFor}, images::read_clocks(),
                    [&](const images::CollectableImage& file) {
                      return unlinkat(directory, file.id.c_str(), 0) == 0;
                    });
  } catch (const std::system_error&) {
    // What it looked at is not noted down: the next that is written tries again.
  }
}

[[noreturn]] void refuse(const Missing& missing) {
  throw Carrying<SandboxUnavailable, local::Remedy>(
      SandboxUnavailable("virtual machines cannot be started here: " + missing.what, missing.hint),
      {.hint = missing.hint, .command = missing.fix});
}

}  // namespace

namespace {

Missing brought_by(std::string what, const local::Remedy& remedy) {
  return {std::move(what), remedy.hint, remedy.command};
}

}  // namespace

Missing missing_of(const Findings& findings, const std::string& kernel_directory) {
  if (findings.qemu.empty() && !findings.hidden_qemu.empty()) {
    return brought_by(fmt::format("{} lies outside /usr, which is all that a hypervisor sees",
                                  escape_for_display(findings.hidden_qemu)),
                      local::install_package("qemu-system-x86", "--no-install-recommends"));
  }
  if (findings.qemu.empty()) {
    return brought_by("there is no qemu-system-x86_64",
                      local::install_package("qemu-system-x86", "--no-install-recommends"));
  }
  if (!findings.has_mksquashfs) {
    return brought_by("there is no mksquashfs", local::install_package("squashfs-tools"));
  }
  if (!findings.kernel) {
    // Not installed: a package of a kernel would have this machine start it.
    const std::string command = fmt::format(
        "{}cd $(mktemp -d) && apt-get download $(apt-cache depends "
        "linux-image-cloud-amd64 | sed -n 's/.*Depends: //p') && dpkg-deb -x "
        "linux-image-*-cloud-amd64_*.deb {}",
        findings.by_root ? "apt-get update && " : "", kernel_directory);
    return {"there is no kernel for them", command, command};
  }
  if (findings.accelerator == Accelerator::kvm && !findings.kvm.usable) {
    return {findings.kvm.reason, findings.kvm.hint, findings.kvm.fix};
  }
  return {};
}

MicrovmEngine::MicrovmEngine(MicrovmBackendOptions options) : options_(std::move(options)) {}

std::string MicrovmEngine::store() const {
  return options_.images.directory.empty() ? images::default_store_directory()
                                           : options_.images.directory;
}

const KvmState& MicrovmEngine::kvm() const {
  std::call_once(kvm_looked_,
                 [this] { kvm_ = judge(look_at_kvm(), local::name_of_user(geteuid())); });
  return kvm_;
}

Accelerator MicrovmEngine::accelerator() const {
  return options_.accelerator.value_or(kvm().usable ? Accelerator::kvm : Accelerator::tcg);
}

const Findings& MicrovmEngine::findings() const {
  std::call_once(looked_, [this] {
    std::string kernels;
    try {
      kernels = kernel_directory(store());
    } catch (const SandboxUnavailable&) {
      // Said when a machine is to be made.
    }
    findings_ = look(options_, kernels);
    findings_.kvm = kvm();
    findings_.accelerator = accelerator();
    findings_.by_root = geteuid() == 0;
  });
  return findings_;
}

BackendDeclarations MicrovmEngine::declare(const local::ControlGroupLayout& /*layout*/) const {
  const Isolation hardware =
      options_.machine == MachineType::microvm ? Isolation::microvm : Isolation::vm;
  return {.name = std::string(kMicrovmBackendName),
          // Under emulation the boundary is a program's, and a program's faults cross it.
          .isolation = accelerator() == Accelerator::kvm ? hardware : Isolation::hardened_container,
          .egress_modes = {Egress::allowlist, Egress::closed},
          .capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                           Capability::files_list, Capability::files_delete, Capability::host_tools,
                           Capability::snapshot},
          .limits = {.files_in = kCeiling, .files_out = kCeiling},
          .os_families = {OsFamily::posix},
          .image_forms = {ImageForm::dir, ImageForm::oci, ImageForm::docker_archive,
                          ImageForm::registry},
          .host_tool_transport = HostToolTransport::channel,
          .enforceable_limits = {Limit::memory, Limit::pids, Limit::cpu, Limit::disk, Limit::files,
                                 Limit::time}};
}

std::string MicrovmEngine::text() const {
  // Not set up here, and so nothing that somebody would miss.
  if (findings().qemu.empty() || !findings().has_mksquashfs || !findings().kernel) return "";
  return fmt::format("qemu {} with {}, kernel {}",
                     options_.machine == MachineType::microvm ? "microvm" : "q35",
                     accelerator() == Accelerator::kvm
                         ? "KVM"
                         : fmt::format("software emulation ({})",
                                       options_.accelerator ? "as was asked for" : kvm().reason),
                     findings().kernel->release);
}

void MicrovmEngine::check_available() const {
  const Missing missing = missing_of(findings(), kernel_directory(store()));
  if (!missing.what.empty()) refuse(missing);
}

std::string MicrovmEngine::build() const {
  return fmt::format("{} {} {} {} {}", guest::guest_build_id(), findings().qemu_identity,
                     findings().kernel ? identity_of(findings().kernel->image) : "",
                     options_.machine == MachineType::microvm ? "microvm" : "q35",
                     accelerator() == Accelerator::kvm ? "kvm" : "tcg");
}

std::vector<std::string> MicrovmEngine::keeper_arguments() const { return {"machine-keeper"}; }

std::optional<int> MicrovmEngine::first_process(int agent) const noexcept {
  try {
    const std::string path = fmt::format("/proc/{0}/task/{0}/children", agent);
    const std::string children = sys::read_file_at(AT_FDCWD, path.c_str(), kMaxChildrenBytes);
    int child = 0;
    const auto [end, error] =
        std::from_chars(children.data(), children.data() + children.size(), child);
    if (error == std::errc{} && child > 0) return child;
  } catch (const std::exception&) {
    // It has ended.
  }
  return std::nullopt;
}

std::string MicrovmEngine::probe_image() const noexcept {
  try {
    images::open_part_of_store(store(), "probe");
    return "dir:" + store() + "/probe";
  } catch (const std::exception&) {
    // Then there is no place for machines either, which is what acquiring one says.
    return {};
  }
}

MicrovmEngine::BootFiles MicrovmEngine::boot_files() {
  const std::lock_guard lock(mutex_);
  const sys::UniqueFd opened = images::open_part_of_store(store(), "boot");
  const auto are_there = [&](const BootFiles& files) {
    return note_use(opened.get(), files.digest + kKernelSuffix) &&
           note_use(opened.get(), files.digest + kInitrdSuffix);
  };
  if (boot_ && are_there(*boot_)) return *boot_;
  const std::vector<std::string> modules = module_files(*findings().kernel);
  std::string made_of = identity_of(findings().kernel->image) + guest::guest_build_id();
  for (const std::string& module : modules) made_of += identity_of(module);
  const std::string digest = sha256_hex(made_of);
  const std::string directory = store() + "/boot";
  BootFiles files{.kernel = fmt::format("{}/{}{}", directory, digest, kKernelSuffix),
                  .initrd = fmt::format("{}/{}{}", directory, digest, kInitrdSuffix),
                  .digest = digest};
  if (!are_there(files)) {
    // A copy: the hypervisor's user may read it, whatever the mode of the distribution's file.
    write_boot_file(opened.get(), digest + kKernelSuffix,
                    sys::read_file_at(AT_FDCWD, findings().kernel->image.c_str(), kMaxKernelBytes));
    const std::span<const char> program = guest::guest_program();
    write_boot_file(opened.get(), digest + kInitrdSuffix,
                    machine_initramfs({program.data(), program.size()}, modules));
    prune_boot_files(opened.get());
  }
  boot_ = files;
  return files;
}

MachineShape MicrovmEngine::shape_for(const Resources& resources) const {
  // More than this machine has would hold nothing more: what a program may use of them is bounded
  // inside.
  const std::uint64_t present = std::max<long>(1, sysconf(_SC_NPROCESSORS_ONLN));
  const std::uint64_t wanted =
      (resources.cpu_millis.value + kMilliPerProcessor - 1) / kMilliPerProcessor;
  return {
      .type = options_.machine,
      .accelerator = accelerator(),
      .memory_mib = machine_memory_mib(resources.memory_bytes.value + resources.disk_bytes.value),
      .processors = static_cast<unsigned>(std::min(wanted, present))};
}

Resources MicrovmEngine::bounds_as_a_whole(const Resources& resources) const {
  const MachineShape shape = shape_for(resources);
  Resources bounds = resources;
  bounds.memory_bytes.value = shape.memory_mib * kMiB + kHypervisorBytes;
  // It is in the machine's memory.
  bounds.disk_bytes.value = 0;
  bounds.cpu_millis.value = std::max(shape.processors, 1U) * kMilliPerProcessor;
  return bounds;
}

void MicrovmEngine::prepare(int directory, const local::ImageChoice& image, const SandboxSpec& spec,
                            const CallControl& control) {
  const Resources& resources = spec.resources;
  const BootFiles boot = boot_files();
  const images::PackedImages packed_images({.directory = store(),
                                            .mksquashfs = options_.mksquashfs,
                                            .progress = options_.images.progress,
                                            .collection = options_.images.collection});
  const images::PackedImage packed = packed_images.hold(*image.held, control);
  const MachineShape shape = shape_for(resources);
  guest::MachinePlan plan{
      .program = findings().qemu,
      .files = {{"kernel", boot.kernel}, {"initrd", boot.initrd}, {"image", packed.path}},
      .program_bytes = resources.memory_bytes.value + resources.disk_bytes.value,
      .cpu_millis = resources.cpu_millis.value};
  fill_arguments(plan, shape);
  // One that is made to see whether there are any is made once.
  if (options_.saves_machines && image.name != probe_image()) {
    SavedMachineParts parts{.host = host_identity(look_at_host_identity()),
                            .hypervisor = program_identity(plan.program),
                            .boot = boot.digest,
                            .image = packed.digest,
                            .arguments = plan.arguments};
    std::ranges::copy(plan.fresh_arguments, std::back_inserter(parts.arguments));
    const std::string saved = store() + "/machines";
    images::open_part_of_store(store(), "machines");
    plan.saved = fmt::format("{}/{}", saved, saved_machine_name(parts));
    mark_saved_machine_used(plan.saved);
    prune_saved_machines(saved, {.maker = maker_of(parts),
                                 .has_image =
                                     [store = store()](std::string_view digest) {
                                       return images::is_packed(store, digest);
                                     },
                                 .unused = kUnusedFor});
  }
  sys::write_file_at(directory, guest::kMachinePlanName, encode(plan), 0600);
}

}  // namespace casemate::microvm
