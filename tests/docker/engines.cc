#include "tests/docker/engines.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "casemate/backends/docker/labels.h"

namespace casemate::docker_tests {
namespace {

namespace fs = std::filesystem;

// A bound on a hang, not a budget.
constexpr std::chrono::seconds kPatience{60};

// The process of engine.py: it ends the engine when its input ends, so also when this program dies.
class Running {
 public:
  Running(const std::string& kind, std::vector<std::string> words) {
    int in[2];
    int out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    std::string line;
    char letter = 0;
    while (read(out[0], &letter, 1) == 1 && letter != '\n') line += letter;
    close(out[0]);
    engine_.kind = kind;
    if (kind == "remote" && line.starts_with("ready ")) {
      const std::size_t blank = line.rfind(' ');
      engine_.tls_address = line.substr(6, blank - 6);
      engine_.tls_directory = line.substr(blank + 1);
    } else if (line.starts_with("ready ")) {
      engine_.address = line.substr(6);
    } else if (line.starts_with("missing ")) {
      engine_.missing = line.substr(8);
    } else {
      engine_.failure =
          line.starts_with("failed ") ? line.substr(7) : kind + ": it could not be started";
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    begin_to_end();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  void begin_to_end() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }
  EngineUnderTest& engine() { return engine_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  EngineUnderTest engine_;
};

// Ended by the program's end, not by static destructors of forked children.
class Engines final : public testing::Environment {
 public:
  void TearDown() override {
    // What leads to an engine before that engine.
    running.erase("remote");
    // All of them at the same time.
    for (const auto& [kind, each] : running) each->begin_to_end();
    running.clear();
  }
  std::map<std::string, std::unique_ptr<Running>> running;
};

Engines& engines() {
  static Engines* const all = [] {
    auto* made = new Engines;  // the test framework owns it
    testing::AddGlobalTestEnvironment(made);
    return made;
  }();
  return *all;
}

// Before the tests begin, or nobody would end them.
[[maybe_unused]] const bool kKnown = (engines(), true);

}  // namespace

const EngineUnderTest& engine_under_test(const std::string& kind) {
  if (kind == "runtime" || kind == "runsc") return engine_under_test("docker");
  // One that is there already, for tests by a user who starts none.
  if (const char* given = getenv("CASEMATE_TEST_DOCKER"); given != nullptr && kind == "docker") {
    static const EngineUnderTest there = [&] {
      EngineUnderTest engine;
      engine.kind = kind;
      engine.address = given;
      return engine;
    }();
    return there;
  }
  std::unique_ptr<Running>& running = engines().running[kind];
  if (running) return running->engine();
  const std::string python = "/usr/bin/python3";
  if (kind == "remote") {
    const EngineUnderTest& docker = engine_under_test("docker");
    if (docker.address.empty()) return docker;
    const std::string socket = docker.address.substr(std::string("unix://").size());
    running = std::make_unique<Running>(
        kind, std::vector{python, std::string("tests/docker/tls_relay.py"), socket});
    running->engine().address = docker.address;
    return running->engine();
  }
  const char* build = getenv("CASEMATE_BUILD_DIR");
  running = std::make_unique<Running>(
      kind, std::vector{python, std::string("tests/docker/engine.py"), kind,
                        std::string(build == nullptr ? "build/release" : build)});
  return running->engine();
}

SandboxSpec DockerTest::spec() {
  SandboxSpec spec;
  spec.kind = "test";
  spec.image = kImage;
  spec.requires_capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                                Capability::files_list, Capability::files_delete};
  return spec;
}

DockerBackendOptions DockerTest::options() const {
  DockerBackendOptions options;
  const EngineUnderTest& engine = engine_under_test(GetParam());
  options.host = engine.tls_address.empty() ? engine.address : engine.tls_address;
  options.tls_directory = engine.tls_directory;
  if (GetParam() == "runtime") options.runtime = "runc";
  if (GetParam() == "runsc") options.runtime = "runsc";
  options.state_dir = state_;
  options.pull = DockerPull::never;
  options.log = [](LogLevel level, std::string_view text) {
    if (level >= LogLevel::warning) {
      std::fprintf(stderr, "log: %.*s\n", static_cast<int>(text.size()), text.data());
    }
  };
  return options;
}

std::unique_ptr<DockerBackend> DockerTest::make_backend(DockerBackendOptions options) const {
  if (options.host.empty()) options = this->options();
  return std::make_unique<DockerBackend>(std::move(options));
}

void DockerTest::SetUp() {
  const EngineUnderTest& engine = engine_under_test(GetParam());
  if (!engine.failure.empty()) FAIL() << engine.failure;
  if (GetParam() == "runsc" && engine.missing.empty() && access("/usr/bin/runsc", X_OK) != 0) {
    GTEST_SKIP() << "runsc is not installed (scripts/bootstrap engines)";
  }
  if (engine.address.empty() || !engine.missing.empty()) GTEST_SKIP() << engine.missing;
  std::string pattern = fs::temp_directory_path() / "casemate-docker-XXXXXX";
  state_ = mkdtemp(pattern.data());
  backend_ = make_backend();
  engine_ = std::make_unique<docker::Engine>(docker::parse_engine_address(engine.address), nullptr,
                                             Log{});
}

void DockerTest::TearDown() {
  if (!backend_) return;
  for (const docker::Container& left : containers()) {
    const std::string scope = left.labels.at("casemate.scope");
    backend_->dispose_scope(scope, left.labels.at("casemate.thread"));
  }
  for (const docker::Container& left : containers()) ADD_FAILURE() << left.name << " is left";
  backend_->list();
  std::error_code none;
  for (const auto& left : fs::directory_iterator(state_ / "docker/places", none)) {
    ADD_FAILURE() << left.path() << " is left";
  }
  backend_.reset();
  fs::remove_all(state_);
}

std::vector<docker::Container> DockerTest::containers() {
  return engine_->list({std::string(docker::kOwnerLabel) + "=" + std::string(docker::kOwner)}, {});
}

// By asking again: Podman's own way of waiting does not hear of what it removes by itself.
bool DockerTest::await(const std::string& id,
                       const std::function<bool(const std::optional<docker::Container>&)>& is_so) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!is_so(engine_->inspect(id, {}))) {
    if (std::chrono::steady_clock::now() >= until) return false;
    usleep(20'000);
  }
  return true;
}

void DockerTest::await_gone(const std::string& id) {
  EXPECT_TRUE(await(id, [](const auto& found) { return !found; })) << id << " does not end";
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

}  // namespace casemate::docker_tests
