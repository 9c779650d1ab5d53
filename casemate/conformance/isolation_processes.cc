// Processes of the host's, of other sandboxes, and those that serve the program.
//
// Only processes of the probe's own are touched, and by acts that change nothing: tracing begins
// with PTRACE_SEIZE, which does not stop whom it traces and ends with the tracer.

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>

#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

// `touched(number)`: which ways lead into the process of that number, and change nothing.
// x86-64 and aarch64 agree on the numbers of pidfd_open and pidfd_getfd.
constexpr std::string_view kTouching = R"py(
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, PIDFD_OPEN, PIDFD_GETFD = 0x4206, 434, 438
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
def touched(number):
    ways = []
    for what in ("environ", "mem", "maps"):
        try:
            open(f"/proc/{number}/{what}", "rb").read(1)
            ways.append("read " + what)
        except OSError:
            pass
    for what in ("root", "cwd", "exe"):
        try:
            os.readlink(f"/proc/{number}/{what}")
            ways.append("follow " + what)
        except OSError:
            pass
    try:
        if os.listdir(f"/proc/{number}/fd"): ways.append("see descriptors")
    except OSError:
        pass
    # At an address that nobody has: EFAULT is said to who may.
    here, there = Span(ctypes.addressof(ctypes.create_string_buffer(1)), 1), Span(8, 1)
    for name in ("process_vm_readv", "process_vm_writev"):
        ctypes.set_errno(0)
        getattr(libc, name)(number, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if ctypes.get_errno() == errno.EFAULT: ways.append(name)
    held = libc.syscall(ctypes.c_long(PIDFD_OPEN), number, 0)
    if held >= 0:
        if any(libc.syscall(ctypes.c_long(PIDFD_GETFD), held, each, 0) >= 0 for each in range(16)):
            ways.append("take descriptors")
        os.close(held)
    if libc.ptrace(ctypes.c_long(SEIZE), number, None, None) == 0: ways.append("trace")
    return ways
)py";

void host_processes_are_out_of_sight(Trial& trial) {
  expect_done(trial, "looking for this process of the host's", R"py(
import glob, os
wanted = bytes.fromhex(os.environ["PROBE_COMMAND"])
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if open(path, "rb").read() == wanted: print("the host's process is", path)
    except OSError:
        pass
)py",
              {{"PROBE_COMMAND", host_command_in_hex()}});
}

void host_processes_cannot_be_touched(Trial& trial) {
  const Bystander bystander;
  expect_done(trial, "signalling, tracing and reading a process of the host's by its number",
              std::string(kTouching) + R"py(
number = int(os.environ["PROBE_PID"])
# Where numbers are the place's own, another process has this one, or none.
same = os.readlink("/proc/self/ns/pid") == os.environ["PROBE_NAMESPACE"]
try:
    seen = open(f"/proc/{number}/cmdline", "rb").read() == b"sleep\0" b"600\0"
except OSError:
    seen = False
if same:
    try:
        os.kill(number, 0)
        print("could signal it")
    except OSError:
        pass
if same or seen:
    for way in touched(number): print("could", way)
)py",
              {{"PROBE_PID", fmt::format("{}", bystander.pid())},
               {"PROBE_NAMESPACE", own_namespace("pid")}});
}

void other_sandboxes_are_out_of_sight(Trial& trial) {
  SandboxSpec other = trial.spec();
  other.kind += "-neighbour";
  const std::string mark = fresh_mark();
  trial.in_sandbox(other, [&](Call& neighbour) {
    ExecRequest waiting;
    waiting.command = Argv{{"sh", "-c", "echo > \"$1\"; exec cat", "sh", mark}};
    waiting.stdin_mode = StdinMode::piped;
    const auto process = neighbour.start(waiting, trial.control());
    // In its command until it becomes `cat`, in its directory for good.
    expect_done(trial, "looking for a file and a process of another sandbox", R"py(
import glob, os
mark = os.environ["PROBE_MARK"]
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if mark in open(path).read(): print("process", path)
    except OSError:
        pass
for folder, _, names in os.walk(os.environ["PROBE_WORK"]):
    if mark in names: print("file in", folder)
)py",
                {{"PROBE_MARK", mark}, {"PROBE_WORK", other.work_dir}});
    process->close_stdin();
    process->wait(trial.control());
  });
}

