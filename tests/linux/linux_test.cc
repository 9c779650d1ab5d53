#include "tests/linux/linux_test.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "casemate/backends/oci/oci_backend.h"
#include "casemate/local/group_detection.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/process.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/directory_events.h"

namespace casemate::linux_tests {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{20};

// What the kernel says of a process from its state on; empty for one that has gone, also while it
// was asked.
std::string state_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::ostringstream text;
  text << file.rdbuf();  // keeps an error to itself, as an iterator does not
  const std::string all = text.str();
  const std::size_t end = all.rfind(')');
  return end == std::string::npos ? std::string() : all.substr(end + 1);
}

// Absent for a process that has ended, reaped or not: it runs nothing any more.
std::optional<std::string> start_time(pid_t pid) {
  const std::string state = state_of(std::to_string(pid));
  if (state.empty()) return std::nullopt;
  std::istringstream fields(state);
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return std::nullopt;
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

}  // namespace

std::set<ProcessIdentity> processes_in(const std::string& kind, const std::string& inode) {
  std::set<ProcessIdentity> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    if (fs::read_symlink(entry.path() / "ns" / kind, error) != inode) continue;
    const pid_t pid = std::stoi(name);
    if (const auto start = start_time(pid)) found.emplace(pid, *start);
  }
  return found;
}

namespace {

// Number of the parent by number.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string state = state_of(name);
    if (state.empty()) continue;
    std::istringstream fields(state);
    std::string status;
    pid_t parent = 0;
    fields >> status >> parent;
    found[std::stoi(name)] = parent;
  }
  return found;
}

}  // namespace

std::vector<pid_t> children_of(pid_t parent) {
  const std::string number = std::to_string(parent);
  std::ifstream list("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

std::set<ProcessIdentity> family_of(pid_t ancestor) {
  const std::map<pid_t, pid_t> all = parents();
  std::set<ProcessIdentity> family;
  for (const auto& [pid, parent] : all) {
    pid_t at = pid;
    for (auto found = all.find(at); at != ancestor && found != all.end(); found = all.find(at)) {
      at = found->second;
    }
    if (at != ancestor) continue;
    if (const auto start = start_time(pid)) family.emplace(pid, *start);
  }
  return family;
}

std::set<ProcessIdentity> still_running(const std::set<ProcessIdentity>& processes) {
  std::set<ProcessIdentity> running;
  for (const auto& [pid, start] : processes) {
    if (start_time(pid) == start) running.emplace(pid, start);
  }
  return running;
}

bool under_a_runtime() { return std::getenv("CASEMATE_TEST_OCI_RUNTIME") != nullptr; }

std::unique_ptr<local::LocalBackend> make_backend(LinuxBackendOptions options) {
  const char* runtime = std::getenv("CASEMATE_TEST_OCI_RUNTIME");
  if (runtime == nullptr) return std::make_unique<LinuxBackend>(std::move(options));
  return std::make_unique<OciBackend>(OciBackendOptions{.runtime = runtime,
                                                        .state_dir = std::move(options.state_dir),
                                                        .log = std::move(options.log),
                                                        .control_groups = options.control_groups,
                                                        .images = std::move(options.images),
                                                        .warm_pool = std::move(options.warm_pool),
                                                        .egress = std::move(options.egress),
                                                        .max_snapshots = options.max_snapshots});
}

bool control_groups_are_had() {
  const auto layout = local::detect_groups().layout;
  if (!layout.memory || !layout.pids || !layout.cpu) return false;
  for (const auto& place : {layout.memory, layout.pids, layout.cpu}) {
    const std::string own = place->base + "/casemate";
    if (access((fs::exists(own) ? own : place->base).c_str(), W_OK) < 0) return false;
  }
  return true;
}

std::vector<std::string> control_groups_of(const std::string& id) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/sys/fs/cgroup")) {
    const fs::path group = entry.path() / "casemate" / id;
    if (fs::exists(group)) found.push_back(group);
  }
  if (fs::exists("/sys/fs/cgroup/casemate/" + id)) found.push_back("/sys/fs/cgroup/casemate/" + id);
  return found;
}

