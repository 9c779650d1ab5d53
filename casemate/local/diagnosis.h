#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace casemate::local {

// What would make the backend work here.
struct Remedy {
  // For a person; names the setting or the engine's option.
  std::string hint;
  // The same as a shell command that needs nothing filled in, empty where there is none. It may
  // need root, which the hint says then.
  std::string command;
  friend bool operator==(const Remedy&, const Remedy&) = default;
};

// The same of what this user chose or keeps for Casemate, its state directory: not of something
// that this machine lacks.
struct StateRemedy : Remedy {};

// Debian's package of that name; `options` are apt-get's. The command asks nothing back, and knows
// of packages also where no list of them has been read yet. Where there is no apt-get it is empty,
// and the hint names the package.
Remedy install_package(std::string_view package, std::string_view options = {});

// What of this machine, and of what this process was started in, decides whether namespaces are to
// be had. Read when something failed, never before.
struct HostFacts {
  uid_t user = 0;
  // A system call filter, by whoever started this process.
  bool filtered = false;
  bool chrooted = false;
  // "docker", "podman", "a container" of another engine; empty outside.
  std::string container;
  // The AppArmor profile this process is under, empty for none.
  std::string profile;
  // Of /proc/sys, by their names as sysctl has them; only those that are there.
  std::map<std::string, std::string> settings;
  // Of this user, as RLIMIT_NPROC has it; empty where it is not bounded.
  std::string most_processes;
  // What is mounted over parts of /proc.
  std::vector<std::string> covered;
  // The mounted /proc is there and has this process.
  bool proc = true;

  bool setting_is(const std::string& name, std::string_view value) const;
};

HostFacts look_at_host();

// The mount points over parts of /proc in the text of /proc/self/mountinfo, the last mounted first.
// Those that the kernel itself has an empty place for do not count.
std::vector<std::string> covered_parts(std::string_view mountinfo);
// Whether that text is of a process whose root is no mount.
bool is_chrooted(std::string_view mountinfo);

// `failure` names the step, as `std::system_error`s of the keeper, its agents and its start do.
Remedy remedy_for(std::string_view failure, int error, const HostFacts& facts);

// What to do about a failure that the operator can mend (each sandbox that this process holds costs
// it two descriptors; the state directory may be full, read-only or gone); empty for every other.
std::string provider_hint(const std::system_error& error);

}  // namespace casemate::local
