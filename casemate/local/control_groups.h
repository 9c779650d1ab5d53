#pragma once

// The kernel's control groups, version 1 and 2, as far as a sandbox needs them:
//
//   casemate/<sandbox id>           the agent and its helpers; nothing is bounded here
//   casemate/<sandbox id>/agent     where they live in version 2, in which a group with members
//                                   cannot have bounded groups below it
//   casemate/<sandbox id>/calls     the programs: memory and processor bounds
//   casemate/<sandbox id>/calls/call-<id>
//                                   one a call: its process bound and its counters
//
// When memory runs out the kernel ends one process, not the group (memory.oom.group stays 0): a
// program may outlive a child that took too much.
//
// Programs are bounded apart from the guest's own processes, so that neither the kernel's choice
// when memory runs out nor a spent processor share ends or stops the process that has to end them.
//
// Only names below the group `casemate` are made, written or removed. What is to be done is a list
// of steps, a pure function of the layout, so that both versions are tested on any machine.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/limits.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// Where one controller is to be had.
struct ControllerPlace {
  // The directory in which the group `casemate` is made: the root of the hierarchy, or the highest
  // group above this process that was given to its user.
  std::string base;
  // Version 2, one hierarchy for all.
  bool unified = false;
  friend bool operator==(const ControllerPlace&, const ControllerPlace&) = default;
};

struct ControlGroupLayout {
  std::optional<ControllerPlace> memory;
  std::optional<ControllerPlace> pids;
  std::optional<ControllerPlace> cpu;
  // Counts processor time.
  std::optional<ControllerPlace> accounting;
  friend bool operator==(const ControlGroupLayout&, const ControlGroupLayout&) = default;
};

// The layout without the controllers whose groups could not be had.
ControlGroupLayout held_part(ControlGroupLayout layout, const std::set<Limit>& ungrouped);

// One step of making a group: the directory, or a value for one of its files.
struct GroupStep {
  std::string directory;
  // Empty: the directory itself is made.
  std::string file;
  std::string value;
  // What cannot be held when the step fails. Absent: the step may fail (a file that not every
  // kernel has).
  std::optional<Limit> holds;
  friend bool operator==(const GroupStep&, const GroupStep&) = default;
};

// What a sandbox's bounds are for: its calls, each in a group of its own below, or the sandbox with
// a kernel of its own, which lives in that very group. In version 2 a group that hands controllers
// down can have no members.
enum class GroupMembers : std::uint8_t { calls, whole_sandbox };
std::vector<GroupStep> sandbox_steps(const ControlGroupLayout& layout, std::string_view id,
                                     const Resources& resources,
                                     GroupMembers members = GroupMembers::calls);
std::vector<GroupStep> call_steps(const ControlGroupLayout& layout, std::string_view id,
                                  std::string_view call, std::uint64_t pids);

// The directories of a sandbox's groups, the inner ones first, so that they can be removed in this
// order; of the agent's groups; of a call's.
std::vector<std::string> sandbox_directories(const ControlGroupLayout& layout, std::string_view id);
std::vector<std::string> agent_directories(const ControlGroupLayout& layout, std::string_view id);
// Where a sandbox with a kernel of its own lives as a whole.
std::vector<std::string> bounded_directories(const ControlGroupLayout& layout, std::string_view id);
std::vector<std::string> call_directories(const ControlGroupLayout& layout, std::string_view id,
                                          std::string_view call);
// Where a call's programs belong: its own groups, and the ones all calls share.
std::vector<std::string> member_directories(const ControlGroupLayout& layout, std::string_view id,
                                            std::string_view call);

// Carries the steps out. Returns what cannot be held, with the reason. A step of a hierarchy whose
// directory could not be made is left out.
std::map<Limit, std::string> carry_out(const std::vector<GroupStep>& steps);

// The same steps in two parts, each in their order: those by which there are these directories, and
// the others.
struct PartedSteps {
  std::vector<GroupStep> leading;
  std::vector<GroupStep> others;
};
PartedSteps part_steps(std::vector<GroupStep> steps, const std::vector<std::string>& directories);

// Opens, of each directory that is there, the file by which a process with a single thread joins:
// it writes "0". Nobody else can be moved by it at no cost.
std::vector<sys::UniqueFd> open_members(const std::vector<std::string>& directories);

// The kernel's counter of a call's processor time; empty where there is no place for it.
std::string cpu_counter_file(const ControlGroupLayout& layout, std::string_view id,
                             std::string_view call);

// What the kernel counted in a call's group since it was made. Absent: not to be had.
struct GroupCounters {
  std::optional<std::uint64_t> memory_kills;
  std::optional<std::uint64_t> refused_forks;
  std::optional<std::uint64_t> cpu_nanoseconds;
  std::optional<std::uint64_t> peak_memory;
};

// The files of a call's counters, held open: what is read then stands in every program's way.
class CounterFiles {
 public:
  // Throws `std::system_error` when one is there and cannot be opened.
  CounterFiles(const ControlGroupLayout& layout, std::string_view id, std::string_view call);

  GroupCounters read() const;

 private:
  sys::UniqueFd memory_kills_;
  sys::UniqueFd peak_memory_;
  sys::UniqueFd refused_forks_;
  sys::UniqueFd cpu_;
  bool cpu_is_unified_ = false;
};

// Bytes in use by a sandbox and how many processes its calls have; 0 where it cannot be told.
struct SandboxUse {
  std::uint64_t memory_bytes = 0;
  std::uint64_t processes = 0;
};
SandboxUse read_use(const ControlGroupLayout& layout, std::string_view id);

}  // namespace casemate::local
