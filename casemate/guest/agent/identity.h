#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/agent/keeper_messages.h"

namespace casemate::guest {

// The inverse of `encode`; absent for every other text, and for ranges that hold no pair.
std::optional<SubordinateIds> decode_subordinate_ids(std::string_view text);

// The ids that a sandbox may be given, out of the text of the keeper's own uid_map or gid_map: a
// part of its largest extent that people, services and other tools hardly use. Never id 0. Absent
// where there are no two.
std::optional<IdRange> spare_ids(std::string_view map);

// The ids of one sandbox, as numbers of the keeper's user namespace.
struct SandboxIds {
  // Absent: the keeper has one id only, its 0, and the sandbox's programs and its own processes
  // have it both. Else the agent's; the program's is the next.
  std::optional<std::uint32_t> first_user;
  std::optional<std::uint32_t> first_group;

  bool one() const { return !first_user; }
  // What is written to uid_map and gid_map of the sandbox's user namespace.
  std::string user_map() const;
  std::string group_map() const;
};

// What the keeper is, and what it may make sandboxes of. The machine's root, or a container's, has
// all the ids it sees. Anybody else becomes root of a user namespace of its own first, with a
// subordinate range where the machine gives one, and else with one id.
//
// One id means that a sandbox's own processes and its programs have the same; what keeps them apart
// is that programs have no capabilities, that the others are not dumpable, and pid namespaces.
class KeeperIdentity {
 public:
  // In the keeper, single-threaded, before it has made anything. Throws `std::system_error` naming
  // the step; then nothing but an end is left.
  explicit KeeperIdentity(const std::optional<SubordinateIds>& subordinate);

  // Different ones each time, at random: what the kernel counts by user is then counted by sandbox.
  // Two sandboxes that meet share those counters only.
  SandboxIds pick() const;

  // Whether it is root without a user namespace of its own.
  bool is_root_here() const { return is_root_here_; }

  // Whether the groups of the application can be dropped: not where its user has one group id.
  bool drops_groups() const { return drops_groups_; }

  // For a person: "ids of its own", or "one user id" with the reason why no more.
  const std::string& description() const { return description_; }

 private:
  std::optional<IdRange> users_;
  std::optional<IdRange> groups_;
  bool drops_groups_ = false;
  bool is_root_here_ = true;
  std::string description_;
};

}  // namespace casemate::guest
