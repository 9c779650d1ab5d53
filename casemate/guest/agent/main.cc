// The static program that carries every role of the guest:
//
//   keeper [IDS]                          makes sandboxes by cloning itself
//   runtime-keeper [IDS] -- STATE GROUPS SECONDS RUNTIME [OPTION...]
//                                         has an OCI runtime make them: STATE is where that keeps
//                                         its records, GROUPS a `RuntimeGroups` by name,
//                                         SECONDS for one start
//   agent                                 pid 1 of such a container
//   enclosure-keeper -- SECONDS RUNTIME [OPTION...]
//                                         has an OCI runtime make them that brings a kernel of its
//                                         own
//   enclosed WORK_DIR FILES PROCESSES SECONDS BYTES
//                                         pid 1 of such a container (enclosed_agent.h)
//   machine-keeper [IDS]                  makes sandboxes that are virtual machines
//   machine                               pid 1 of such a machine
//   stream AGENT_SOCKET [PORT]            beside an agent, the end of a multiplexed stream: its
//                                         standard input and output, or a serial port's file
//   container WORK_DIR FILES SECONDS IDLE FIRST [KERNEL PROCESSES BYTES]
//                                         the first process of an engine's container, with what the
//                                         host wrote on its command line (container_agent.h)
//   facts WORD                            what kernel runs it, as a line; then waits for the end of
//                                         its input, so that the host can look for it by the word
//   container-stream IDLE                 beside it, for a host that shares nothing with it
//                                         (container_stream.h)
//
// A host starts it as a keeper, with one seqpacket socket as descriptor 3; IDS are the
// subordinate ids of its user. The other roles are clones of that process, or started by the
// runtime.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/container_agent.h"
#include "casemate/guest/agent/container_config.h"
#include "casemate/guest/agent/container_stream.h"
#include "casemate/guest/agent/enclosed_agent.h"
#include "casemate/guest/agent/keeper.h"
#include "casemate/guest/agent/serve_stream.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/guest/machine/machine_init.h"
#include "casemate/guest/machine/machine_starter.h"
#include "casemate/sys/error.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace {

using namespace casemate::guest;

constexpr int kHostSocket = 3;

int start_keeper(const MakeStarter& make_starter) {
  // Twice, so that the keeper is nobody's child: the host may wait for any child of its own, and
  // the one it started has ended before the first answer.
  const pid_t pid = fork();
  if (pid < 0) {
    const std::system_error error(errno, std::generic_category(), "cloning a process");
    report_no_start(kHostSocket, errno, error.what());
    return 1;
  }
  if (pid > 0) return 0;
  setsid();
  if (chdir("/") < 0) return 1;
  umask(0);
  try {
    casemate::sys::close_from(kHostSocket + 1);
  } catch (const std::system_error& error) {
    report_no_start(kHostSocket, error.code().value(), error.what());
    return 1;
  }
  return run_keeper(casemate::sys::UniqueFd(kHostSocket), make_starter);
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
    stream = {casemate::sys::UniqueFd(0), casemate::sys::UniqueFd(1)};
  } else {
    casemate::sys::UniqueFd file(open(port, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!file) casemate::sys::throw_errno(std::string("opening ") + port);
    stream = StreamEnd::of(std::move(file));
  }
  return serve_stream(std::move(stream),
                      [&] { return casemate::sys::connect_to_address(agent_socket); });
} catch (const std::system_error& error) {
  std::fprintf(stderr, "casemate-guest: %s\n", error.what());
  return 1;
}

