#include "casemate/local/spec_check.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <array>
#include <string_view>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "casemate/core/resource_match.h"
#include "casemate/core/spec_match.h"
#include "casemate/images/reference.h"
#include "casemate/sys/rlimits.h"

namespace casemate::local {
namespace {

constexpr TransferLimits kCeiling{
    .max_bytes_per_file = 64 * kMiB, .max_total_bytes = 256 * kMiB, .max_files = 256};

constexpr std::size_t kMaxWorkDirBytes = 200;

// Where the root has something else, or where a program could take the directory away.
constexpr std::string_view kTaken[] = {
    "/usr", "/bin",  "/sbin", "/lib", "/lib32",   "/lib64", "/libx32",   "/etc",
    "/dev", "/proc", "/sys",  "/tmp", "/var/tmp", "/home",  "/casemate", "/.quota"};

void check_work_dir(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(fmt::format("work_dir \"{}\" is refused: {}", path, why),
                          "use the default, /workspace");
  };
  if (path.empty() || path[0] != '/') refuse("an absolute path is accepted");
  if (path == "/" || normalise_guest_path(path) != path) {
    refuse("a normal path below / is accepted, without \".\", \"..\" and double slashes");
  }
  if (path.size() > kMaxWorkDirBytes) refuse(fmt::format("at most {} bytes", kMaxWorkDirBytes));
  if (path.find('\0') != std::string::npos) refuse("it holds a NUL byte");
  for (const std::string_view taken : kTaken) {
    if (guest_path_relative_to(path, taken)) {
      refuse(fmt::format("{} holds something else in the sandbox", taken));
    }
  }
}

void check_image(const SandboxSpec& spec, const BackendDeclarations& declared) {
  const std::string& backend = declared.name;
  // A spec that names none means this machine's own programs.
  if (!spec.image_id && !spec.image && !declared.image_forms.contains(ImageForm::host)) {
    throw SandboxImageNotSupported(
        fmt::format("the {} backend has no image of its own, and none was named", backend),
        "name one: dir:PATH, oci:PATH, docker-archive:PATH or a registry reference");
  }
  if (spec.image_id && !images::is_digest(*spec.image_id)) {
    throw SandboxImageNotSupported(
        fmt::format("the {} backend knows images by their digest, not by the id \"{}\"", backend,
                    escape_for_display(*spec.image_id)),
        "give an id of `casemate image ls`, sha256: and 64 hex digits, or an image reference");
  }
  images::parse_image_reference(spec.image_id.value_or(spec.image.value_or("host")));
}

[[noreturn]] void refuse_limit(std::string_view backend, Limit limit, std::string_view why) {
  throw SandboxLimitNotEnforceable(
      fmt::format("the {} limit cannot be held by the {} backend here: {}", to_string(limit),
                  backend, why),
      "leave the limit out to run without it, or make what is missing available");
}

// Files on the quota are memory, too: more than the machine has bounds neither.
void check_machine_has(const Resources& resources, std::uint64_t machine_bytes) {
  for (const auto& [limit, bound] : {std::pair(Limit::memory, resources.memory_bytes),
                                     std::pair(Limit::disk, resources.disk_bytes)}) {
    if (!bound.stated || bound.value <= machine_bytes) continue;
    throw SandboxLimitNotEnforceable(
        fmt::format("a {} limit of {} bytes cannot be held here: this machine has {} bytes of "
                    "memory and swap",
                    to_string(limit), bound.value, machine_bytes),
        fmt::format("give at most {}", machine_bytes));
  }
}

const ResourceLimit& bound_of(const Resources& resources, Limit limit) {
  switch (limit) {
    case Limit::pids:
      return resources.pids;
    case Limit::cpu:
      return resources.cpu_millis;
    default:
      return resources.memory_bytes;
  }
}

// What a program needs of the limits of its process so that none of them bites before the bound
// that has a name.
struct ProcessLimit {
  std::string_view name;
  int resource;
  Limit limit;
  std::uint64_t needed;
  bool stated;
};

std::array<ProcessLimit, 7> process_limits(const Resources& resources) {
  const ResourceLimit& memory = resources.memory_bytes;
  const ResourceLimit& disk = resources.disk_bytes;
  const ResourceLimit& pids = resources.pids;
  const ResourceLimit& files = resources.open_files;
  const ResourceLimit seconds = resources.cpu_seconds.value_or(ResourceLimit{RLIM_INFINITY});
  return {{
      {"RLIMIT_AS", RLIMIT_AS, Limit::memory, memory.value + disk.value, memory.stated},
      {"RLIMIT_DATA", RLIMIT_DATA, Limit::memory, memory.value + disk.value, memory.stated},
      {"RLIMIT_FSIZE", RLIMIT_FSIZE, Limit::disk, disk.value, disk.stated},
      {"RLIMIT_NPROC", RLIMIT_NPROC, Limit::pids, pids.value, pids.stated},
      {"RLIMIT_NOFILE", RLIMIT_NOFILE, Limit::files, files.value, files.stated},
      // What a main thread is given everywhere; no spec can state it.
      {"RLIMIT_STACK", RLIMIT_STACK, Limit::memory, 8 * kMiB, false},
      {"RLIMIT_CPU", RLIMIT_CPU, Limit::cpu, seconds.value, seconds.stated},
  }};
}

}  // namespace

