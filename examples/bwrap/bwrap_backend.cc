#include "examples/bwrap/bwrap_backend.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stop_token>
#include <system_error>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/core/resource_match.h"
#include "casemate/core/spec_match.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace bwrap {

using namespace casemate;
namespace fs = std::filesystem;

namespace {

// Whose processes bwrap's are where this one is root's: `nobody`. Root's files in /proc are
// writable to whoever is root outside, whatever the number inside.
constexpr uid_t kNobody = 65534;

bool is_root() { return geteuid() == 0; }

// Everything that this backend puts around a program. What is not named here is not there.
// Descriptor 4 is the guest program.
std::vector<std::string> bwrap_argv(const fs::path& root) {
  std::vector<std::string> argv;
  if (is_root()) {
    const std::string nobody = std::to_string(kNobody);
    argv = {"setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups", "--"};
  }
  for (const std::string& word : std::vector<std::string>{
           "bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid",
           "1000", "--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox",
           // The machine's programs, read-only, and nothing else of it.
           "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin",
           "/sbin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--perms",
           "0555", "--ro-bind-data", "4", "/guest", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
           "/tmp",
           // What the sandbox keeps between its calls.
           "--bind", root / "workspace", "/workspace", "--bind", root / "home", "/home/user",
           // Process 1 of the place, which no program in it can signal. It serves descriptor 3 and
           // ends with it; the kernel then ends whatever else there is.
           "--as-pid-1", "--", "/guest", ""}) {
    argv.push_back(word);
  }
  return argv;
}

// Starts it with the socket as descriptor 3, the guest program as 4 and nothing else of this
// process's, in a session of its own: no terminal of ours is within its reach, and its group is
// ours to end.
pid_t spawn(std::vector<std::string> argv, int socket, const std::string& guest_program) {
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, 3);
  for (const int fd : {0, 1, 2}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  posix_spawn_file_actions_addopen(&actions, 4, guest_program.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, 5);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw SandboxUnavailable(std::string("bwrap cannot be started: ") + std::strerror(error),
                             "install bubblewrap 0.8 or later (and util-linux, for setpriv)");
  }
  return pid;
}

}  // namespace

// One sandbox: its directories on the host, and the `bwrap` of the call that is open.
class BwrapBackend::Place {
 public:
  explicit Place(std::string guest_program) : guest_program_(std::move(guest_program)) {
    std::string pattern = fs::temp_directory_path() / "casemate-bwrap-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      throw SandboxUnavailable("no directory for a sandbox: " + std::string(std::strerror(errno)));
    }
    root_ = pattern;
    for (const char* name : {"workspace", "home"}) fs::create_directory(root_ / name);
    if (!is_root()) return;
    for (const char* name : {"", "workspace", "home"}) {
      if (chown((root_ / name).c_str(), kNobody, kNobody) != 0) {
        throw SandboxUnavailable("chown: " + std::string(std::strerror(errno)));
      }
    }
  }

  ~Place() {
    end();
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  // A control stream to a new guest: what opens a call. Calls would share one user id and see each
  // other's directories, so they go one at a time, as the contract allows: this waits until the
  // guest before has ended.
  sys::UniqueFd connect(const CallControl& control) {
    while (true) {
      std::shared_ptr<const sys::UniqueFd> open;
      {
        const std::lock_guard lock(mutex_);
        if (ended_) throw SandboxUnavailable("the sandbox was disposed", "acquire another");
        if (!busy_locked()) return start_locked();
        open = process_;
      }
      wait_for(open->get(), control);
    }
  }

  // bwrap stays outside; process 1 of the place is its child. Nothing may be open.
  std::optional<int> first_process() const {
    const std::lock_guard lock(mutex_);
    if (!busy_locked()) return std::nullopt;
    const std::string number = std::to_string(pid_);
    std::ifstream children("/proc/" + number + "/task/" + number + "/children");
    int child = 0;
    return children >> child ? std::optional(child) : std::nullopt;
  }

  bool busy() const {
    const std::lock_guard lock(mutex_);
    return busy_locked();
  }

  // Ends the call that is open, and all later ones.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    sys::raise_event(ended_event_.get());
    // The group is bwrap and process 1 of the place, with which the kernel ends the rest.
    if (process_) kill(-pid_, SIGKILL);
    reap_locked();
  }

 private:
  bool busy_locked() const { return process_ && !sys::has_ended(process_->get()); }

  sys::UniqueFd start_locked() {
    reap_locked();
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    pid_ = spawn(bwrap_argv(root_), far.get(), guest_program_);
    process_ = std::make_shared<const sys::UniqueFd>(sys::open_pid(pid_));
    return std::move(near);
  }

  void wait_for(int process, const CallControl& control) const {
    const sys::UniqueFd stopped = sys::make_event();
    const std::stop_callback on_stop(control.stop, [&] { sys::raise_event(stopped.get()); });
    pollfd entries[] = {{.fd = process, .events = POLLIN, .revents = 0},
                        {.fd = ended_event_.get(), .events = POLLIN, .revents = 0},
                        {.fd = stopped.get(), .events = POLLIN, .revents = 0}};
    if (sys::poll_until(entries, control.deadline) == 0) {
      throw SandboxTimeout("another call of the sandbox is open", "close it first");
    }
    if (entries[2].revents != 0) throw SandboxCancelled("waiting for another call was stopped");
  }

  void reap_locked() noexcept {
    if (process_) waitpid(pid_, nullptr, 0);
    process_.reset();
  }

  const std::string guest_program_;
  const sys::UniqueFd ended_event_ = sys::make_event();
  fs::path root_;
  mutable std::mutex mutex_;
  // Below: guarded by `mutex_`.
  bool ended_ = false;
  // Of the newest call, which may have ended; not yet waited for.
  std::shared_ptr<const sys::UniqueFd> process_;
  pid_t pid_ = -1;
};

