// Programs that take all they can get. Each bound holds, the outcome names it, and whoever is
// beside goes on: the host, another sandbox, and later the same one.
//
// A flood is bounded four times over: it tries at most four times the bound and never more than
// 1,000 processes or 1 GiB, every process of it ends by an alarm of its own, the guest program ends
// all of them at a timeout, and closing the call ends what is left.

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

// Small, so that a bound is met soon, and enough for an interpreter.
constexpr std::uint64_t kMemory = 64 * kMiB;
constexpr std::uint64_t kDisk = 16 * kMiB;
constexpr std::uint64_t kInodes = 512;
constexpr std::uint64_t kProcesses = 24;
constexpr std::uint64_t kOpenFiles = 64;
constexpr std::chrono::seconds kFloodEnds{30};

// A sandbox of its own for each: what an ended call held may be given back a little later, and
// would be room again where all was taken.
SandboxSpec flooded(const Trial& trial) {
  SandboxSpec spec = trial.spec();
  spec.kind += "-flood-" + fresh_mark();
  const std::set<Limit> held = trial.declarations().enforceable_limits;
  const auto state = [&](Limit limit, ResourceLimit& bound, std::uint64_t value) {
    if (held.contains(limit)) bound = stated(value);
  };
  state(Limit::memory, spec.resources.memory_bytes, kMemory);
  state(Limit::disk, spec.resources.disk_bytes, kDisk);
  state(Limit::disk, spec.resources.disk_inodes, kInodes);
  state(Limit::pids, spec.resources.pids, kProcesses);
  state(Limit::files, spec.resources.open_files, kOpenFiles);
  return spec;
}

// Another sandbox, which is made if it is not there, and this host.
void expect_neighbours_answer(Trial& trial) {
  SandboxSpec other = trial.spec();
  other.kind += "-neighbour";
  trial.in_sandbox(other, [&](Call& neighbour) {
    ExecRequest request;
    request.command = ShellLine{"echo answers > file && /bin/cat file | /bin/cat"};
    const ExecResult seen = neighbour.exec(request, trial.control());
    expect_equal("a program of another sandbox during a flood", seen.stdout,
                 std::string("answers\n"));
  });
  const Bystander process;
  const HostFile file;
  expect_equal("a file of the host's during a flood", file.names(), std::string("mark"));
}

// What every flood begins with. `full()` says that the bound was met, or is about to end it, and
// waits until the host has looked around.
constexpr std::string_view kFlooding = R"py(
import errno, os, resource, signal, sys
signal.alarm(30)
def bound(kind, most):
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
bound(resource.RLIMIT_NPROC, 1000)
def full(got=0, most=1):
    print("full" if got < most else f"the bound of {most} did not hold: got {got}", flush=True)
    sys.stdin.read()
def child():
    if os.fork() == 0:
        signal.alarm(30)
        while True: signal.pause()
)py";

struct Flood {
  std::string_view step;
  std::string_view program;
  // Handed to the program as `limit`.
  std::uint64_t limit = 0;
};

// Runs it in that call. The neighbours are looked at when it says that its bound was met, and
// afterwards.
ExecResult let_loose(Trial& trial, Call& call, const Flood& flood) {
  ExecRequest request;
  request.command = Argv{
      {"python3", "-c", fmt::format("{}limit = {}\n{}", kFlooding, flood.limit, flood.program)}};
  request.stdin_mode = StdinMode::piped;
  request.timeout = kFloodEnds;
  bool looked = false;
  Process* running = nullptr;
  request.on_output = [&](OutputStream stream, std::span<const char>) {
    if (looked || stream != OutputStream::out) return;
    looked = true;
    expect_neighbours_answer(trial);
    running->close_stdin();
  };
  const std::unique_ptr<Process> process = call.start(request, trial.control());
  running = process.get();
  const ExecResult result = process->wait(trial.control());
  if (!looked) expect_neighbours_answer(trial);
  return result;
}

std::string named(std::optional<Limit> limit) {
  return limit ? std::string(to_string(*limit)) : "no limit";
}

// How a flood has to end.
struct End {
  Outcome outcome = Outcome::exited;
  std::optional<int> exit_code{};
  std::string stdout = "full\n";
  std::optional<Limit> limit{};
  bool may_be_unnamed = false;
};

void expect_end(std::string_view step, const ExecResult& seen, const End& end) {
  const bool same =
      seen.outcome == end.outcome && seen.exit_code == end.exit_code && seen.stdout == end.stdout &&
      (seen.limit == end.limit || (end.may_be_unnamed && !seen.limit)) && seen.stopped_known;
  if (same) return;
  ExecResult expected;
  expected.outcome = end.outcome;
  expected.exit_code = end.exit_code;
  expected.stdout = end.stdout;
  const auto told = [](const ExecResult& result, std::optional<Limit> limit, bool stopped) {
    return fmt::format("{}, naming {}, the end of all {}known", shown(result), named(limit),
                       stopped ? "" : "un");
  };
  throw Unmet(std::string(step), told(expected, end.limit, true),
              told(seen, seen.limit, seen.stopped_known));
}

