// A guest program over plain directories, below ROOT/workspace. It draws no boundary of its own: to
// be started within one, and in tests (as plain_guest).
//
//   casemate-place-guest ROOT           serves one call on descriptor 3 and ends with it
//   casemate-place-guest ROOT stream    serves the multiplexed stream on its standard input and
//                                       output, a process for each call, until the stream ends

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "casemate/guest/agent/plain_place.h"
#include "casemate/guest/agent/serve_call.h"
#include "casemate/guest/agent/serve_stream.h"
#include "casemate/sys/error.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace {

using namespace casemate::guest;
using casemate::sys::UniqueFd;

// A call in a process of its own, a child of this one. What has ended is reaped at the next.
UniqueFd start_call(PlainPlace& place) {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  auto [near, far] = casemate::sys::socket_pair(casemate::sys::SocketType::stream);
  const pid_t pid = fork();
  if (pid < 0) casemate::sys::throw_errno("cloning a call");
  if (pid == 0) {
    // Not those that the stream came by: they are this program's own.
    const std::array kept{far.get()};
    casemate::sys::close_all_except(kept);
    _exit(serve_call(std::move(far), place));
  }
  return std::move(near);
}

int serve_stream_of(PlainPlace& place) {
  static_cast<void>(std::signal(SIGCHLD, SIG_DFL));
  const int status =
      serve_stream({UniqueFd(0), UniqueFd(1)}, [&place] { return start_call(place); });
  // Every call has lost its connection, and ends.
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::strcmp(argv[2], "stream") == 0) {
    PlainPlace place(argv[1]);
    _exit(serve_stream_of(place));
  }
  if (argc != 2) return 2;
  PlainPlace place(argv[1]);
  _exit(serve_call(UniqueFd(3), place));
} catch (const std::exception& error) {
  std::fprintf(stderr, "casemate-place-guest: %s\n", error.what());
  return 2;
}
