#pragma once

// What shows how strong a boundary is: facts that a program sees from inside, and that this host
// sees of the place's first process from outside. What hostile programs can do to the boundary is
// another matter: for that there are the probes of isolation.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/vocabulary.h"

namespace casemate::conformance {

// Of one process, as /proc tells them. What could not be read is absent. Of a guest: its word.
struct PlaceFacts {
  // "net" -> "net:[4026531840]".
  std::map<std::string, std::string> namespaces{};
  // "CapEff" -> "0000000000000000": the five sets.
  std::map<std::string, std::string> capabilities{};
  // "1" when a set-user-id program gives nothing; "2" when a system call filter is installed.
  std::string no_new_privs{};
  std::string seccomp{};
  // A line an entry: "0 1000 1".
  std::vector<std::string> uid_map{};
  // What the root directory is: device and directory on it ("0:45 /").
  std::string root{};
  std::set<std::string> interfaces{};
  // Release and version of the kernel, and the random id of its boot.
  std::string kernel{};
  std::string boot{};
  // It has a virtual machine of the kernel's open. Seen from outside only.
  bool has_virtual_machine = false;
  friend bool operator==(const PlaceFacts&, const PlaceFacts&) = default;
};

// The three sides that are compared.
struct Evidence {
  // Of a program in the place; empty where none can be run.
  PlaceFacts inside{};
  // Of the place's first process; absent where the provider cannot tell it (`first_process`).
  std::optional<PlaceFacts> outside{};
  // Of this process.
  PlaceFacts host{};
};

// Prints, run by a shell inside, what `parse_facts` reads.
extern const char kTellFacts[];

// Reads lines of /proc/PID/status and of kTellFacts; what is neither is passed over. Never throws
// for what a guest printed.
PlaceFacts parse_facts(std::string_view text);

// Of a process of this host, as far as this one may look at it; "self" or a number.
PlaceFacts facts_of_process(const std::string& process);

// Runs a shell in the call, unless it is null, and looks at the sandbox's first process.
Evidence gather_evidence(const Sandbox& sandbox, Call* call, const CallControl& control);

// What the rung demands and the evidence does not show, in words; empty when the claim is shown.
// docs/threat-model.md has the table. What is seen from outside counts only as far as this process
// may look, and then against the claim, too.
std::vector<std::string> lacking_evidence(Isolation rung, const Evidence& evidence);

// What no rung demands, is good to have, and is not seen from inside.
std::vector<std::string> lacking_hardening(const Evidence& evidence);

}  // namespace casemate::conformance
