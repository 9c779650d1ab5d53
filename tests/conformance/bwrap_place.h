#pragma once

// Sandboxes by bwrap of which a test may change any wall, on a real kernel.

#include <linux/filter.h>

#include <memory>
#include <string>
#include <vector>

#include "casemate/core/backend.h"

namespace casemate::conformance_tests {

// The words of a good one. "{root}" in a word is the sandbox's directory on the host.
struct Walls {
  // What bwrap is started by: who it is, and where.
  std::vector<std::string> before{"setpriv", "--reuid",        "65534", "--regid",
                                  "65534",   "--clear-groups", "--"};
  std::vector<std::string> namespaces{"--unshare-user",  "--unshare-pid",
                                      "--unshare-ipc",   "--unshare-net",
                                      "--unshare-uts",   "--unshare-cgroup",
                                      "--hostname",      "sandbox",
                                      "--uid",           "1000",
                                      "--gid",           "1000",
                                      "--disable-userns"};
  std::vector<std::string> capabilities{"--cap-drop", "ALL"};
  // Descriptor 4 is the guest program.
  std::vector<std::string> guest{"--perms", "0555", "--ro-bind-data", "4", "/guest"};
  std::vector<std::string> proc{"--proc", "/proc"};
  // Behind all the other mounts.
  std::vector<std::string> more{};
  std::vector<std::string> first{"--as-pid-1", "--", "/guest", ""};
  // A system call filter for all in it, the guest program too; empty: none.
  std::vector<sock_filter> filter{};
  // Whether each sandbox has a directory of its own on the host.
  bool own_directory = true;
  // Whether a sandbox has another id than the one before it under its key.
  bool own_ids = true;
};

// Declares the rung container, and no bound but on time. For root.
std::shared_ptr<SandboxBackend> bwrap_backend(Walls walls);

// Filters that answer a system call with EPERM, the making of threads with EAGAIN.
std::vector<sock_filter> refuses(unsigned system_call);
std::vector<sock_filter> refuses_threads();

}  // namespace casemate::conformance_tests
