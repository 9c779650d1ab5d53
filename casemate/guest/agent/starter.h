#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/program_group.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// One sandbox of a keeper's.
struct KeptSandbox {
  // Of the request.
  std::uint64_t number = 0;
  std::string id;
  bool answered = false;
  // Its end is to be reported.
  bool given_up = false;
  // It is not to live, however far its start has come.
  bool doomed = false;
  // When its start has taken too long. Absent where it takes as long as it takes.
  std::optional<sys::SteadyTime> start_until;
  // The agent. Absent at first where a runtime starts it.
  sys::UniqueFd process;
  pid_t pid = -1;
  // The runtime that starts its container, until it ended, and what it says meanwhile.
  sys::UniqueFd runtime;
  pid_t runtime_pid = -1;
  sys::UniqueFd said;
  // From the agent, until it reported; of a container's as long as that lives.
  sys::UniqueFd status;
  sys::UniqueFd directory;
  // Of its directory; -1 where there is none.
  int watch = -1;
  std::vector<std::string> control_groups;
};

// What a sandbox's first process is given.
struct StartPlan {
  CreateSandbox request{};
  sys::UniqueFd agent_socket;
  sys::UniqueFd lease_socket;
  sys::UniqueFd first_lease;
  // With `has_image`.
  sys::UniqueFd image;
  std::vector<sys::UniqueFd> groups;
  // With `has_program_group`.
  std::optional<ProgramGroup> programs{};
};

// How a keeper makes the first process of a sandbox. Methods throw `std::system_error` unless they
// say otherwise.
class Starter {
 public:
  virtual ~Starter() = default;

  // Before the first request, beside what the host does, and again at each. Once a user namespace
  // could not be had it never can: `refused` says that.
  virtual void get_ready() = 0;
  virtual bool refused() const noexcept = 0;

  // Starts the agent, or the runtime that starts it: fills in `pid` or `runtime_pid`, and `status`.
  virtual void start(StartPlan plan, KeptSandbox& sandbox) = 0;

  // Makes what the next `start` can take, when nobody waits for it. The default makes nothing.
  virtual void prepare_next() {}
  // There will be no other.
  virtual void drop_next() noexcept {}

  // Its processes have ended: removes what the start may have left beside the sandbox's directory
  // and its control groups. Returns whether nothing of that is left. The default does nothing.
  virtual bool remove_rest(const KeptSandbox& /*sandbox*/) noexcept { return true; }

  // Whose user ids sandboxes have, for a person.
  virtual std::string description() const = 0;
};

// Whether a starter makes what its next start can take before it is asked for.
enum class Spares : bool { none, ahead };

// Clones agents out of the keeper's own address space, with all namespaces. What it makes ahead is
// for a sandbox of the image `host`, and none is made once the last had another.
std::unique_ptr<Starter> make_clone_starter(const std::optional<SubordinateIds>& subordinate,
                                            Spares spares);

// What an OCI runtime is to make of control groups; the agent joins its own by itself.
enum class RuntimeGroups : std::uint8_t {
  // Nothing is said of them.
  unnamed,
  // It shall not see any: for one that refuses a mix of both versions.
  hidden,
  // One of the sandbox's own, `runtime_group`.
  own,
};

// How containers are started.
struct RuntimePlan {
  // An absolute path, and global options.
  std::vector<std::string> command;
  // Where it keeps what it knows of its containers.
  std::string state_directory;
  RuntimeGroups groups = RuntimeGroups::unnamed;
  // For one start.
  std::chrono::seconds patience{};
};

// Has an OCI runtime start each agent as pid 1 of a container, whose root is the same template.
std::unique_ptr<Starter> make_runtime_starter(RuntimePlan plan,
                                              const std::optional<SubordinateIds>& subordinate);

// Has a runtime that brings a kernel of its own (gVisor's) start each sandbox, with a process of
// the machine's that keeps it (enclosure.h). `command` is an absolute path, and global options;
// `patience` is for one start.
std::unique_ptr<Starter> make_enclosure_starter(std::vector<std::string> command,
                                                std::chrono::seconds patience);

}  // namespace casemate::guest
