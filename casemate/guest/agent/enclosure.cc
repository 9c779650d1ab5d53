#include "casemate/guest/agent/enclosure.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/enclosed_agent.h"
#include "casemate/guest/agent/enclosure_config.h"
#include "casemate/guest/agent/image_root.h"
#include "casemate/guest/agent/leases.h"
#include "casemate/guest/agent/patient_listener.h"
#include "casemate/guest/agent/seclusion.h"
#include "casemate/guest/stream/host_bridge.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Of this mount namespace alone: what is written for the runtime, and what that keeps. Every Linux
// has the directory; no runtime is installed in it.
constexpr char kPlace[] = "/run";
constexpr std::uint64_t kPlaceBytes = 16 * 1024 * 1024;
constexpr std::uint64_t kPlaceInodes = 256;
constexpr char kMachineId[] = "machine-id";
// This program, as a file: from a memory file that has no path it would not start.
constexpr char kProgram[] = "casemate-guest";
// Of what it says, the end is kept.
constexpr std::size_t kMostSaid = 2048;
constexpr std::size_t kSaidShown = 300;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

// Pipes, because the runtime would write to the beginning of a file.
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) sys::throw_errno("making a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string new_machine_id() {
  std::array<unsigned char, 16> bytes{};
  if (getentropy(bytes.data(), bytes.size()) < 0) sys::throw_errno("making a machine id");
  std::string text;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text + "\n";
}

// The runtime with one container, up to where its agent has greeted.
class RunningContainer {
 public:
  // Throws `std::system_error`, as every method does; with the last words of the runtime where that
  // ended. It has a mount namespace of its own, with what is in this process's now.
  RunningContainer(EnclosureParts& parts, std::vector<UniqueFd> groups) {
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    const pid_t pid = sys::clone_process(CLONE_NEWNS);
    if (pid == 0) {
      become_runtime(parts.command, parts.start.request.id, groups,
                     {in.read.get(), out.write.get(), err.write.get()});
    }
    process_ = sys::open_pid(pid);
    in_ = std::move(in.write);
    out_ = std::move(out.read);
    err_ = std::move(err.read);
    if (fcntl(err_.get(), F_SETFL, O_NONBLOCK) < 0) sys::throw_errno("reading from a pipe");
  }

  // Waits until the agent is ready. Its kernel has to be another than this machine's.
  void meet_agent() {
    const EnclosedGreeting greeting = hear_greeting();
    if (greeting.kernel[0] == '\0' || greeting.kernel == kernel_of_this_process()) {
      sys::throw_error(EPERM,
                       "the runtime says that it brings a kernel of its own, and its containers "
                       "share this machine's");
    }
    if (write(in_.get(), &kEnclosedGo, 1) != 1) sys::throw_errno("telling the container's agent");
    hear_greeting();
  }

  StreamEnd take_stream() { return {std::move(out_), std::move(in_)}; }
  // Readable when the runtime has ended.
  int process() const { return process_.get(); }
  // Readable when the runtime has said something, which `hear` takes. -1 once it was closed.
  int errors() const { return err_.get(); }

  void hear() {
    std::array<char, 1024> part{};
    const ssize_t count = read(err_.get(), part.data(), part.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      err_.reset();
      return;
    }
    said_.append(part.data(), static_cast<std::size_t>(count));
    if (said_.size() > kMostSaid) said_.erase(0, said_.size() - kMostSaid);
  }

 private:
  struct Streams {
    int in;
    int out;
    int err;
  };

  [[noreturn]] static void become_runtime(std::vector<std::string> words, const char* id,
                                          const std::vector<UniqueFd>& groups,
                                          const Streams& streams) {
    try {
      for (const UniqueFd& group : groups) {
        if (write(group.get(), "0", 1) != 1) sys::throw_errno("joining a control group");
      }
      // Ignored, it would be so in the runtime, which waits for children of its own.
      signal(SIGCHLD, SIG_DFL);
      signal(SIGPIPE, SIG_DFL);
      // The pipes' numbers are higher than these: 0 to 2 are open in this process.
      if (dup2(streams.in, 0) < 0 || dup2(streams.out, 1) < 0 || dup2(streams.err, 2) < 0) {
        sys::throw_errno("passing descriptors on");
      }
      sys::close_from(3);
      for (const std::string& word : {"--root=" + std::string(kPlace), std::string("run"),
                                      "--bundle=" + std::string(kPlace), std::string(id)}) {
        words.push_back(word);
      }
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
      char* environment[] = {path, nullptr};
      execve(arguments[0], arguments.data(), environment);
      sys::throw_errno("starting " + words[0]);
    } catch (const std::exception& error) {
      dprintf(2, "%s\n", error.what());
    }
    _exit(127);
  }

