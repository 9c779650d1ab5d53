#include "casemate/guest/machine/machine_init.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/keeper.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/agent/serve_stream.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/guest/machine/machine_boot.h"
#include "casemate/guest/machine/machine_messages.h"
#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// As the host's published directory is called, so that the keeper takes the sandbox for one that
// somebody may have found.
constexpr char kSandboxDirectory[] = "/run/sandboxes/0";
// While nobody is at the other end of a port a read gives nothing at once, and there is no event
// for somebody's coming.
constexpr timespec kPortPause{.tv_sec = 0, .tv_nsec = 1000000};

void read_all(int port, void* data, std::size_t size) {
  char* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = read(port, bytes, size);
    if (count < 0 && errno != EINTR && errno != EAGAIN) sys::throw_errno("reading from the host");
    if (count <= 0) {
      nanosleep(&kPortPause, nullptr);
      continue;
    }
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
}

template <typename Message>
void say(int port, int error, const char* text) {
  Message message{};
  message.magic = kMachineMagic;
  message.error = error;
  std::snprintf(message.text, sizeof message.text, "%s", text);
  sys::write_all(port, {reinterpret_cast<const char*>(&message), sizeof message},
                 "writing to the host");
}

// The keeper, ready to make a sandbox, with this process as its host.
UniqueFd start_keeper() {
  auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
  if (sys::clone_process(0) == 0) {
    ours.reset();
    const int kept[] = {0, 1, 2, keepers.get()};
    sys::close_all_except(kept);
    // It makes one sandbox, of an image.
    _exit(run_keeper(std::move(keepers),
                     [] { return make_clone_starter(std::nullopt, Spares::none); }));
  }
  return std::move(ours);
}

// The sandbox as the host asks for it. Returns the lease that keeps it.
UniqueFd make_sandbox(int keeper, const MachineStart& start) {
  sys::make_directory_at(AT_FDCWD, "/run/sandboxes", 0700);
  sys::make_directory_at(AT_FDCWD, kSandboxDirectory, 0700);
  const UniqueFd directory = sys::open_at(AT_FDCWD, kSandboxDirectory, O_PATH | O_DIRECTORY);
  const UniqueFd image = sys::open_at(AT_FDCWD, kImageDirectory, O_RDONLY | O_DIRECTORY);
  auto [lease, sandboxes_end] = sys::socket_pair(sys::SocketType::stream);
  CreateSandbox request = start.sandbox;
  request.number = 1;
  request.control_groups = 0;
  request.bounded_groups = 0;
  request.has_image = 1;
  request.keep_idle_ms = 0;
  std::snprintf(request.id, sizeof request.id, "sandbox");
  const MachineGroups groups =
      make_machine_groups(start.memory_bytes, request.processes, start.cpu_millis);
  // The group counts them.
  request.processes = 0;
  request.has_program_group = 1;
  const int descriptors[] = {directory.get(),
                             sandboxes_end.get(),
                             image.get(),
                             groups.agent.get(),
                             groups.programs.members.get(),
                             groups.programs.memory_events.get(),
                             groups.programs.fork_events.get()};
  sys::send_message(keeper, {reinterpret_cast<const char*>(&request), sizeof request}, descriptors,
                    sys::Blocking::yes);
  KeeperAnswer answer{};
  const sys::ReceivedMessage message = sys::receive_message(
      keeper, {reinterpret_cast<char*>(&answer), sizeof answer}, sys::Blocking::yes);
  if (message.bytes != sizeof answer) sys::throw_error(EPROTO, "hearing from the keeper");
  answer.text[sizeof answer.text - 1] = '\0';
  if (answer.error != 0) sys::throw_error(answer.error, answer.text);
  return std::move(lease);
}

UniqueFd connect_to_agent() {
  return sys::connect_to_address(std::string(kSandboxDirectory) + "/" + kAgentSocketName);
}

void get_ready() {
  mount_kernel_file_systems();
  load_modules();
  wait_for_device(kImageDevice);
  enter_machine_root();
  wait_for_device(kStreamDevice);
}

// To the console, which the host shows where nothing came over the port.
void report_to_console(const char* text) {
  const UniqueFd console(open("/dev/console", O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (console) dprintf(console.get(), "casemate: %s\n", text);
}

void serve() {
  // Before the rest, so that what fails there can be said to the host.
  const UniqueFd keeper = start_keeper();
  // What is left to the first process is nobody's business here.
  signal(SIGCHLD, SIG_IGN);
  UniqueFd port = sys::open_at(AT_FDCWD, kStreamDevice, O_RDWR);
  say<MachineReady>(port.get(), 0, "");
  // Here a machine may have been saved, and each that is restored goes on.
  MachineStart start{};
  read_all(port.get(), &start, sizeof start);
  try {
    if (start.magic != kMachineMagic) sys::throw_error(EPROTO, "understanding the host");
    set_randomness_and_clock(start);
    const UniqueFd lease = make_sandbox(keeper.get(), start);
    explicit_bzero(&start, sizeof start);
    say<MachineStarted>(port.get(), 0, "");
    serve_stream(StreamEnd::of(std::move(port)), connect_to_agent);
  } catch (const std::system_error& error) {
    if (port) say<MachineStarted>(port.get(), error.code().value(), error.what());
    throw;
  }
}

}  // namespace

void run_machine() noexcept {
  umask(0);
  try {
    get_ready();
    serve();
  } catch (const std::exception& error) {
    report_to_console(error.what());
  }
  // The host ends the hypervisor when its machine asks to start again.
  reboot(RB_AUTOBOOT);
  _exit(1);
}

}  // namespace casemate::guest
