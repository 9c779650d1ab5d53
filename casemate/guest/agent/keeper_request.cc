#include "casemate/guest/agent/keeper_request.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "casemate/guest/agent/program_group.h"
#include "casemate/sys/error.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// A socket with a name in a directory, not listened on yet. The name goes through /proc because a
// socket address holds 107 bytes and a state directory may be longer.
UniqueFd bind_socket(int directory, const char* name) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) sys::throw_errno("making a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    sys::throw_errno(std::string("binding ") + name);
  }
  return socket;
}

bool ends_within(const char* text, std::size_t bytes) { return strnlen(text, bytes) < bytes; }

}  // namespace

bool is_sound(const CreateSandbox& request, std::size_t descriptors) {
  if (request.number == 0 || request.control_groups > kMaxControlGroups) return false;
  if (request.has_image > 1 || request.has_program_group > 1) return false;
  const std::uint64_t groups =
      request.bounded_groups + std::uint64_t{request.has_program_group} * kProgramGroupFiles;
  if (descriptors < std::uint64_t{2} + request.has_image + groups) return false;
  if (!ends_within(request.id, sizeof request.id)) return false;
  if (!ends_within(request.work_dir, sizeof request.work_dir)) return false;
  if (request.work_dir[0] != '/' || request.work_dir[1] == '\0') return false;
  for (std::uint32_t i = 0; i < request.control_groups; ++i) {
    const char* path = request.control_group_paths[i];
    if (!ends_within(path, kControlGroupPathBytes) || path[0] != '/') return false;
  }
  return true;
}

StartPlan take_apart(const CreateSandbox& request, std::vector<UniqueFd> descriptors,
                     KeptSandbox& sandbox) {
  sandbox.number = request.number;
  sandbox.id = request.id;
  sandbox.directory = std::move(descriptors[0]);
  for (std::uint32_t i = 0; i < request.control_groups; ++i) {
    sandbox.control_groups.emplace_back(request.control_group_paths[i]);
  }
  StartPlan plan;
  plan.request = request;
  plan.agent_socket = bind_socket(sandbox.directory.get(), kAgentSocketName);
  plan.lease_socket = bind_socket(sandbox.directory.get(), kLeaseSocketName);
  plan.first_lease = std::move(descriptors[1]);
  if (request.has_image != 0) plan.image = std::move(descriptors[2]);
  if (request.has_program_group != 0) {
    const std::size_t first = descriptors.size() - kProgramGroupFiles;
    plan.programs = ProgramGroup{.members = std::move(descriptors[first]),
                                 .memory_events = std::move(descriptors[first + 1]),
                                 .fork_events = std::move(descriptors[first + 2])};
    descriptors.resize(first);
  }
  const std::ptrdiff_t first_group = 2 + static_cast<std::ptrdiff_t>(request.has_image);
  plan.groups.assign(std::make_move_iterator(descriptors.begin() + first_group),
                     std::make_move_iterator(descriptors.end()));
  return plan;
}

}  // namespace casemate::guest
