#include "casemate/backends/docker/spec_check.h"

#include <fmt/format.h>

#include "casemate/backends/docker/docker_backend.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "casemate/core/spec_match.h"

namespace casemate::docker {
namespace {

constexpr TransferLimits kCeiling{
    .max_bytes_per_file = 64 * kMiB, .max_total_bytes = 256 * kMiB, .max_files = 256};

constexpr std::size_t kMaxWorkDirBytes = 200;

// Where a container has something else, or where a program could take the directory away.
constexpr std::string_view kTaken[] = {"/usr",     "/bin",  "/sbin", "/lib",     "/lib32", "/lib64",
                                       "/libx32",  "/etc",  "/dev",  "/proc",    "/sys",   "/tmp",
                                       "/var/tmp", "/home", "/run",  "/casemate"};

void check_work_dir(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(
        fmt::format("work_dir \"{}\" is refused: {}", escape_for_display(path), why),
        "use the default, /workspace");
  };
  if (path.empty() || path[0] != '/') refuse("an absolute path is accepted");
  if (path == "/" || normalise_guest_path(path) != path) {
    refuse("a normal path below / is accepted, without \".\", \"..\" and double slashes");
  }
  if (path.size() > kMaxWorkDirBytes) refuse(fmt::format("at most {} bytes", kMaxWorkDirBytes));
  // Engines read mounts as text.
  if (path.find_first_of(std::string_view("\0:,", 3)) != path.npos) {
    refuse("it holds a NUL byte, a colon or a comma");
  }
  for (const std::string_view taken : kTaken) {
    if (guest_path_relative_to(path, taken)) {
      refuse(fmt::format("{} holds something else in the sandbox", taken));
    }
  }
}

void check_machine_has(const Resources& resources, const EngineFacts& engine) {
  if (engine.memory == 0) return;
  for (const auto& [limit, bound] : {std::pair(Limit::memory, resources.memory_bytes),
                                     std::pair(Limit::disk, resources.disk_bytes)}) {
    if (!bound.stated || bound.value <= engine.memory) continue;
    throw SandboxLimitNotEnforceable(
        fmt::format("a {} limit of {} bytes cannot be held here: the engine's machine has {} bytes "
                    "of memory",
                    to_string(limit), bound.value, engine.memory),
        fmt::format("give at most {}", engine.memory));
  }
}

}  // namespace

BackendDeclarations declare(const std::optional<EngineFacts>& engine, Isolation isolation) {
  BackendDeclarations declared{
      .name = std::string(kDockerBackendName),
      .isolation = isolation,
      .egress_modes = {Egress::closed},
      .capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                       Capability::files_list, Capability::files_delete, Capability::host_tools},
      .limits = {.files_in = kCeiling, .files_out = kCeiling},
      .os_families = {OsFamily::posix},
      .image_forms = {ImageForm::registry},
      .host_tool_transport = HostToolTransport::channel,
      .enforceable_limits = {Limit::files, Limit::time}};
  if (!engine) return declared;
  if (isolation != Isolation::container) {
    // The engine's bounds are of all of the sandbox, its kernel with it: they name no limit, and
    // what that kernel counts by itself is not known here.
    if (engine->bounds_cpu) declared.enforceable_limits.insert(Limit::cpu);
    return declared;
  }
  if (engine->bounds_memory) declared.enforceable_limits.insert(Limit::memory);
  if (engine->bounds_processes) declared.enforceable_limits.insert(Limit::pids);
  if (engine->bounds_cpu) declared.enforceable_limits.insert(Limit::cpu);
  // Podman bounds bytes and not the number of files.
  if (!engine->podman) declared.enforceable_limits.insert(Limit::disk);
  return declared;
}

void check_servable(const SandboxSpec& spec, const BackendDeclarations& declared,
                    const EngineFacts& engine) {
  check_machine_has(spec.resources, engine);
  // The host's floor is the router's to know; the rest is the same for both.
  if (const auto refused = match_declarations(spec, Isolation::process, declared)) {
    refused->raise(refused->message, refused->hint);
  }
  check_work_dir(spec.work_dir);
}

}  // namespace casemate::docker
