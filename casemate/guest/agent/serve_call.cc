#include "casemate/guest/agent/serve_call.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/cpu_budget_meter.h"
#include "casemate/guest/agent/exec_init.h"
#include "casemate/guest/agent/file_server.h"
#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/agent/run_doors.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::SteadyTime;

constexpr std::size_t kMaxGroups = 8;
// Attached connections at a time; beyond, the new one is told so.
constexpr std::size_t kMaxChildren = 256;
// A child that SIGKILL does not end in this time hangs in the kernel: its end is not known.
constexpr auto kReapPatience = std::chrono::seconds(8);

// Empty where the kernel has no descriptors for processes (gVisor's).
sys::UniqueFd open_pidfd(pid_t pid) {
  sys::UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd && errno != ENOSYS) sys::throw_errno("pidfd_open");
  return fd;
}

// There, a pipe instead of it: readable once the process that alone has the other end has ended.
struct Lifeline {
  sys::UniqueFd watched;
  sys::UniqueFd held;
};

Lifeline make_lifeline() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) sys::throw_errno("pipe2");
  return {sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

// Descriptors 0, 1 and 2 exist, so that no pipe of a program can get their numbers.
void fill_standard_descriptors() {
  while (true) {
    sys::UniqueFd fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!fd) sys::throw_errno("/dev/null");
    if (fd.get() > 2) return;
    static_cast<void>(fd.release());
  }
}

struct Child {
  pid_t pid = -1;
  sys::UniqueFd alive;
  bool stays = false;
};

class CallProcess {
 public:
  CallProcess(sys::UniqueFd control, Place& place)
      : place_(place),
        control_(std::move(control)),
        reader_(control_.get()),
        writer_(control_.get()) {}

  int run() {
    fill_standard_descriptors();
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    static_cast<void>(std::signal(SIGCHLD, SIG_DFL));
    self_ = open_pidfd(getpid());
    if (!self_) {
      Lifeline own = make_lifeline();
      self_ = std::move(own.watched);
      lifeline_ = std::move(own.held);
    }
    if (!open()) return 1;
    const End end = serve();
    bool known = end_children();
    const bool some_stay = !children_.empty();
    if (!some_stay) known = remove_scope() && known;
    if (end == End::asked) {
      answer(FrameType::call_closed, encode(CallClosed{known}));
      // The kernel may have put the host, who waits for that, behind this process on its processor.
      sched_yield();
    }
    if (some_stay) {
      control_.reset();
      while (!children_.empty()) wait_for_something();
      known = remove_scope() && known;
    }
    return known ? 0 : 1;
  }

 private:
  enum class End { asked, closed };

  void answer(FrameType type, std::string_view payload) {
    writer_.put(wire(type), payload);
    await_flush(control_.get(), writer_);
  }

  bool open() {
    CallOpened opened;
    try {
      std::optional<Frame> frame = await_frame(control_.get(), reader_);
      if (!frame) return false;
      if (!is(*frame, FrameType::open_call)) throw ProtocolError("no open_call");
      if (decode_version(frame->payload) != kProtocolVersion) {
        answer(FrameType::failed, encode(Failure{FailureReason::no_resources, EPROTO,
                                                 "the guest speaks another protocol version"}));
        return false;
      }
      OpenCall request = decode_open_call(frame->payload);
      groups_ = std::move(frame->descriptors);
      sys::UniqueFd egress = take_socket(request.egress);
      sys::UniqueFd host_tools = take_socket(request.host_tools);
      if (request.cpu_limit_ns != 0) {
        if (groups_.empty()) throw ProtocolError("a bound without its counter");
        budget_.emplace(std::move(groups_.back()), request.cpu_limit_ns, request.cpu_share_millis);
        groups_.pop_back();
      }
      if (groups_.size() > kMaxGroups) throw ProtocolError("too many accounting groups");
      const bool has_sockets = host_tools || egress;
      place_.open_call_scope(request.id, has_sockets ? HostSockets::yes : HostSockets::no);
      id_ = request.id;
      if (host_tools) {
        opened.host_tools = place_.socket_directory(id_) + "/host-tools.sock";
        sys::bind_to_path(std::exchange(host_tools, {}).get(), opened.host_tools);
      }
      if (egress) {
        const std::string path = place_.socket_directory(id_) + "/egress.sock";
        sys::bind_to_path(std::exchange(egress, {}).get(), path);
        // The socket is closed here: the process that is made now shall not have it.
        opened.proxy_port = open_doors(std::move(request.door_rules), path);
      }
      if (has_sockets) place_.seal_sockets();
    } catch (const std::system_error& error) {
      end_children();
      if (!id_.empty()) place_.close_call_scope(id_);
      answer(FrameType::failed,
             encode(Failure{FailureReason::no_resources, error.code().value(), error.what()}));
      return false;
    } catch (const ProtocolError&) {
      return false;
    }
    answer(FrameType::call_opened, encode(opened));
    return true;
  }

