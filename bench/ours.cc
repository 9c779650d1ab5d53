#include "bench/ours.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

#include "bench/own_directory.h"
#include "bench/process.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/base/digest.h"
#include "casemate/core/sandbox.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/local/group_detection.h"
#include "casemate/policy/router.h"
#include "casemate/sys/file.h"

namespace casemate::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBytes = std::uint64_t{10} << 20;
constexpr int kAlive = 1000;
constexpr int kIdle = 20;
constexpr int kEdge = 50;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

ExecRequest shell(std::string line) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  return request;
}

void expect_success(const ExecResult& result, std::string_view stdout) {
  if (result.outcome != Outcome::exited || result.exit_code != 0 || result.stdout != stdout) {
    throw std::runtime_error("a program did not run as it should: " + result.stderr);
  }
}

// The sandboxes of one run of the table, all under one scope.
class Ours {
 public:
  explicit Ours(const OursOptions& options)
      : backend_(options.backend),
        program_(options.program),
        state_dir_(options.state_dir),
        spec_(codeact_sandbox_spec({})),
        router_({backend_},
                {.min_isolation = Isolation::container, .selected = backend_->declarations().name}),
        warm_(backend_->acquire(key("warm"), spec_, {})) {
    const std::string program = (directory_.path() / "print.py").string();
    std::ofstream(program) << "print(1)\n";
    // Lives as long as the table: no run of the program has to make it.
    keep_argv_ = {program_, "run", "--keep", "--scope", scope_, "--thread", "whole", program};
    cold_argv_ = {program_, "run", program};
  }
  ~Ours() {
    warm_.reset();
    if (pooled_) pooled_->dispose_scope(scope_, "pooled");
    pooled_router_.reset();
    pooled_.reset();
    backend_->dispose_scope(scope_, "warm");
    backend_->dispose_scope(scope_, "whole");
  }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;

  const std::vector<std::string>& keep_argv() const { return keep_argv_; }
  const std::vector<std::string>& cold_argv() const { return cold_argv_; }

  double cold_true() {
    const SandboxKey key = fresh_key();
    const auto start = Clock::now();
    const auto sandbox = backend_->acquire(key, spec_, {});
    expect_success(sandbox->exec(true_, {}), "");
    backend_->dispose(key);
    return since(start);
  }

  double warm_true() {
    const auto start = Clock::now();
    expect_success(warm_->exec(true_, {}), "");
    return since(start);
  }

  // The whole road that a tool takes.
  double warm_print() {
    const CodeactWiring wiring{.router = router_,
                               .spec = spec_,
                               .owner = {.tool = "bench", .on_reclaim_failure = {}, .log = {}}};
    CodeactRequest request;
    request.code = "print(1)\n";
    const auto start = Clock::now();
    const CodeactRun run = run_codeact(wiring, key("warm"), request, {});
    const double took = since(start);
    expect_success(run.result, "1\n");
    return took;
  }

  // The same with an interpreter that waits for its program.
  double held_print() {
    const CodeactWiring wiring{.router = pooled_router(),
                               .spec = spec_,
                               .owner = {.tool = "bench", .on_reclaim_failure = {}, .log = {}}};
    pooled_->acquire(key("pooled"), spec_, {});
    wait_until_warm();
    CodeactRequest request;
    request.code = "print(1)\n";
    const auto start = Clock::now();
    const CodeactRun run = run_codeact(wiring, key("pooled"), request, {});
    const double took = since(start);
    expect_success(run.result, "1\n");
    return took;
  }

  double pool_acquire() {
    pooled_router();
    wait_until_warm();
    const SandboxKey key = fresh_key();
    const auto start = Clock::now();
    pooled_->acquire(key, spec_, {});
    const double took = since(start);
    pooled_->dispose(key);
    return took;
  }

  double create_remove() {
    const SandboxKey key = fresh_key();
    const auto start = Clock::now();
    backend_->acquire(key, spec_, {});
    backend_->dispose(key);
    return since(start);
  }