  EnclosedGreeting hear_greeting() {
    EnclosedGreeting greeting{};
    receive(&greeting, sizeof greeting);
    greeting.text[sizeof greeting.text - 1] = '\0';
    greeting.kernel[sizeof greeting.kernel - 1] = '\0';
    if (!std::ranges::equal(greeting.magic, kEnclosedMagic)) {
      sys::throw_error(EPROTO, "hearing the container's agent");
    }
    if (greeting.error != 0) sys::throw_error(greeting.error, greeting.text);
    return greeting;
  }

  // As long as that takes: whoever asked for the sandbox may give it up.
  void receive(void* data, std::size_t size) {
    char* bytes = static_cast<char*>(data);
    while (size > 0) {
      std::array<pollfd, 2> entries{{{.fd = out_.get(), .events = POLLIN, .revents = 0},
                                     {.fd = err_.get(), .events = POLLIN, .revents = 0}}};
      sys::poll_until(entries, std::nullopt);
      if (entries[1].revents != 0) hear();
      if (entries[0].revents == 0) continue;
      const ssize_t count = read(out_.get(), bytes, size);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail();
      bytes += count;
      size -= static_cast<std::size_t>(count);
    }
  }

  [[noreturn]] void fail() {
    while (err_) {
      std::array<pollfd, 1> entry{pollfd{.fd = err_.get(), .events = POLLIN, .revents = 0}};
      sys::poll_until(entry, std::nullopt);
      hear();
    }
    while (said_.ends_with('\n')) said_.pop_back();
    std::string last = said_.substr(said_.rfind('\n') + 1);
    for (char& byte : last) {
      if (byte < ' ' || byte > '~') byte = ' ';
    }
    if (last.size() > kSaidShown) last.erase(0, last.size() - kSaidShown);
    if (last.empty()) last = "the container's runtime failed and did not say why";
    sys::throw_error(EREMOTEIO, last);
  }

  UniqueFd process_;
  UniqueFd in_;
  UniqueFd out_;
  UniqueFd err_;
  std::string said_;
};

// What an event beside the stream's is about.
enum class Subject : std::uint64_t { agent_socket, leases, errors, runtime };

class EnclosureBridge final : public HostBridge {
 public:
  EnclosureBridge(RunningContainer& container, int agent_socket, Leases& leases)
      : HostBridge(container.take_stream(), {.directory = kSeclusionSockets}),
        container_(container),
        agent_socket_(agent_socket),
        leases_(leases),
        events_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_) sys::throw_errno("making an epoll set");
    await(container.process(), Subject::runtime);
    if (container.errors() >= 0) await(container.errors(), Subject::errors);
    wake_by(events_.get());
  }

  // Until connections can be carried. Throws `std::system_error` when there will be none.
  void await_ready() {
    while (!ready_) {
      if (over_ || !turn()) sys::throw_error(ESRCH, "waiting for the container's agent");
    }
  }

  // Takes connections. Returns when the sandbox shall end.
  void run(const std::function<void()>& listening) {
    leases_.start_listening();
    sys::start_listening(agent_socket_);
    listener_.emplace(agent_socket_, events_.get(),
                      static_cast<std::uint64_t>(Subject::agent_socket));
    await(leases_.fd(), Subject::leases);
    listening();
    while (!over_ && turn()) {
    }
  }

 private:
  void ready() override { ready_ = true; }

  void await(int descriptor, Subject subject) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<std::uint64_t>(subject);
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) < 0) {
      sys::throw_errno("waiting for a descriptor");
    }
  }

  // What is ready once: what still is comes in the next turn, with what the stream has.
  void woken() override {
    std::array<epoll_event, 4> ready{};
    const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    for (int i = 0; i < count; ++i) {
      handle(static_cast<Subject>(ready[static_cast<std::size_t>(i)].data.u64));
    }
  }

  void handle(Subject subject) {
    switch (subject) {
      case Subject::agent_socket: {
        UniqueFd connection = listener_->accept(sys::Blocking::no);
        if (connection) add_control(std::move(connection));
        break;
      }
      case Subject::leases:
        leases_.handle();
        over_ |= leases_.over();
        break;
      case Subject::errors:
        // Taken, so that nobody waits for room in the pipe.
        container_.hear();
        break;
      case Subject::runtime:
        over_ = true;
        break;
    }
  }

  RunningContainer& container_;
  int agent_socket_;
  Leases& leases_;
  UniqueFd events_;
  std::optional<PatientListener> listener_;
  bool ready_ = false;
  bool over_ = false;
};

