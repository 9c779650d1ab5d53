#pragma once

// Things of the host's that a sandbox must not show, and how to know them.

#include <map>
#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::conformance {

// 24 hex digits that nobody can guess.
std::string fresh_mark();

// A file in a directory of its own below the temporary directory, that every user may read; gone
// with the object. Throws `SandboxUnavailable`.
class HostFile {
 public:
  HostFile();
  ~HostFile();
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;

  std::string path() const { return directory_ + "/mark"; }
  // What is in it.
  const std::string& mark() const { return mark_; }

 private:
  std::string mark_;
  std::string directory_;
};

// SHA-256 of files of this host's that hold secrets, as far as this process can read them.
std::map<std::string, std::string> host_digests();

// The command line of this process, in hex.
std::string host_command_in_hex();

// Variables of this process, less those that a sandbox has by itself.
std::map<std::string, std::string> host_environment();

// Listens in the host's network namespace at a name that no path leads to. Throws
// `std::system_error`.
class AbstractListener {
 public:
  AbstractListener();
  // Without the NUL in front.
  std::string name() const { return name_.substr(1); }

 private:
  sys::UniqueFd socket_;
  std::string name_;
};

}  // namespace casemate::conformance