  double files(bool in) {
    static const std::string kContent(kBytes, 'x');
    if (!call_) {
      call_ = warm_->open_call({}, {});
      call_->write_file("data", kContent, call_->directory(), {});
    }
    const auto start = Clock::now();
    if (in) {
      call_->write_file("data", kContent, call_->directory(), {});
    } else if (call_->read_file("data", call_->directory(), kBytes, {}).size() != kBytes) {
      throw std::runtime_error("a file came back with another size");
    }
    return since(start);
  }

  // Of one sandbox that does nothing: the shares of memory of the agent and what else lives for it,
  // or all that its control group is charged with, the kernel's own included.
  std::vector<double> idle_bytes(bool whole_group) {
    const auto layout = local::detect_groups().layout;
    std::vector<SandboxKey> keys;
    std::vector<double> samples;
    for (int i = 0; i < kIdle; ++i) {
      keys.push_back(fresh_key());
      const auto sandbox = backend_->acquire(keys.back(), spec_, {});
      const std::string id = sandbox->info().id;
      double bytes = 0;
      if (whole_group) {
        bytes = static_cast<double>(local::read_use(layout, id).memory_bytes);
      } else {
        for (const pid_t pid : members(layout, id)) bytes += proportional_set(pid);
      }
      if (bytes <= 0) throw std::runtime_error("no control group counts a sandbox's memory");
      samples.push_back(bytes);
    }
    for (const SandboxKey& key : keys) backend_->dispose(key);
    return samples;
  }

  // What it takes to make one more: first with none, then with 1,000 alive, each of which has run a
  // program that left a file. Some of them show in the end that it is still theirs.
  std::vector<double> alive(bool many) {
    if (times_.empty()) {
      std::vector<SandboxKey> keys;
      for (int i = 0; i < kAlive + kEdge; ++i) {
        keys.push_back(fresh_key());
        const auto start = Clock::now();
        const auto sandbox = backend_->acquire(keys.back(), spec_, {});
        times_.push_back(since(start));
        expect_success(sandbox->exec(shell(fmt::format("echo {} > ~/mark", i)), {}), "");
      }
      std::vector<std::size_t> some(keys.size());
      std::iota(some.begin(), some.end(), std::size_t{0});
      std::ranges::shuffle(some, std::mt19937(std::random_device{}()));
      some.resize(kEdge);
      for (const std::size_t i : some) {
        const auto sandbox = backend_->acquire(keys[i], spec_, {});
        expect_success(sandbox->exec(shell("cat ~/mark"), {}), fmt::format("{}\n", i));
      }
      for (const SandboxKey& key : keys) backend_->dispose(key);
    }
    return many ? std::vector<double>(times_.end() - kEdge, times_.end())
                : std::vector<double>(times_.begin(), times_.begin() + kEdge);
  }

 private:
  // With a backend of its own, so that nothing else of the table is served from its pool.
  const SandboxRouter& pooled_router() {
    if (!pooled_) {
      LinuxBackendOptions options;
      options.state_dir = state_dir_;
      options.warm_pool = WarmPool{.spec = spec_,
                                   .sandboxes = 1,
                                   .program = codeact_expected_program("host"),
                                   .programs = 1};
      pooled_ = std::make_shared<LinuxBackend>(std::move(options));
      pooled_router_.emplace(
          std::vector<std::shared_ptr<SandboxBackend>>{pooled_},
          RouterOptions{.min_isolation = Isolation::container, .selected = "linux"});
    }
    return *pooled_router_;
  }
  void wait_until_warm() {
    CallControl control;
    control.deadline = Clock::now() + std::chrono::seconds(60);
    if (!pooled_->wait_until_warm(control)) throw std::runtime_error("the pool did not fill");
  }

  SandboxKey key(std::string thread) const { return {scope_, std::move(thread), "default"}; }
  SandboxKey fresh_key() { return key(fmt::format("fresh {}", ++number_)); }

  static std::vector<pid_t> members(const local::ControlGroupLayout& layout, std::string_view id) {
    std::vector<pid_t> found;
    for (const std::string& group : local::agent_directories(layout, id)) {
      std::ifstream file(group + "/cgroup.procs");
      for (pid_t pid = 0; file >> pid;) found.push_back(pid);
      if (!found.empty()) return found;
    }
    throw std::runtime_error("without control groups a sandbox's processes are not found");
  }

