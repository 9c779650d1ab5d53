#include "casemate/guest/agent/enclosed_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <span>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/account_calls.h"
#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/enclosed_mounts.h"
#include "casemate/guest/agent/serve_stream.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

void greet(int error, const char* text) noexcept {
  EnclosedGreeting greeting{};
  std::ranges::copy(kEnclosedMagic, greeting.magic);
  greeting.error = error;
  std::snprintf(greeting.text, sizeof greeting.text, "%s", text);
  try {
    std::snprintf(greeting.kernel, sizeof greeting.kernel, "%s", kernel_of_this_process().c_str());
  } catch (const std::exception&) {
    // Its keeper finds none.
  }
  std::span<const char> rest(reinterpret_cast<const char*>(&greeting), sizeof greeting);
  while (!rest.empty()) {
    const ssize_t count = write(1, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    rest = rest.subspan(static_cast<std::size_t>(count));
  }
}

// The end of the stream in a process of its own: it gives each connection of the host's to the
// agent.
[[noreturn]] void become_stream(UniqueFd agent) {
  int status = 1;
  try {
    const int kept[] = {0, 1, 2, agent.get()};
    sys::close_all_except(kept);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_NAME, "casemate-stream");
    sys::make_undumpable();
    // A descriptor a connection.
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
      files.rlim_cur = files.rlim_max;
      setrlimit(RLIMIT_NOFILE, &files);
    }
    status = serve_stream({UniqueFd(0), UniqueFd(1)}, [&] {
      auto [near, far] = sys::socket_pair(sys::SocketType::stream);
      const int descriptors[] = {far.get()};
      sys::send_message(agent.get(), std::span<const char>("c", 1), descriptors,
                        sys::Blocking::yes);
      return std::move(near);
    });
  } catch (const std::exception&) {
  }
  _exit(status);
}

void close_standard_streams() {
  const UniqueFd null = sys::open_at(AT_FDCWD, "/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) {
    if (dup2(null.get(), standard) < 0) sys::throw_errno("closing the standard streams");
  }
}

// Until the stream's process is gone.
void serve(AccountCalls& calls, int connections) {
  while (true) {
    std::array<pollfd, 2> entries{{{.fd = calls.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = connections, .events = POLLIN, .revents = 0}}};
    sys::poll_until(entries, std::nullopt);
    if (entries[0].revents != 0) calls.reap();
    if (entries[1].revents == 0) continue;
    std::array<char, 1> byte{};
    sys::ReceivedMessage message = sys::receive_message(connections, byte, sys::Blocking::no);
    if (message.would_block) continue;
    if (message.bytes == 0) return;
    if (!message.descriptors.empty()) calls.start(std::move(message.descriptors.front()));
  }
}

}  // namespace

std::string kernel_of_this_process() {
  utsname names{};
  if (uname(&names) < 0) sys::throw_errno("asking for the kernel's version");
  return std::string(names.release) + " " + names.version;
}

int run_enclosed_agent(const EnclosedPlan& plan) noexcept {
  bool greeted = false;
  try {
    greet(0, "");
    char go = 0;
    while (read(0, &go, 1) < 0 && errno == EINTR) {
    }
    if (go != kEnclosedGo) return 1;
    sys::close_from(3);
    sys::make_undumpable();
    prctl(PR_SET_NAME, "casemate-agent");
    umask(0);
    empty_bounding_set();
    remove_devices();
    AccountCalls calls({.work_dir = plan.work_dir,
                        .open_files = plan.open_files,
                        .cpu_seconds = plan.cpu_seconds,
                        .own_kernel = true,
                        .processes = plan.processes,
                        .directory_bytes = plan.directory_bytes});
    auto [ours, streams] = sys::socket_pair(sys::SocketType::seqpacket);
    greet(0, "");
    greeted = true;
    const pid_t stream = fork();
    if (stream < 0) sys::throw_errno("cloning a process");
    if (stream == 0) become_stream(std::move(streams));
    streams.reset();
    close_standard_streams();
    serve(calls, ours.get());
    return 0;
  } catch (const std::system_error& error) {
    if (!greeted) greet(error.code().value(), error.what());
  } catch (const std::exception& error) {
    if (!greeted) greet(EIO, error.what());
  }
  return 1;
}

}  // namespace casemate::guest
