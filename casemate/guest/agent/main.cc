// The static program that carries every role of the guest. A host starts it as keeper, with one
// seqpacket socket as descriptor 3 and the subordinate ids of its user as argument; the other roles
// are clones of that process. Or, beside an agent, as the end of a multiplexed stream:
// `casemate-guest stream AGENT_SOCKET` with the stream as standard input and output, or
// `casemate-guest stream AGENT_SOCKET PORT` with that of a serial port's file.
// An engine starts it as the first process of a container, with what the host wrote on its command
// line (container_agent.h).

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/keeper.h"
#include "casemate/guest/agent/serve_stream.h"
#include "casemate/sys/error.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace {

using casemate::guest::StreamEnd;
using casemate::guest::SubordinateIds;
using casemate::sys::UniqueFd;

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
  return casemate::guest::run_keeper(UniqueFd(kHostSocket), subordinate);
}

int start_stream(const std::string& agent_socket, const char* port) try {
  casemate::sys::close_from(3);
  prctl(PR_SET_NAME, "casemate-stream");
  casemate::sys::make_undumpable();
  // A descriptor a connection.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  StreamEnd stream;
  if (port == nullptr) {
    stream = {UniqueFd(0), UniqueFd(1)};
  } else {
    UniqueFd file(open(port, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!file) casemate::sys::throw_errno(std::string("opening ") + port);
    stream = StreamEnd::of(std::move(file));
  }
  return casemate::guest::serve_stream(
      std::move(stream), [&] { return casemate::sys::connect_to_address(agent_socket); });
} catch (const std::system_error& error) {
  std::fprintf(stderr, "casemate-guest: %s\n", error.what());
  return 1;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// As `encode(ContainerPlan)` writes them.
std::optional<casemate::guest::ContainerPlan> container_plan(std::span<char*> words) {
  if (words.size() != 4) return std::nullopt;
  const auto files = number(words[1]);
  const auto seconds = number(words[2]);
  const auto idle = number(words[3]);
  if (!files || !seconds || !idle) return std::nullopt;
  return casemate::guest::ContainerPlan{
      .work_dir = words[0], .open_files = *files, .cpu_seconds = *seconds, .keep_idle_ms = *idle};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "keeper") == 0) {
    if (argc == 2) return start_keeper(std::nullopt);
    const auto subordinate = casemate::guest::decode_subordinate_ids(argv[2]);
    if (argc == 3 && subordinate) return start_keeper(subordinate);
  }
  if ((argc == 3 || argc == 4) && std::strcmp(argv[1], "stream") == 0) {
    return start_stream(argv[2], argc == 4 ? argv[3] : nullptr);
  }
  if (argc > 2 && std::strcmp(argv[1], "container") == 0) {
    const auto words = std::span(argv, static_cast<std::size_t>(argc)).subspan(2);
    if (const auto plan = container_plan(words)) return casemate::guest::run_container_agent(*plan);
  }
  std::fputs("casemate-guest: a part of casemate, started by it\n", stderr);
  return 2;
}
