#include "casemate/backends/docker/container_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "casemate/backends/docker/guest_volume.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/base/json.h"
#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/enclosed_agent.h"
#include "casemate/guest/agent/guest_program.h"

namespace casemate::docker {
namespace {

namespace json = boost::json;

// Of the guest program, which gives them up where programs begin: users and groups of calls, ending
// what they started, removing what they made, and letting go of these very rights.
constexpr std::string_view kCapabilities[] = {"CHOWN",  "DAC_OVERRIDE", "FOWNER", "KILL",
                                              "SETGID", "SETUID",       "SETPCAP"};
// Of namespaces and mounts of calls. Over this machine's kernel it would be most of root's rights.
constexpr std::string_view kOwnKernelCapability = "SYS_ADMIN";
// Its own processes: the agent, a call's, an exec's.
constexpr std::uint64_t kOwnProcesses = 3;
// Of a host, a process beside the first one; those of more hosts count among the programs.
constexpr std::uint64_t kStreams = 1;
// A file system of fewer has no room for its own root.
constexpr std::uint64_t kLeastInodes = 16;

std::string tmpfs_options(const EngineFacts& engine, std::uint64_t bytes, std::uint64_t inodes,
                          unsigned mode, bool executable) {
  std::string options = fmt::format("rw,nosuid,nodev,{},mode={:o},size={}",
                                    executable ? "exec" : "noexec", mode, bytes);
  // Podman knows no bound on files, and copies what the image has there unless told.
  options += engine.podman ? ",notmpcopyup" : fmt::format(",nr_inodes={}", inodes);
  return options;
}

ContainerKernel kernel_of(const ContainerWish& wish) {
  return wish.host_kernel.empty() ? ContainerKernel::shared : ContainerKernel::own;
}

json::object tmpfs(const ContainerWish& wish) {
  json::object mounts;
  for (const DiskShare& share : disk_shares(wish.spec, kernel_of(wish))) {
    mounts[share.path] =
        tmpfs_options(wish.engine, share.bytes, share.inodes, 01777, share.executable);
  }
  if (kernel_of(wish) == ContainerKernel::own) {
    // Each call has its own over both.
    for (const char* path : {"/tmp", "/dev/shm"}) {
      mounts[path] = tmpfs_options(wish.engine, 64 * kKiB, kLeastInodes, 0755, false);
    }
  }
  // Of the image's, nothing that could be written; of ours, the calls' sockets.
  mounts["/run"] = tmpfs_options(wish.engine, 64 * kKiB, kLeastInodes, 0755, false);
  mounts["/casemate/calls"] = tmpfs_options(wish.engine, kMiB, 4096, 0711, false);
  if (wish.first_lease.count() > 0) {
    mounts[guest::kSharedDirectory] =
        tmpfs_options(wish.engine, 64 * kKiB, kLeastInodes, 0700, false);
  }
  // An image may ask for volumes, whose size nobody bounds.
  for (const std::string& path : wish.image.volumes) {
    if (!mounts.contains(path)) {
      mounts[path] = tmpfs_options(wish.engine, 64 * kKiB, kLeastInodes, 0555, false);
    }
  }
  return mounts;
}

}  // namespace

std::vector<DiskShare> disk_shares(const SandboxSpec& spec, ContainerKernel kernel) {
  const std::uint64_t bytes = spec.resources.disk_bytes.value;
  const std::uint64_t inodes = spec.resources.disk_inodes.value;
  const auto share = [&](const char* path, std::uint64_t parts, bool executable) {
    return DiskShare{path, bytes / 16 * parts, std::max(kLeastInodes, inodes / 16 * parts),
                     executable};
  };
  std::vector<DiskShare> shares{share("/home/user", 2, true), share("/var/tmp", 1, true)};
  if (kernel == ContainerKernel::shared) {
    shares.push_back(share("/tmp", 2, true));
    shares.push_back(share("/dev/shm", 1, false));
  }
  DiskShare work{spec.work_dir, bytes, inodes, true};
  for (const DiskShare& each : shares) {
    work.bytes -= each.bytes;
    work.inodes -= std::min(each.inodes, work.inodes - kLeastInodes);
  }
  shares.push_back(std::move(work));
  return shares;
}

std::string container_body(const ContainerWish& wish) {
  const Resources& resources = wish.spec.resources;
  const EngineFacts& engine = wish.engine;
  json::object labels;
  for (const auto& [name, value] : wish.labels) labels[name] = value;
  json::array capabilities;
  for (const std::string_view name : kCapabilities) capabilities.emplace_back(name);
  const bool own_kernel = kernel_of(wish) == ContainerKernel::own;
  if (own_kernel) capabilities.emplace_back(kOwnKernelCapability);
  const guest::ContainerPlan plan{
      .work_dir = wish.spec.work_dir,
      .open_files = resources.open_files.value,
      .cpu_seconds = resources.cpu_seconds ? resources.cpu_seconds->value : 0,
      .keep_idle_ms = static_cast<std::uint64_t>(wish.spec.keep_idle.count()),
      .first_lease_ms = static_cast<std::uint64_t>(wish.first_lease.count()),
      .host_kernel = wish.host_kernel,
      .processes = resources.pids.value,
      .directory_bytes = resources.disk_bytes.value / 8};
  json::array words;
  for (const std::string& word : guest::encode(plan)) words.emplace_back(word);

  json::object host{
      {"AutoRemove", true},
      {"NetworkMode", "none"},
      {"ReadonlyRootfs", true},
      {"CapDrop", json::array{"ALL"}},
      {"CapAdd", std::move(capabilities)},
      {"SecurityOpt", json::array{"no-new-privileges"}},
      // No /dev/shm of the engine's, which nobody counts the files of.
      {"IpcMode", "none"},
      {"CgroupnsMode", "private"},
      {"LogConfig", {{"Type", "none"}}},
      {"Tmpfs", tmpfs(wish)},
      {"Mounts",
       json::array{json::object{
           {"Type", "volume"},
           {"Source", guest_volume()},
           {"Target", kGuestDirectory},
           {"ReadOnly", true},
           {"VolumeOptions",
            {{"NoCopy", true},
             {"Labels",
              {{kOwnerLabel, kOwner}, {kGuestLabel, guest::guest_build_id().substr(0, 24)}}}}}}}}};
  if (wish.first_lease.count() == 0) {
    host["Mounts"].as_array().push_back(json::object{
        {"Type", "bind"}, {"Source", wish.shared_path}, {"Target", guest::kSharedDirectory}});
  }
  if (engine.bounds_memory) {
    // Files on a tmpfs are memory; what the disk bound gives does not eat the other.
    const std::uint64_t kernel = own_kernel ? guest::kOwnKernelBytes : 0;
    const std::uint64_t memory = resources.memory_bytes.value + resources.disk_bytes.value + kernel;
    host["Memory"] = memory;
    host["MemorySwap"] = memory;
  }
  // The engine would count the threads of that kernel, which ends when it gets no more.
  if (engine.bounds_processes && !own_kernel) {
    const std::uint64_t streams = wish.first_lease.count() > 0 ? kStreams : 0;
    host["PidsLimit"] = resources.pids.value + kOwnProcesses + streams;
  }
  // More than there are is no bound, and is refused.
  if (engine.bounds_cpu && resources.cpu_millis.value < engine.processors * 1000) {
    host["NanoCpus"] = resources.cpu_millis.value * 1'000'000;
  }
  if (!wish.runtime.empty()) host["Runtime"] = wish.runtime;

  json::object body{{"Image", wish.image.id},
                    {"User", "0:0"},
                    {"WorkingDir", "/"},
                    {"Hostname", "sandbox"},
                    {"Entrypoint", json::array{kGuestEntry}},
                    {"Cmd", std::move(words)},
                    {"NetworkDisabled", true},
                    {"Labels", std::move(labels)},
                    {"HostConfig", std::move(host)}};
  // Only then: of a container with any, Podman asks a systemd that need not be there.
  if (wish.image.has_health_check) body["Healthcheck"] = {{"Test", json::array{"NONE"}}};
  return serialise_json(body);
}

}  // namespace casemate::docker
