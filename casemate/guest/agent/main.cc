// The static program that carries every role of the guest. A host starts it as keeper, with one
// seqpacket socket as descriptor 3 and the subordinate ids of its user as argument; the other roles
// are clones of that process.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

#include "casemate/guest/agent/keeper.h"
#include "casemate/sys/process.h"
#include "casemate/sys/unique_fd.h"

namespace {

using casemate::guest::SubordinateIds;

constexpr int kHostSocket = 3;

int start_keeper(const std::optional<SubordinateIds>& subordinate) {
  // Twice, so that the keeper is nobody's child: the host may wait for any child of its own, and
  // the one it started has ended before the first answer.
  const pid_t pid = fork();
  if (pid < 0) {
    const std::system_error error(errno, std::generic_category(), "cloning a process");
    casemate::guest::report_no_start(kHostSocket, errno, error.what());
    return 1;
  }
  if (pid > 0) return 0;
  setsid();
  if (chdir("/") < 0) return 1;
  umask(0);
  try {
    casemate::sys::close_from(kHostSocket + 1);
  } catch (const std::system_error& error) {
    casemate::guest::report_no_start(kHostSocket, error.code().value(), error.what());
    return 1;
  }
  return casemate::guest::run_keeper(casemate::sys::UniqueFd(kHostSocket), subordinate);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "keeper") == 0) {
    if (argc == 2) return start_keeper(std::nullopt);
    const auto subordinate = casemate::guest::decode_subordinate_ids(argv[2]);
    if (argc == 3 && subordinate) return start_keeper(subordinate);
  }
  std::fputs("casemate-guest: a part of casemate, started by it\n", stderr);
  return 2;
}
