#pragma once

// Where control groups are to be had on this machine, by this process.

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/vocabulary.h"
#include "casemate/local/control_groups.h"
#include "casemate/local/diagnosis.h"

namespace casemate::local {

// What this process can do with a group that exists.
struct GroupView {
  // False where something is mounted over it.
  bool there = true;
  // Groups can be made in it, and processes be put there.
  bool writable = false;
  // Version 2 only. It has processes of its own and is not the root: the kernel then hands no
  // controller on to groups below it.
  bool occupied = false;
  // Version 2 only: cgroup.controllers.
  std::string offered{};
  friend bool operator==(const GroupView&, const GroupView&) = default;
};
using LookAtGroup = std::function<GroupView(const std::string& directory)>;

struct DetectedGroups {
  ControlGroupLayout layout;
  // Why a bound has no group, for a person.
  std::map<Limit, std::string> missing;
};

// What there is by the texts of /proc/self/mountinfo and /proc/self/cgroup. A controller of version
// 1 wins: it is in one hierarchy only. Of the groups from a hierarchy's root down to this process's
// own the highest is taken that can be written, in version 2 one for all controllers.
DetectedGroups parse_groups(std::string_view mountinfo, std::string_view own_groups,
                            const LookAtGroup& look);

// Of this machine and process. No layout where there are no control groups.
DetectedGroups detect_groups();

// Of this machine.
GroupView look_at_group(const std::string& directory);

// How the groups that are missing are to be had, by the same texts, for root or for another user;
// empty where nothing is missing or nothing is known to help.
Remedy remedy_for_groups(std::string_view mountinfo, std::string_view own_groups,
                         const LookAtGroup& look, uid_t user);
// Of this machine and process.
Remedy remedy_for_groups();

// For a host that wants none.
DetectedGroups no_groups();

// The parts between separators that are not empty.
std::vector<std::string_view> split_parts(std::string_view text, char separator);

}  // namespace casemate::local