BackendDeclarations declare(std::string_view name, Isolation isolation,
                            const ControlGroupLayout& layout) {
  BackendDeclarations declared{
      .name = std::string(name),
      .isolation = isolation,
      .egress_modes = {Egress::allowlist, Egress::closed},
      .capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                       Capability::files_list, Capability::files_delete, Capability::host_tools,
                       Capability::snapshot},
      .limits = {.files_in = kCeiling, .files_out = kCeiling},
      .os_families = {OsFamily::posix},
      .image_forms = {ImageForm::host, ImageForm::dir, ImageForm::oci, ImageForm::docker_archive,
                      ImageForm::registry},
      .host_tool_transport = HostToolTransport::channel,
      // Processes are counted by user and user namespace where there is no controller.
      .enforceable_limits = {Limit::pids, Limit::disk, Limit::files, Limit::time}};
  if (layout.memory) declared.enforceable_limits.insert(Limit::memory);
  if (layout.cpu) declared.enforceable_limits.insert(Limit::cpu);
  declared.cpu_seconds_enforceable = layout.accounting.has_value();
  return declared;
}

void check_servable(const SandboxSpec& spec, const BackendDeclarations& declared,
                    const std::map<Limit, std::string>& missing, std::uint64_t machine_bytes) {
  for (const UnheldBound& bound : unheld_bounds(spec.resources, declared)) {
    const auto why = missing.find(bound.limit);
    if (bound.stated && why != missing.end()) refuse_limit(declared.name, bound.limit, why->second);
  }
  check_machine_has(spec.resources, machine_bytes);
  // The host's floor is the router's to know; the rest is the same for both.
  if (const auto refused = match_declarations(spec, Isolation::process, declared)) {
    refused->raise(refused->message, refused->hint);
  }
  check_image(spec, declared);
  check_work_dir(spec.work_dir);
}

std::set<Limit> settle_limits(const Resources& resources, const BackendDeclarations& declared,
                              const std::map<Limit, std::string>& failed) {
  std::set<Limit> not_held;
  for (const UnheldBound& bound : unheld_bounds(resources, declared)) {
    if (bound.stated)
      refuse_limit(declared.name, bound.limit, "its kernel facility is not available");
    not_held.insert(bound.limit);
  }
  for (const auto& [limit, why] : failed) {
    // Held another way: RLIMIT_NPROC, which the kernel counts by user and user namespace.
    if (limit == Limit::pids) continue;
    const bool seconds =
        limit == Limit::cpu && resources.cpu_seconds && resources.cpu_seconds->stated;
    if (seconds || bound_of(resources, limit).stated) refuse_limit(declared.name, limit, why);
    not_held.insert(limit);
  }
  for (const ProcessLimit& limit : process_limits(resources)) {
    const std::uint64_t most = sys::most_of(limit.resource);
    if (most >= limit.needed) continue;
    if (limit.stated) {
      refuse_limit(
          declared.name, limit.limit,
          fmt::format("this process runs under {} {} and may not raise it", limit.name, most));
    }
    not_held.insert(limit.limit);
  }
  return not_held;
}

std::uint64_t machine_memory_bytes() noexcept {
  struct sysinfo info{};
  if (sysinfo(&info) < 0) return kMaxBytes;
  return (std::uint64_t{info.totalram} + info.totalswap) * info.mem_unit;
}

}  // namespace casemate::local
