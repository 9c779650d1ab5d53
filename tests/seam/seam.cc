#include "tests/seam/seam.h"

#include <stdlib.h>

#include <filesystem>
#include <utility>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/spec.h"
#include "tests/support/plain_sandbox.h"
#include "tests/support/streamed_linux_backend.h"
#include "tests/support/streamed_plain_sandbox.h"

namespace casemate::seam {
namespace {

namespace fs = std::filesystem;

class PlainSubject : public Subject {
 public:
  Sandbox& sandbox() override { return plain_.sandbox(); }

 private:
  PlainSandbox plain_;
};

class StreamedPlainSubject : public Subject {
 public:
  Sandbox& sandbox() override { return plain_.sandbox(); }

 private:
  StreamedPlainSandbox plain_;
};

// A state directory of its own, so that nobody else's sandboxes are met.
class StateDirectory {
 public:
  StateDirectory() {
    std::string pattern = "/tmp/casemate-seam-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;
  ~StateDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }

 private:
  fs::path path_;
};

SandboxSpec seam_spec() {
  SandboxSpec spec;
  spec.kind = "seam";
  spec.requires_capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                                Capability::files_list, Capability::files_delete};
  // Of the tests, not of the seam: five hundred children, a hundred thousand files.
  spec.resources.pids = stated(1000);
  spec.resources.disk_inodes = stated(200'000);
  return spec;
}

class LinuxSubject : public Subject {
 public:
  LinuxSubject() : sandbox_(backend_.acquire(key_, seam_spec(), {})) {}
  ~LinuxSubject() override {
    sandbox_.reset();
    backend_.dispose(key_);
  }
  Sandbox& sandbox() override { return *sandbox_; }

 private:
  StateDirectory state_;
  SandboxKey key_{"seam", "thread", "agent"};
  LinuxBackend backend_{LinuxBackendOptions{.state_dir = state_.path(), .log = {}}};
  std::shared_ptr<Sandbox> sandbox_;
};

class StreamedLinuxSubject : public Subject {
 public:
  StreamedLinuxSubject() : sandbox_(backend_.acquire(key_, seam_spec(), {})) {}
  ~StreamedLinuxSubject() override {
    sandbox_.reset();
    backend_.dispose(key_);
  }
  Sandbox& sandbox() override { return *sandbox_; }

 private:
  SandboxKey key_{"seam", "thread", "agent"};
  StreamedLinuxBackend backend_;
  std::shared_ptr<Sandbox> sandbox_;
};

std::string why_linux_cannot() {
  static const std::string reason = [] {
    const StateDirectory state;
    LinuxBackend backend(LinuxBackendOptions{.state_dir = state.path(), .log = {}});
    const BackendProbe probe = backend.probe();
    return probe.available ? "" : "the linux backend does not work here: " + probe.reason;
  }();
  return reason;
}

}  // namespace

const std::vector<Provider>& providers() {
  static const std::vector<Provider> all{
      {"plain", [] { return std::string(); }, [] { return std::make_unique<PlainSubject>(); }},
      {"linux", why_linux_cannot, [] { return std::make_unique<LinuxSubject>(); }},
      {"plain_stream", [] { return std::string(); },
       [] { return std::make_unique<StreamedPlainSubject>(); }},
      {"linux_stream", why_linux_cannot, [] { return std::make_unique<StreamedLinuxSubject>(); }},
  };
  return all;
}

std::string provider_name(const testing::TestParamInfo<Provider>& info) { return info.param.name; }

ExecRequest shell(std::string line) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  return request;
}

ExecRequest program(std::vector<std::string> words) {
  ExecRequest request;
  request.command = Argv{std::move(words)};
  return request;
}

ExecRequest python(std::string text) {
  return program({"/usr/bin/python3", "-u", "-c", std::move(text)});
}

CallControl StopFromElsewhere::control() const {
  CallControl control;
  control.stop = source_.get_token();
  return control;
}

void StopFromElsewhere::request() {
  thread_ = std::jthread([this] { source_.request_stop(); });
}

void StopFromElsewhere::request_and_wait() {
  request();
  thread_.join();
}

void Seam::SetUp() {
  if (const std::string reason = GetParam().why_not(); !reason.empty()) GTEST_SKIP() << reason;
  subject_ = GetParam().make();
  call_ = sandbox().open_call({}, {});
}

std::string Seam::guest(const std::string& line) {
  const ExecResult result = run(shell(line));
  EXPECT_EQ(result.exit_code, 0) << line << ": " << result.stderr;
  return result.stdout;
}

std::string Seam::awaited(const std::string& name) {
  return guest("i=0; until [ -s " + name +
               " ]; do [ $i = 2000 ] && exit 1; i=$((i+1)); sleep 0.01; done; printf %s \"$(cat " +
               name + ")\"");
}

ExecResult Seam::run_out(ExecRequest request, std::chrono::nanoseconds time) {
  for (;; time *= 4) {
    request.timeout = time;
    ExecResult result = run(request);
    if (call().stat_file("ready", work(), {}) || time > std::chrono::minutes(1)) return result;
  }
}

const char kHoldLock[] = R"(
import fcntl, os
lock = open('../../lock', 'w')
os.set_inheritable(lock.fileno(), True)
fcntl.flock(lock, fcntl.LOCK_EX)
)";

void Seam::await_lock() {
  const ExecResult result =
      run(python("import fcntl\nfcntl.flock(open('../../lock', 'w'), fcntl.LOCK_EX)"));
  EXPECT_EQ(result.exit_code, 0) << result.stderr;
}

bool Seam::lock_is_held() {
  const ExecResult result = run(python(R"(
import fcntl
try:
    fcntl.flock(open('../../lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('free')
except BlockingIOError:
    print('held')
)"));
  EXPECT_TRUE(result.stdout == "free\n" || result.stdout == "held\n") << result.stderr;
  return result.stdout == "held\n";
}

}  // namespace casemate::seam