void expect_flood(Trial& trial, const Flood& flood, const End& end) {
  trial.in_sandbox(flooded(trial), [&](Call& call) {
    expect_end(flood.step, let_loose(trial, call, flood), end);
    expect_done(call, trial.control(), "the next program after " + std::string(flood.step), "");
  });
}

// Who bounds memory counts in the kernel and is told of a refused fork; whoever bounds processes by
// RLIMIT_NPROC alone is told by nobody.
bool counts_in_the_kernel(const Trial& trial) {
  return trial.declarations().enforceable_limits.contains(Limit::memory);
}

void processes_are_bounded(Trial& trial) {
  expect_flood(
      trial,
      {.step = "forking without end",
       .program = R"py(
made = 0
try:
    while made < 4 * limit: child(); made += 1
except BlockingIOError:
    pass
full(made, limit)
)py",
       .limit = kProcesses},
      {.exit_code = 0, .limit = Limit::pids, .may_be_unnamed = !counts_in_the_kernel(trial)});
}

void threads_are_bounded(Trial& trial) {
  expect_flood(
      trial,
      {.step = "starting threads without end",
       .program = R"py(
import threading
made, over = 0, threading.Event()
try:
    while made < 4 * limit:
        threading.Thread(target=over.wait, daemon=True).start()
        made += 1
except RuntimeError:
    pass
full(made, limit)
os._exit(1)
)py",
       .limit = kProcesses},
      {.exit_code = 1, .limit = Limit::pids, .may_be_unnamed = !counts_in_the_kernel(trial)});
}

void zombies_are_bounded(Trial& trial) {
  expect_flood(trial,
               {.step = "leaving children that have ended, and children of theirs that stay",
                .program = R"py(
made = 0
try:
    while made < 4 * limit:
        if os.fork() == 0:
            try:
                if made % 4 == 0: child()
            finally:
                os._exit(0)
        made += 1
except BlockingIOError:
    pass
full(made, limit)
os.kill(os.getpid(), signal.SIGKILL)
)py",
                .limit = kProcesses},
               {.outcome = Outcome::signaled,
                .limit = Limit::pids,
                .may_be_unnamed = !counts_in_the_kernel(trial)});
}

void memory_is_bounded(Trial& trial) {
  constexpr std::string_view kTaking = R"py(
def take():
    bound(resource.RLIMIT_AS, 1 << 30)
    block = bytearray()
    while len(block) < 4 * limit:
        block += b"x" * (1 << 20)
        # Half of it, and so much that the next sandbox meets a machine on which it is taken.
        if len(block) == limit // 2 >> 20 << 20: full()
    print("the bound did not hold")
)py";
  expect_flood(trial,
               {.step = "taking memory without end",
                .program = std::string(kTaking) + "take()",
                .limit = kMemory + kDisk},
               {.outcome = Outcome::out_of_memory, .limit = Limit::memory});
  expect_flood(trial,
               {.step = "a child that takes memory without end",
                .program = std::string(kTaking) + R"py(
if os.fork() == 0:
    take()
    os._exit(0)
if os.wait()[1] == signal.SIGKILL: print("killed")
)py",
                .limit = kMemory + kDisk},
               {.exit_code = 0, .stdout = "full\nkilled\n", .limit = Limit::memory});
}

void disk_is_bounded(Trial& trial) {
  expect_flood(trial,
               {.step = "writing without end, wherever that is possible",
                .program = R"py(
written = 0
for number, folder in enumerate((".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~"))):
    try:
        with open(f"{folder}/flood", "wb", buffering=0) as file:
            while written < 4 * limit: written += file.write(b"x" * (1 << 18))
    except OSError:
        pass
full(written, limit + 1)
sys.exit(1)
)py",
                .limit = kDisk},
               {.exit_code = 1, .limit = Limit::disk});
}

void files_are_bounded(Trial& trial) {
  expect_flood(trial,
               {.step = "making files without end",
                .program = R"py(
made = 0
try:
    while made < 4 * limit:
        open(f"flood{made}", "x").close()
        made += 1
except OSError:
    pass
full(made, limit)
sys.exit(1)
)py",
                .limit = kInodes},
               {.exit_code = 1, .limit = Limit::disk});
}

