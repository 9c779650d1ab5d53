#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/diagnosis.h"

namespace casemate::local {

// The largest range that the text of /etc/subuid or /etc/subgid ("NAME:FIRST:COUNT" lines, NAME may
// be the number) gives the user. Absent where none holds two ids. Malformed lines are passed over,
// as newuidmap does.
std::optional<guest::IdRange> largest_range(std::string_view text, std::string_view name,
                                            uid_t user);

// What this machine gives the user of this process. Absent for root, who needs none, and where
// there is no range of users or none of groups. Never throws.
std::optional<guest::SubordinateIds> subordinate_ids() noexcept;

// Whether the text of a uid_map or gid_map has two ids in a row beside 0.
bool maps_ids_to_spare(std::string_view map);

// How this user gets more ids than one. Absent where it was given them, as root mostly is; that
// they can be used is only seen by a keeper that does.
std::optional<Remedy> remedy_for_one_id();

// The name of that user; empty where it has no entry anywhere.
std::string name_of_user(uid_t user);

// So many ids from here on are in no line of the text and above those that tools give out by
// themselves.
std::uint32_t first_free_id(std::string_view text);

}  // namespace casemate::local