int tell_facts() try {
  std::printf("%s\n", kernel_of_this_process().c_str());
  std::fflush(stdout);
  char ignored = 0;
  while (read(0, &ignored, 1) > 0) {
  }
  return 0;
} catch (const std::system_error&) {
  return 1;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// As `encode(ContainerPlan)` writes them.
std::optional<ContainerPlan> container_plan(const std::vector<std::string>& words) {
  if (words.size() != 5 && words.size() != 8) return std::nullopt;
  const auto files = number(words[1]);
  const auto seconds = number(words[2]);
  const auto idle = number(words[3]);
  const auto first = number(words[4]);
  if (!files || !seconds || !idle || !first) return std::nullopt;
  ContainerPlan plan{.work_dir = words[0],
                     .open_files = *files,
                     .cpu_seconds = *seconds,
                     .keep_idle_ms = *idle,
                     .first_lease_ms = *first};
  if (words.size() == 5) return plan;
  const auto processes = number(words[6]);
  const auto bytes = number(words[7]);
  if (words[5].empty() || !processes || !bytes) return std::nullopt;
  plan.host_kernel = words[5];
  plan.processes = *processes;
  plan.directory_bytes = *bytes;
  return plan;
}

// As `encode(EnclosedPlan)` writes them.
std::optional<EnclosedPlan> enclosed_plan(const std::vector<std::string>& words) {
  if (words.size() != 5) return std::nullopt;
  const auto files = number(words[1]);
  const auto processes = number(words[2]);
  const auto seconds = number(words[3]);
  const auto bytes = number(words[4]);
  if (!files || !processes || !seconds || !bytes) return std::nullopt;
  return EnclosedPlan{.work_dir = words[0],
                      .open_files = *files,
                      .processes = *processes,
                      .cpu_seconds = *seconds,
                      .directory_bytes = *bytes};
}

std::optional<RuntimeGroups> parse_groups(std::string_view text) {
  if (text == "unnamed") return RuntimeGroups::unnamed;
  if (text == "hidden") return RuntimeGroups::hidden;
  if (text == "own") return RuntimeGroups::own;
  return std::nullopt;
}

// Absent for what no host of this build says.
std::optional<RuntimePlan> parse_runtime(const std::vector<std::string>& words) {
  if (words.size() < 5 || words[0] != "--" || !words[1].starts_with('/')) return std::nullopt;
  const auto groups = parse_groups(words[2]);
  const auto seconds = number(words[3]);
  if (!groups || !seconds || !words[4].starts_with('/')) return std::nullopt;
  return RuntimePlan{.command = {words.begin() + 4, words.end()},
                     .state_directory = words[1],
                     .groups = *groups,
                     .patience = std::chrono::seconds(*seconds)};
}

int run(std::vector<std::string> words) {
  if (words.empty()) return 2;
  const std::string role = words.front();
  words.erase(words.begin());
  if (role == "agent" && words.empty()) {
    run_contained_agent(casemate::sys::UniqueFd(kContainerKeeper));
  }
  if (role == "machine" && getpid() == 1) run_machine();
  if (role == "stream" && (words.size() == 1 || words.size() == 2)) {
    return start_stream(words[0], words.size() == 2 ? words[1].c_str() : nullptr);
  }
  if (role == "container") {
    if (const auto plan = container_plan(words)) return run_container_agent(*plan);
    return 2;
  }
  if (role == "enclosed") {
    if (const auto plan = enclosed_plan(words)) return run_enclosed_agent(*plan);
    return 2;
  }
  if (role == "facts" && words.size() == 1) return tell_facts();
  if (role == "container-stream" && words.size() == 1) {
    if (const auto idle = number(words[0])) return run_container_stream(*idle);
    return 2;
  }
  std::optional<SubordinateIds> subordinate;
  if (!words.empty() && words.front() != "--") {
    subordinate = decode_subordinate_ids(words.front());
    if (!subordinate) return 2;
    words.erase(words.begin());
  }
  if (role == "keeper" && words.empty()) {
    return start_keeper([&] { return make_clone_starter(subordinate, Spares::ahead); });
  }
  if (role == "enclosure-keeper" && words.size() >= 3 && words[0] == "--" &&
      words[2].starts_with('/')) {
    const auto seconds = number(words[1]);
    if (!seconds) return 2;
    words.erase(words.begin(), words.begin() + 2);
    return start_keeper(
        [&] { return make_enclosure_starter(words, std::chrono::seconds(*seconds)); });
  }
  if (role == "machine-keeper" && words.empty()) return start_keeper(make_machine_starter);
  if (role == "runtime-keeper") {
    if (const auto plan = parse_runtime(words)) {
      return start_keeper([&] { return make_runtime_starter(*plan, subordinate); });
    }
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const int status = run({argv + (argc > 0 ? 1 : 0), argv + argc});
  if (status == 2) std::fputs("casemate-guest: a part of casemate, started by it\n", stderr);
  return status;
}
