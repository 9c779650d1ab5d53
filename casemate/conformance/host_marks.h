#pragma once

// Things of the host's that a sandbox must not show, and how to know them.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "casemate/sys/tcp.h"
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
  const std::string& directory() const { return directory_; }
  // What lies in the directory now, sorted, with blanks between.
  std::string names() const;
  // What is in it.
  const std::string& mark() const { return mark_; }

 private:
  std::string mark_;
  std::string directory_;
};

// SHA-256 of files of this host's that hold secrets, as far as this process can read them.
std::map<std::string, std::string> host_digests();

// A process of this one's that waits and does nothing; ends with the object. What a probe may touch
// of the host's processes. Throws `SandboxUnavailable`.
class Bystander {
 public:
  Bystander();
  ~Bystander();
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  // As this process sees it.
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// What the link /proc/self/ns/KIND of this process says ("pid:[4026531836]"); empty where it cannot
// be read.
std::string own_namespace(const std::string& kind);

// The command line of this process, in hex.
std::string host_command_in_hex();

// Variables of this process, less those that a sandbox has by itself.
std::map<std::string, std::string> host_environment();

// Listens at a path in the file system of the host's, where every user there may connect. Throws
// `SandboxUnavailable`, `std::system_error`.
class PathListener {
 public:
  PathListener();
  std::string path() const { return place_.directory() + "/socket"; }

 private:
  HostFile place_;
  sys::UniqueFd socket_;
};

// Takes connections and datagrams on the host's loopback, both at one port. Throws
// `std::system_error`.
class LoopbackService {
 public:
  LoopbackService();
  std::uint16_t port() const { return listener_.port; }
  // Whether a datagram came.
  bool has_datagram() const;

 private:
  sys::LoopbackListener listener_;
  sys::UniqueFd datagrams_;
};

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