void descriptors_are_bounded(Trial& trial) {
  expect_flood(trial,
               {.step = "opening files without end",
                .program = R"py(
made = 0
try:
    while made < 4 * limit:
        os.dup(0)
        made += 1
except OSError:
    pass
full(made, limit)
)py",
                .limit = kOpenFiles},
               {.exit_code = 0});
}

void output_is_bounded(Trial& trial) {
  constexpr std::uint64_t kKept = 64 * kKiB;
  constexpr std::uint64_t kPrinted = 32 * kMiB;
  const std::string step = "printing without end";
  ExecRequest request;
  request.command = Argv{{"python3", "-c",
                          fmt::format("import sys\nfor stream in sys.stdout, sys.stderr:\n"
                                      "    for _ in range({}): stream.write('x' * 65536)",
                                      kPrinted / 65536)}};
  request.capture_bytes = kKept;
  request.timeout = kFloodEnds;
  const ExecResult seen = trial.call().exec(request, trial.control());
  expect_equal(
      step + ", what was kept and what is missing",
      fmt::format("exit code {}, {} <= {}, {} and {}", seen.exit_code.value_or(-1),
                  std::max(seen.stdout.size(), seen.stderr.size()),
                  std::max({seen.stdout.size(), seen.stderr.size(), kKept}),
                  seen.stdout.size() + seen.stdout_missing_bytes,
                  seen.stderr.size() + seen.stderr_missing_bytes),
      fmt::format("exit code 0, {} <= {}, {} and {}",
                  std::max(seen.stdout.size(), seen.stderr.size()), kKept, kPrinted, kPrinted));
  expect_neighbours_answer(trial);
}

// Starves the agent and whoever shares its processors.
void busy_loops_starve_nobody(Trial& trial) {
  const std::string step = "looping in eight processes until the bound";
  ExecRequest request;
  request.command = Argv{{"python3", "-c", R"py(
import os, signal
for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP: signal.signal(number, signal.SIG_IGN)
signal.alarm(30)
for _ in range(3):
    if os.fork() == 0: signal.alarm(30)
print("full", flush=True)
while True: pass
)py"}};
  request.timeout = trial.program_bound();
  bool looked = false;
  request.on_output = [&](OutputStream, std::span<const char>) {
    if (!std::exchange(looked, true)) expect_neighbours_answer(trial);
  };
  ExecResult seen = trial.call().exec(request, trial.control());
  if (!looked) expect_neighbours_answer(trial);
  // As many as had come so far; none on a machine so busy that its interpreter had not begun.
  if (seen.stdout.empty() || seen.stdout.starts_with("full\n")) seen.stdout = "full\n";
  expect_end(step, seen, {.outcome = Outcome::timed_out, .limit = Limit::time});
  expect_done(trial, "the next program after " + step, "");
}

}  // namespace

std::span<const Probe> isolation_flood_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {.id = "processes-are-bounded",
       .sentence = "a bound on processes holds and is named, and nobody else is hurt",
       .run = processes_are_bounded,
       .from = Isolation::os_process,
       .held = Limit::pids},
      {.id = "threads-are-bounded",
       .sentence = "threads count as processes do",
       .run = threads_are_bounded,
       .from = Isolation::os_process,
       .held = Limit::pids},
      {.id = "zombies-are-bounded",
       .sentence = "children that nobody waits for count as processes do, and go",
       .run = zombies_are_bounded,
       .from = Isolation::os_process,
       .held = Limit::pids},
      {.id = "memory-is-bounded",
       .sentence = "a bound on memory holds and is named, and nobody else is hurt",
       .run = memory_is_bounded,
       .from = Isolation::os_process,
       .held = Limit::memory},
      {.id = "disk-is-bounded",
       .sentence = "a bound on bytes written holds and is named, and nobody else is hurt",
       .run = disk_is_bounded,
       .from = Isolation::os_process,
       .held = Limit::disk},
      {.id = "files-are-bounded",
       .sentence = "a bound on files made holds and is named, and nobody else is hurt",
       .run = files_are_bounded,
       .from = Isolation::os_process,
       .held = Limit::disk},
      {.id = "descriptors-are-bounded",
       .sentence = "a bound on open files holds, and nobody else is hurt",
       .run = descriptors_are_bounded,
       .from = Isolation::os_process,
       .held = Limit::files},
      {.id = "output-is-bounded",
       .sentence = "of output no more is kept than was asked, and what is missing is counted",
       .run = output_is_bounded,
       .from = Isolation::os_process},
      {.id = "busy-loops-starve-nobody",
       .sentence = "what loops and heeds no signal ends at its bound, and others run meanwhile",
       .run = busy_loops_starve_nobody,
       .from = Isolation::os_process},
  });
  return kProbes;
}

}  // namespace casemate::conformance