  static double proportional_set(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/smaps_rollup", pid));
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("Pss:")) continue;
      return 1024 * std::stod(line.substr(4));
    }
    throw std::runtime_error("no smaps_rollup of a sandbox's process");
  }

  std::shared_ptr<SandboxBackend> backend_;
  std::string program_;
  std::string state_dir_;
  SandboxSpec spec_;
  SandboxRouter router_;
  const std::string scope_ = "bench " + random_hex(8);
  std::shared_ptr<Sandbox> warm_;
  std::unique_ptr<Call> call_;
  ExecRequest true_{.command = Argv{{"/bin/true"}}};
  OwnDirectory directory_;
  std::vector<std::string> keep_argv_;
  std::vector<std::string> cold_argv_;
  std::shared_ptr<LinuxBackend> pooled_;
  std::optional<SandboxRouter> pooled_router_;
  std::vector<double> times_;
  int number_ = 0;
};

}  // namespace

std::vector<Subject> our_subjects(const OursOptions& options) {
  const auto ours = std::make_shared<Ours>(options);
  std::vector<Subject> subjects;
  const auto add = [&](std::string work, auto once, std::vector<Bar> bars) {
    subjects.push_back({.work = std::move(work),
                        .name = "casemate",
                        .once = [ours, once] { return std::invoke(once, *ours); },
                        .bars = std::move(bars)});
  };
  const auto add_process = [&](std::string work, std::string name, std::vector<std::string> argv,
                               std::vector<Bar> bars) {
    subjects.push_back({.work = std::move(work),
                        .name = std::move(name),
                        .argv = argv,
                        // The sandbox of the kept one must outlive it.
                        .once = [ours, argv] { return time_process(argv); },
                        .bars = std::move(bars)});
  };
  add("cold_true", &Ours::cold_true, {{.factor = 1.5, .plus = 1}, {.of = "bwrap", .factor = 1}});
  // Not met on the machine where it was looked into: 1.1 ms above the spawn (docs/operations.md,
  // "How fast it is").
  add("warm_true", &Ours::warm_true, {{.factor = 1, .plus = 0.8}});
  add("warm_print", &Ours::warm_print, {{.factor = 1, .plus = 1}});
  add_process("warm_print", "casemate run --keep", ours->keep_argv(), {{.factor = 1.6}});
  add_process("warm_print", "casemate run", ours->cold_argv(), {{.of = "bwrap", .factor = 1.15}});
  // Half the limit's bytes a second.
  add("held_print", &Ours::held_print, {{.plus = 2.5}});
  add("pool_acquire", &Ours::pool_acquire, {{.plus = 0.5}});
  add("files_in", [](Ours& self) { return self.files(true); }, {{.factor = 2}});
  add("files_out", [](Ours& self) { return self.files(false); }, {{.factor = 2}});
  // 300 a second.
  add("create_remove", &Ours::create_remove, {{.plus = 3.33}});
  add_process("cli_start", "casemate", {options.program, "--version"},
              {{.factor = 1, .plus = 1.5}});
  subjects.push_back({.work = "idle_memory",
                      .name = "casemate",
                      .all = [ours] { return ours->idle_bytes(false); },
                      .bars = {{.plus = 512 * 1024}},
                      .unit = Unit::bytes});
  subjects.push_back({.work = "idle_memory",
                      .name = "casemate, whole group",
                      .all = [ours] { return ours->idle_bytes(true); },
                      .bars = {{.plus = 1024 * 1024}},
                      .unit = Unit::bytes});
  subjects.push_back(
      {.work = "alive_1000", .name = "limit", .all = [ours] { return ours->alive(false); }});
  subjects.push_back({.work = "alive_1000",
                      .name = "casemate",
                      .all = [ours] { return ours->alive(true); },
                      .bars = {{.factor = 1.2}}});
  return subjects;
}

}  // namespace casemate::bench