void the_agent_cannot_be_touched(Trial& trial) {
  expect_done(trial, "reading, tracing and following what serves the program",
              std::string(kTouching) + R"py(
numbers = {os.getppid()}
# Where numbers are the host's, process 1 is none of this place.
if os.readlink("/proc/self/ns/pid") != os.environ["PROBE_NAMESPACE"]: numbers.add(1)
for number in sorted(numbers - {0, os.getpid()}):
    for way in touched(number): print("could", way, "of", number)
)py",
              {{"PROBE_NAMESPACE", own_namespace("pid")}});
}

void the_agent_outlives_signals(Trial& trial) {
  const std::string step = "sending process 1 of the place what ends or stops a process";
  expect_done(trial, step, R"py(
import os, signal
if os.readlink("/proc/self/ns/pid") == os.environ["PROBE_NAMESPACE"]:
    print("process 1 is the host's")
else:
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
                   signal.SIGSEGV, signal.SIGCHLD, signal.SIGUSR1, signal.SIGRTMIN, signal.SIGKILL):
        try:
            os.kill(1, number)
        except OSError:
            pass
)py",
              {{"PROBE_NAMESPACE", own_namespace("pid")}});
  expect_done(trial, "the next program after " + step, "");
}

void no_descriptor_is_inherited(Trial& trial) {
  expect_done(trial, "looking for descriptors that nobody here opened", R"py(
import os
for name in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue  # the listing's own
    if int(name) > 2: print("descriptor", name, "is", target)
    elif not target.startswith(("pipe:", "socket:", "/dev/null")): print("stream", name, "is", target)
)py");
}

void no_variable_is_inherited(Trial& trial) {
  expect_done(trial, "looking for variables of the host's", R"py(
import json, os
for name, value in json.loads(os.environ["PROBE_VARIABLES"]).items():
    if os.environ.get(name) == value: print("inherited", name)
)py",
              {{"PROBE_VARIABLES", json_of(host_environment())}});
}

void an_id_is_never_used_twice(Trial& trial) {
  SandboxSpec spec = trial.spec();
  spec.kind += "-by-id";
  const std::string first = trial.id_of_one_that_is_disposed(spec);
  const std::string second = trial.id_of_one_that_is_disposed(spec);
  if (first != second) return;
  throw Unmet("the ids of two sandboxes of a key, one after the other", "two ids", shown(first));
}

}  // namespace

std::span<const Probe> isolation_process_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {.id = "host-processes-are-out-of-sight",
       .sentence = "processes of the host's are not seen",
       .run = host_processes_are_out_of_sight,
       .from = Isolation::os_process},
      {.id = "host-processes-cannot-be-touched",
       .sentence = "a process of the host's can be neither signalled, traced nor read",
       .run = host_processes_cannot_be_touched,
       .from = Isolation::os_process},
      {.id = "other-sandboxes-are-out-of-sight",
       .sentence = "nothing of another sandbox is seen",
       .run = other_sandboxes_are_out_of_sight,
       .from = Isolation::os_process},
      {.id = "the-agent-cannot-be-touched",
       .sentence = "what serves the program can be neither read nor traced",
       .run = the_agent_cannot_be_touched,
       .from = Isolation::os_process},
      {.id = "the-agent-outlives-signals",
       .sentence = "what serves the program is neither ended nor stopped by signals",
       .run = the_agent_outlives_signals,
       .from = Isolation::os_process},
      {.id = "an-id-is-never-used-twice",
       .sentence = "the id of a sandbox that ended is not its successor's, which outlives it",
       .run = an_id_is_never_used_twice,
       .from = Isolation::os_process},
      {.id = "no-descriptor-is-inherited",
       .sentence = "a program has its three streams open and nothing else",
       .run = no_descriptor_is_inherited,
       .from = Isolation::os_process},
      {.id = "no-variable-is-inherited",
       .sentence = "no variable of the host's is inherited",
       .run = no_variable_is_inherited,
       .from = Isolation::os_process},
  });
  return kProbes;
}

}  // namespace casemate::conformance
