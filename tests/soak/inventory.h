#pragma once

// What there is of all that a sandbox is made of and that could be left behind, but for processes,
// which a child subreaper simply waits for, and control groups, which are found by a sandbox's id.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace casemate::soak {

// Each entry as a person reads it, with what tells it from another of the same name: sockets by
// inode, mounts by number.
using Inventory = std::set<std::string>;

// Where namespaces are this program's own, whatever is in them counts; in those of the machine
// what is below the directories, and of sockets of the Internet this user's.
enum class Namespaces { own, shared };

// Everything below the directories, but what is in one that is called `locks`: a lock file is never
// deleted, because two owners of one name must meet.
Inventory files_below(const std::vector<std::filesystem::path>& directories);

// Of this mount namespace.
Inventory mounts(Namespaces namespaces, const std::vector<std::filesystem::path>& directories);

// Of this network namespace: Unix, TCP, UDP, raw, packet and netlink sockets, those on their way in
// a message that nobody has received too. Not those that no program can have any more and which the
// kernel forgets by itself (TCP's TIME_WAIT, and what it still sends of a closed one), and none of
// another namespace: a sandbox's lingers in kernel memory for a minute.
Inventory sockets(Namespaces namespaces, const std::vector<std::filesystem::path>& directories);

// Of this process.
Inventory descriptors();

// All of them.
Inventory take_inventory(Namespaces namespaces,
                         const std::vector<std::filesystem::path>& directories);

// A line for each entry that is in one of them only, but for a mount that is gone: one that this
// namespace was born with goes when somebody elsewhere removes what it is on. Empty without any.
std::string differences(const Inventory& before, const Inventory& after);

}  // namespace casemate::soak
