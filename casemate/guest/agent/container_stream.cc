#include "casemate/guest/agent/container_stream.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/serve_stream.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

std::string shared_path(const char* name) { return std::string(kSharedDirectory) + "/" + name; }

// The agent holds the other end once it is ready; until then the open waits.
void await_agent() {
  const std::string path = shared_path(kReadyName);
  if (mkfifo(path.c_str(), 0600) < 0 && errno != EEXIST) sys::throw_errno("making " + path);
  sys::open_at(AT_FDCWD, path.c_str(), O_RDONLY);
}

UniqueFd take_lease(std::uint64_t keep_idle_ms) {
  UniqueFd lease = sys::connect_to_address(shared_path(kLeaseSocketName));
  LeaseRequest request{};
  request.type = kLeaseRequest;
  request.keep_idle_ms = keep_idle_ms;
  char answer = 0;
  if (!sys::try_send_value(lease.get(), request) || read(lease.get(), &answer, 1) != 1 ||
      answer != kLeaseGranted) {
    sys::throw_error(ECONNREFUSED, "taking a lease");
  }
  return lease;
}

}  // namespace

int run_container_stream(std::uint64_t keep_idle_ms) noexcept try {
  sys::close_from(3);
  prctl(PR_SET_NAME, "casemate-stream");
  sys::make_undumpable();
  // A descriptor a connection.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  await_agent();
  const UniqueFd lease = take_lease(keep_idle_ms);
  return serve_stream({UniqueFd(0), UniqueFd(1)},
                      [] { return sys::connect_to_address(shared_path(kAgentSocketName)); });
} catch (const std::exception& error) {
  std::fprintf(stderr, "casemate-guest: %s\n", error.what());
  return 1;
}

}  // namespace casemate::guest