BwrapBackend::BwrapBackend(std::string guest_program) : guest_program_(std::move(guest_program)) {}

BackendDeclarations BwrapBackend::declarations() const {
  BackendDeclarations declared;
  declared.name = "bwrap";
  declared.isolation = Isolation::container;
  declared.egress_modes = {Egress::closed};
  declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                           Capability::files_list, Capability::files_delete};
  declared.os_families = {OsFamily::posix};
  declared.image_forms = {ImageForm::host};
  // No `enforceable_limits`: bwrap bounds neither memory nor processes nor disk. The guest program
  // ends a program at its time.
  declared.enforceable_limits = {Limit::time};
  return declared;
}

std::shared_ptr<Sandbox> BwrapBackend::acquire(const SandboxKey& key, const SandboxSpec& spec,
                                               const CallControl& control) {
  check_key(key);
  check_spec(spec);
  const BackendDeclarations declared = declarations();
  if (const auto refused = match_declarations(spec, Isolation::process, declared)) {
    refused->raise(refused->message, refused->hint);
  }
  if (spec.work_dir != "/workspace") {
    throw InvalidArgument("bwrap: work_dir " + spec.work_dir + " is refused", "use /workspace");
  }
  if (control.stop.stop_requested()) throw SandboxCancelled("acquiring a sandbox was stopped");

  // The work of making one is two directories, so the lock may be held meanwhile: whoever comes
  // second finds what the first one made.
  const std::lock_guard lock(mutex_);
  Kept& kept = kept_[{key, spec.kind}];
  const std::string fingerprint = spec_fingerprint(spec, guest_program_);
  if (kept.place && kept.fingerprint != fingerprint) {
    if (kept.place->busy()) {
      throw SandboxBusy("the sandbox of this key is in use with another spec",
                        "close its call, or use another key");
    }
    kept.place.reset();
  }
  const bool reused = kept.place != nullptr;
  if (!reused) {
    kept = {std::make_shared<Place>(guest_program_), random_hex(12), fingerprint};
  }

  guest::AgentSandboxParts parts;
  parts.info = {.id = kept.id,
                .backend = declared.name,
                .isolation = Isolation::container,
                .reused = reused,
                .image = "host",
                .egress = Egress::closed,
                .work_dir = "/workspace",
                .limits_not_held = limits_not_held(spec.resources, declared)};
  parts.connect = [place = kept.place](const CallControl& waiting) {
    return place->connect(waiting);
  };
  parts.first_process = [place = kept.place] { return place->first_process(); };
  return std::make_shared<guest::AgentSandbox>(std::move(parts));
}

template <typename Picks>
int BwrapBackend::end_those(Picks picks) noexcept {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (auto each = kept_.begin(); each != kept_.end();) {
    if (!picks(*each)) {
      ++each;
      continue;
    }
    if (each->second.place) {
      // Handles that are left keep the object, and find that it has ended.
      each->second.place->end();
      ++count;
    }
    each = kept_.erase(each);
  }
  return count;
}

int BwrapBackend::dispose(const SandboxKey& key) noexcept {
  return end_those([&](const auto& kept) { return kept.first.first == key; });
}

int BwrapBackend::dispose_scope(std::string_view scope, std::string_view thread_id) noexcept {
  return end_those([&](const auto& kept) {
    return kept.first.first.scope == scope && kept.first.first.thread_id == thread_id;
  });
}

bool BwrapBackend::dispose_id(std::string_view id) noexcept {
  return end_those([&](const auto& kept) { return kept.second.id == id; }) > 0;
}

BackendProbe BwrapBackend::probe() {
  const SandboxKey key{"probe", "probe", "probe"};
  SandboxSpec spec;
  spec.kind = "probe";
  BackendProbe probe{.available = true, .reason = {}, .engine = "bubblewrap"};
  try {
    ExecRequest request;
    request.command = Argv{{"/bin/true"}};
    const CallControl control{
        .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10), .stop = {}};
    if (acquire(key, spec, control)->exec(request, control).exit_code != 0) {
      probe = {.available = false, .reason = "/bin/true fails in it", .engine = {}};
    }
  } catch (const SandboxError& error) {
    probe = {.available = false, .reason = error.message(), .engine = {}};
  }
  dispose(key);
  return probe;
}

}  // namespace bwrap