void report(int status, int error, const char* text) {
  AgentReport answer{};
  answer.error = error;
  std::snprintf(answer.text, sizeof answer.text, "%s", text);
  static_cast<void>(sys::try_send_value(status, answer));
}

void close_others(const EnclosureParts& parts, const std::vector<UniqueFd>& groups) {
  std::vector<int> kept{0,
                        1,
                        2,
                        parts.status.get(),
                        parts.keeper.get(),
                        parts.start.agent_socket.get(),
                        parts.start.lease_socket.get(),
                        parts.start.first_lease.get()};
  if (parts.start.image) kept.push_back(parts.start.image.get());
  for (const UniqueFd& group : groups) kept.push_back(group.get());
  sys::close_all_except(kept);
}

void copy_program(int place) {
  const UniqueFd from = sys::open_at(AT_FDCWD, "/proc/self/exe", O_RDONLY);
  const UniqueFd to = sys::open_at(place, kProgram, O_WRONLY | O_CREAT | O_EXCL, 0555);
  ssize_t count = 0;
  while ((count = sendfile(to.get(), from.get(), nullptr, kPlaceBytes)) > 0) {
  }
  if (count < 0) sys::throw_errno("copying the guest program");
}

// Its own view of the processes, and a place for what the runtime is told and keeps.
void furnish(const EnclosureParts& parts) {
  const CreateSandbox& request = parts.start.request;
  sys::make_all_slave();
  sys::attach(sys::make_proc().get(), AT_FDCWD, "/proc");
  const UniqueFd place =
      sys::make_tmpfs({.size = kPlaceBytes, .inodes = kPlaceInodes, .mode = 0700}, {});
  copy_program(place.get());
  sys::write_file_at(place.get(), kMachineId, new_machine_id(), 0444);
  const EnclosedPlan plan{.work_dir = request.work_dir,
                          .open_files = request.open_files,
                          .processes = request.processes,
                          .cpu_seconds = request.cpu_seconds,
                          .directory_bytes = request.disk_bytes / 8};
  const EnclosureFiles files{.root = kContainerTemplate,
                             .program = std::string(kPlace) + "/" + kProgram,
                             .machine_id = std::string(kPlace) + "/" + kMachineId};
  sys::write_file_at(place.get(), kContainerConfigName, enclosure_config(request, plan, files),
                     0600);
  sys::attach(place.get(), AT_FDCWD, kPlace);
}

RunningContainer start_container(EnclosureParts& parts, std::vector<UniqueFd> groups) {
  std::optional<ImageTemplate> image;
  if (parts.start.image) {
    image.emplace(*parts.root, parts.start.image.get(), parts.start.request.work_dir);
    keep_apart(parts.start.image.get());
    parts.start.image.reset();
  }
  return RunningContainer(parts, std::move(groups));
}

}  // namespace

void run_enclosure(EnclosureParts parts) noexcept {
  const int status = parts.status.get();
  bool ready = false;
  try {
    std::vector<UniqueFd> groups = std::move(parts.start.groups);
    const std::size_t bounded = parts.start.request.bounded_groups;
    std::vector<UniqueFd> of_container;
    while (of_container.size() < bounded && !groups.empty()) {
      of_container.push_back(std::move(groups.back()));
      groups.pop_back();
    }
    for (const UniqueFd& group : groups) {
      if (write(group.get(), "0", 1) != 1) sys::throw_errno("joining the agent's control group");
    }
    groups.clear();
    close_others(parts, of_container);
    sys::die_with_parent(parts.keeper.get());
    sys::make_undumpable();
    prctl(PR_SET_NAME, "casemate-enclosure");
    signal(SIGPIPE, SIG_IGN);
    // What the runtime leaves is reaped by nobody else.
    signal(SIGCHLD, SIG_IGN);
    umask(0);
    furnish(parts);
    Leases leases(std::move(parts.start.lease_socket), std::move(parts.start.first_lease),
                  parts.start.request.keep_idle_ms);
    RunningContainer container = start_container(parts, std::move(of_container));
    // Nothing of the guest's was heard yet.
    seclude(parts.user, parts.group);
    sys::die_with_parent(parts.keeper.get());
    parts.keeper.reset();
    container.meet_agent();
    EnclosureBridge bridge(container, parts.start.agent_socket.get(), leases);
    bridge.await_ready();
    bridge.run([&] {
      report(status, 0, "");
      parts.status.reset();
      ready = true;
    });
    _exit(0);
  } catch (const std::system_error& error) {
    if (!ready) report(status, error.code().value(), error.what());
  } catch (const std::exception& error) {
    if (!ready) report(status, EIO, error.what());
  }
  _exit(1);
}

}  // namespace casemate::guest