  // The network of the call, and the process that serves its doors. Returns the proxy's port.
  std::uint16_t open_doors(std::vector<EgressDoorRule> rules, const std::string& host_path) {
    std::vector<std::string> addresses;
    for (const EgressDoorRule& rule : rules) {
      const bool literal =
          rule.form == EgressDoorRule::Form::ipv4 || rule.form == EgressDoorRule::Form::ipv6;
      if (literal) addresses.push_back(rule.host);
    }
    place_.enter_call_network(addresses);
    Doors doors({.rules = std::move(rules), .host_path = host_path});
    sys::UniqueFd alive;
    const pid_t pid = clone_child(/*exec=*/true, alive);
    if (pid < 0) sys::throw_errno("cloning the doors");
    if (pid == 0) {
      control_.reset();
      budget_.reset();
      std::vector<int> groups;
      for (const sys::UniqueFd& group : groups_) groups.push_back(group.get());
      _exit(run_doors(doors, groups, std::move(self_), place_));
    }
    keep_child(pid, std::move(alive), /*stays=*/false);
    return doors.proxy_port();
  }

  // As fork, with errno. Where it takes a lifeline to see the child's end, `alive` is that; the
  // child keeps its own end of it, and no other's, until it ends.
  pid_t clone_child(bool exec, sys::UniqueFd& alive) {
    Lifeline line;
    try {
      if (lifeline_) line = make_lifeline();
    } catch (const std::system_error& error) {
      errno = error.code().value();
      return -1;
    }
    const pid_t pid = exec ? place_.clone_exec_init() : fork();
    if (pid == 0) {
      lifeline_ = std::move(line.held);
    } else {
      alive = std::move(line.watched);
    }
    return pid;
  }

