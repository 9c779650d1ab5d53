#include "tests/conformance/bwrap_place.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/core/spec.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/sys/socket.h"

namespace casemate::conformance_tests {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kNobody = 65534;

std::string guest_program() {
  return fs::read_symlink("/proc/self/exe").parent_path() / "plain_guest";
}

// One sandbox: each of its calls is a bwrap of its own over one directory.
class Place {
 public:
  Place(const Walls& walls, std::string root) : walls_(walls), root_(std::move(root)) {}

  // Whatever it is that a broken place left running is in the group of its bwrap.
  ~Place() {
    for (const pid_t pid : started_) {
      kill(-pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  sys::UniqueFd connect() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    std::vector<std::string> words = argv();
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const sys::UniqueFd filter(memfd_create("filter", MFD_CLOEXEC));
    const std::size_t size = walls_.filter.size() * sizeof(sock_filter);
    if (pwrite(filter.get(), walls_.filter.data(), size, 0) != static_cast<ssize_t>(size)) {
      throw SandboxUnavailable("a filter cannot be kept");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, far.get(), 3);
    posix_spawn_file_actions_adddup2(&actions, filter.get(), 5);
    posix_spawn_file_actions_addopen(&actions, 4, guest_program().c_str(), O_RDONLY, 0);
    for (const int fd : {0, 1}) {
      posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    }
    posix_spawn_file_actions_addclosefrom_np(&actions, 6);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t pid = -1;
    const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw SandboxUnavailable(words[0] + " cannot be started");
    const std::lock_guard lock(mutex_);
    started_.push_back(pid);
    return std::move(near);
  }

 private:
  std::vector<std::string> argv() const {
    std::vector<std::string> words = walls_.before;
    const auto add = [&](const std::vector<std::string>& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    add({"bwrap"});
    add(walls_.namespaces);
    add(walls_.capabilities);
    add({"--clearenv", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink",
         "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"});
    add(walls_.guest);
    add(walls_.proc);
    add({"--dev", "/dev", "--tmpfs", "/tmp", "--bind", "{root}/workspace", "/workspace", "--bind",
         "{root}/home", "/home/user"});
    add(walls_.more);
    if (!walls_.filter.empty()) add({"--seccomp", "5"});
    add(walls_.first);
    for (std::string& word : words) {
      if (word.starts_with("{root}")) word = root_ + word.substr(6);
    }
    return words;
  }

  const Walls& walls_;
  const std::string root_;
  std::mutex mutex_;
  std::vector<pid_t> started_;
};

class BwrapPlaces final : public SandboxBackend {
 public:
  explicit BwrapPlaces(Walls walls) : walls_(std::move(walls)) {
    std::string pattern = fs::temp_directory_path() / "casemate-walls-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw SandboxUnavailable("no directory");
    root_ = pattern;
    fs::permissions(root_, fs::perms(0755));
  }
  ~BwrapPlaces() override {
    places_.clear();
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  BackendDeclarations declarations() const override {
    BackendDeclarations declared;
    declared.name = "walls";
    declared.isolation = Isolation::container;
    declared.egress_modes = {Egress::closed};
    declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                             Capability::files_list, Capability::files_delete};
    declared.enforceable_limits = {Limit::time};
    return declared;
  }

  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl&) override {
    const std::string id = identity_digest(key, walls_.own_directory ? spec.kind : "one");
    const std::lock_guard lock(mutex_);
    auto& [place, number] = places_[{key, spec.kind}];
    if (!place) {
      place = std::make_shared<Place>(walls_, directory(id));
      number = walls_.own_ids ? std::to_string(++made_) : "";
    }
    guest::AgentSandboxParts parts;
    parts.info.id = identity_digest(key, spec.kind) + number;
    parts.info.backend = "walls";
    parts.info.isolation = Isolation::container;
    parts.info.work_dir = "/workspace";
    parts.connect = [place = place](const CallControl&) { return place->connect(); };
    // A broken guest is not waited for as long as a working one.
    parts.timing = {.silence = std::chrono::seconds(10),
                    .backstop = std::chrono::seconds(5),
                    .cancel_grace = std::chrono::seconds(2),
                    .close_patience = std::chrono::seconds(5)};
    return std::make_shared<guest::AgentSandbox>(std::move(parts));
  }
  int dispose(const SandboxKey& key) noexcept override {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(
        std::erase_if(places_, [&](const auto& each) { return each.first.first == key; }));
  }
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::erase_if(places_, [&](const auto& each) {
      return each.first.first.scope == scope && each.first.first.thread_id == thread_id;
    }));
  }
  bool dispose_id(std::string_view id) noexcept override {
    const std::lock_guard lock(mutex_);
    return std::erase_if(places_, [&](const auto& each) {
             return identity_digest(each.first.first, each.first.second) + each.second.second == id;
           }) > 0;
  }

 private:
  // With an entry that programs could exchange.
  std::string directory(const std::string& id) const {
    const fs::path root = fs::path(root_) / id;
    const bool is_new = fs::create_directory(root);
    for (const char* name : {"", "workspace", "workspace/.kept", "home"}) {
      if (!is_new) break;
      fs::create_directories(root / name);
      if (chown((root / name).c_str(), walls_.before.empty() ? 0 : kNobody, kNobody) != 0) {
        throw SandboxUnavailable("a directory cannot be given away");
      }
    }
    return root;
  }

  const Walls walls_;
  std::string root_;
  std::mutex mutex_;
  // With what follows the digest in its id.
  std::map<std::pair<SandboxKey, std::string>, std::pair<std::shared_ptr<Place>, std::string>>
      places_;
  int made_ = 0;
};

constexpr sock_filter statement(unsigned code, std::size_t value) {
  return {static_cast<std::uint16_t>(code), 0, 0, static_cast<std::uint32_t>(value)};
}

constexpr sock_filter unless(unsigned test, std::size_t value, std::uint8_t skipped) {
  return {static_cast<std::uint16_t>(BPF_JMP | BPF_K | test), 0, skipped,
          static_cast<std::uint32_t>(value)};
}

constexpr auto kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr auto kAnswer = BPF_RET | BPF_K;

}  // namespace

std::shared_ptr<SandboxBackend> bwrap_backend(Walls walls) {
  return std::make_shared<BwrapPlaces>(std::move(walls));
}

std::vector<sock_filter> refuses(unsigned system_call) {
  return {statement(kLoad, offsetof(seccomp_data, nr)), unless(BPF_JEQ, system_call, 1),
          statement(kAnswer, SECCOMP_RET_ERRNO | EPERM), statement(kAnswer, SECCOMP_RET_ALLOW)};
}

std::vector<sock_filter> refuses_threads() {
  return {statement(kLoad, offsetof(seccomp_data, nr)),
          // Its flags are in memory, where a filter cannot look: the C library then takes clone.
          unless(BPF_JEQ, SYS_clone3, 1), statement(kAnswer, SECCOMP_RET_ERRNO | ENOSYS),
          unless(BPF_JEQ, SYS_clone, 3), statement(kLoad, offsetof(seccomp_data, args[0])),
          unless(BPF_JSET, CLONE_THREAD, 1), statement(kAnswer, SECCOMP_RET_ERRNO | EAGAIN),
          statement(kAnswer, SECCOMP_RET_ALLOW)};
}

}  // namespace casemate::conformance_tests