bool wait_until_empty(const fs::path& directory) {
  return wait_for_events(directory, IN_DELETE | IN_MOVED_FROM,
                         [&] { return fs::is_empty(directory); });
}

bool wait_until_gone(pid_t pid) {
  try {
    const sys::UniqueFd process = sys::open_pid(pid);
    return sys::wait_ended(process.get(), std::chrono::steady_clock::now() + kPatience);
  } catch (const std::system_error&) {
    return true;
  }
}

pid_t keeper_of(pid_t agent) {
  for (pid_t process = agent; process > 1;) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    process = -1;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("PPid:")) process = std::stoi(line.substr(5));
    }
    if (process <= 1) return -1;
    std::ifstream parent("/proc/" + std::to_string(process) + "/comm");
    std::string name;
    if (std::getline(parent, name) && name == "casemate-keeper") return process;
  }
  return -1;
}

pid_t agent_of(const fs::path& sandbox_directory) {
  const sys::UniqueFd directory(open(sandbox_directory.c_str(), O_PATH | O_CLOEXEC));
  const auto connection = local::connect_to(directory.get(), "lease.sock");
  if (!connection) return -1;
  ucred agent{};
  socklen_t size = sizeof agent;
  if (getsockopt(connection->get(), SOL_SOCKET, SO_PEERCRED, &agent, &size) < 0) return -1;
  return agent.pid;
}

ExecRequest shell(std::string line) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  return request;
}

ExecRequest python(std::string program) {
  ExecRequest request;
  request.command = Argv{{"/usr/bin/python3", "-u", "-c", std::move(program)}};
  return request;
}

void LinuxTest::SetUp() {
  char name[] = "/tmp/casemate-test-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  state_ = name;
  backend_ = another_backend();
  if (testing::UnitTest::GetInstance()->current_test_info() == nullptr) return;
  const BackendProbe probe = backend_->probe();
  if (!probe.available) GTEST_SKIP() << "the backend does not work here: " << probe.reason;
}

void LinuxTest::TearDown() {
  if (!backend_) return;
  sandbox_.reset();
  for (const SandboxRecord& record : backend_->list()) backend_->dispose_id(record.id);
  for (const char* name : {"sandboxes", "new", "trash"}) {
    if (!fs::exists(state_ / name)) continue;
    EXPECT_TRUE(wait_until_empty(state_ / name)) << name << " still holds sandboxes";
  }
  for (const std::string& id : ids_) EXPECT_EQ(control_groups_of(id), std::vector<std::string>{});
  backend_.reset();
  fs::remove_all(state_);
}

std::unique_ptr<local::LocalBackend> LinuxTest::another_backend() const {
  return make_backend({.state_dir = state_, .log = {}});
}

std::vector<fs::path> LinuxTest::sandbox_directories() const {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(state_ / "sandboxes")) {
    found.push_back(entry.path());
  }
  return found;
}

SandboxSpec LinuxTest::spec() {
  SandboxSpec spec;
  spec.kind = "test";
  return spec;
}

Sandbox& LinuxTest::sandbox() {
  if (!sandbox_) sandbox_ = acquire(key(), spec());
  return *sandbox_;
}

std::string LinuxTest::output(const ExecRequest& request) {
  const ExecResult result = run(request);
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_EQ(result.exit_code, 0) << result.stderr;
  return result.stdout;
}

std::shared_ptr<Sandbox> LinuxTest::acquire(const SandboxKey& sandbox_key,
                                            const SandboxSpec& sandbox_spec) {
  auto made = backend().acquire(sandbox_key, sandbox_spec, {});
  ids_.insert(made->info().id);
  return made;
}

void LinuxTest::expect_agent_first(const Sandbox& sandbox) {
  const std::optional<int> first = sandbox.first_process();
  ASSERT_TRUE(first);
  std::ifstream status("/proc/" + std::to_string(*first) + "/status");
  std::string numbers;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("NSpid:")) numbers = line;
  }
  EXPECT_TRUE(numbers.ends_with("\t1")) << numbers;
  EXPECT_GT(keeper_of(*first), 1);
}

}  // namespace casemate::linux_tests