  void keep_child(pid_t pid, sys::UniqueFd alive, bool stays) {
    try {
      if (!alive) alive = open_pidfd(pid);
      children_.push_back({pid, std::move(alive), stays});
    } catch (...) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      throw;
    }
  }

  // The last of the descriptors that came, when there is to be one. Nothing listens on it here:
  // once it is bound, the host does, and what connects is connected to the host.
  sys::UniqueFd take_socket(bool expected) {
    sys::UniqueFd socket;
    if (expected) {
      if (groups_.empty()) throw ProtocolError("a socket was announced and not sent");
      socket = std::move(groups_.back());
      groups_.pop_back();
    }
    return socket;
  }

  // Until the host asks for the end or is gone; a host that breaks the protocol counts as gone.
  End serve() try {
    while (true) {
      while (std::optional<Frame> frame = reader_.next()) {
        if (is(*frame, FrameType::close_call)) {
          expect_empty(*frame);
          return End::asked;
        }
        if (closes_after_) throw ProtocolError("a request of a call that is being closed");
        if (is(*frame, FrameType::close_after)) {
          expect_empty(*frame);
          closes_after_ = true;
          continue;
        }
        if (!is(*frame, FrameType::attach)) throw ProtocolError("no request of a control stream");
        const AttachKind kind = decode_attach(frame->payload);
        const std::size_t most = kind == AttachKind::resident ? 2 : 1;
        if (frame->descriptors.empty() || frame->descriptors.size() > most) {
          throw ProtocolError("attach carries one descriptor, a resident's a second");
        }
        // A second one, the mark of a busy sandbox, stays open in the child, which has it from
        // here.
        attach(kind, std::move(frame->descriptors.front()));
      }
      if (reader_.closed()) return End::closed;
      if (closes_after_ && children_.empty()) return End::asked;
      wait_for_something();
    }
  } catch (const std::exception&) {
    return End::closed;
  }

  void wait_for_something() {
    std::vector<pollfd> entries{pollfd{control_.get(), POLLIN, 0}};
    for (const Child& child : children_) entries.push_back({child.alive.get(), POLLIN, 0});
    sys::poll_until(entries, std::nullopt);
    std::size_t index = 0;
    std::erase_if(children_, [&](Child& child) {
      return entries[++index].revents != 0 && waitpid(child.pid, nullptr, 0) == child.pid;
    });
  }

  void attach(AttachKind kind, sys::UniqueFd connection) {
    sys::UniqueFd alive;
    const pid_t pid = children_.size() >= kMaxChildren
                          ? (errno = EAGAIN, -1)
                          : clone_child(kind != AttachKind::files, alive);
    if (pid < 0) {
      const Failure failure{FailureReason::no_resources, errno, "cloning"};
      FrameWriter writer(connection.get());
      writer.put(wire(FrameType::failed), encode(failure));
      await_flush(connection.get(), writer);
      return;
    }
    if (pid == 0) {
      // The child holds its own connection and nothing else of the call's.
      control_.reset();
      children_.clear();
      if (kind != AttachKind::files) {
        const Stay stay = kind == AttachKind::resident ? Stay::yes : Stay::no;
        _exit(run_exec_init(std::move(connection), stay, groups_, budget_ ? &*budget_ : nullptr,
                            std::move(self_), place_));
      }
      groups_.clear();
      budget_.reset();
      _exit(serve_files(std::move(connection), std::move(self_), place_));
    }
    keep_child(pid, std::move(alive), kind == AttachKind::resident);
  }

  // Kills and reaps every child but those that stay. True when that is known.
  bool end_children() noexcept {
    std::vector<Child> ending;
    const auto last = std::partition(children_.begin(), children_.end(),
                                     [](const Child& child) { return child.stays; });
    std::move(last, children_.end(), std::back_inserter(ending));
    children_.erase(last, children_.end());
    for (const Child& child : ending) kill(child.pid, SIGKILL);
    const SteadyTime until = SteadyTime::clock::now() + kReapPatience;
    bool known = true;
    for (const Child& child : ending) {
      try {
        std::array<pollfd, 1> entries{pollfd{child.alive.get(), POLLIN, 0}};
        if (sys::poll_until(entries, until) == 0) {
          known = false;
          continue;
        }
      } catch (const std::exception&) {
        known = false;
        continue;
      }
      known = waitpid(child.pid, nullptr, 0) == child.pid && known;
    }
    return known;
  }

  // Once there are no children. True when all of it is known to be gone.
  bool remove_scope() noexcept {
    const bool known = place_.end_leftovers();
    return place_.close_call_scope(id_) && known;
  }

  Place& place_;
  sys::UniqueFd control_;
  FrameReader reader_;
  FrameWriter writer_;
  // Readable by its children when this process has ended; `lifeline_`, where there is one, is held
  // by this process alone.
  sys::UniqueFd self_;
  sys::UniqueFd lifeline_;
  std::vector<sys::UniqueFd> groups_;
  std::optional<CpuBudgetMeter> budget_;
  std::string id_;
  std::vector<Child> children_;
  bool closes_after_ = false;
};

}  // namespace

int serve_call(sys::UniqueFd control, Place& place) noexcept try {
  return CallProcess(std::move(control), place).run();
} catch (const std::exception&) {
  return 1;
}

}  // namespace casemate::guest
