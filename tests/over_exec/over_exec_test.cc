// The file transport against a real sandbox, a real shell and a real Python.

#include "casemate/host_tools/over_exec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "casemate/host_tools/over_exec_guest.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/linux/linux_test.h"
#include "tests/over_exec/resident_guest.h"

namespace casemate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class OverExecOnLinux : public linux_tests::LinuxTest {
 protected:
  void SetUp() override {
    LinuxTest::SetUp();
    if (IsSkipped()) return;
    guest_.emplace(sandbox());
    layout_.emplace(guest_run_layout(guest_->call().directory()));
    options.timeout = seconds(60);
    options.poll_interval = milliseconds(5);
  }

  void TearDown() override {
    if (guest_) {
      EXPECT_FALSE(guest_->call().stat_file("host_tools", layout_->run_directory(), {}));
    }
    guest_.reset();
    LinuxTest::TearDown();
  }

  OverExecResult run(std::string_view program, const CallControl& control = {}) {
    const std::vector<std::string> names = registry->names();
    write(layout_->program(), program);
    write(layout_->module(), over_exec_module({.names = names,
                                               .max_calls = registry->surface().max_calls,
                                               .call_timeout = call_timeout}));
    host_run.emplace(registry, HostToolRunOptions{});
    return host_tool_calls_over_exec(guest_->access(), *host_run, *layout_, options, control);
  }

  // What a program prints that must succeed.
  std::string printed(std::string_view program) {
    const OverExecResult ended = run(program);
    EXPECT_EQ(ended.result.outcome, Outcome::exited);
    EXPECT_EQ(ended.result.exit_code, 0) << ended.result.stderr;
    EXPECT_TRUE(ended.notes.empty());
    return ended.result.stdout;
  }

  void write(const std::string& path, std::string_view text) {
    guest_->call().write_file(path, text, layout_->run_directory(), {});
  }

  // What a program that is to be seen to come so far does last.
  bool has_left_its_word() {
    const std::string& run = layout_->run_directory();
    return guest_->call().stat_file("work/left.txt", run, {}) &&
           guest_->call().read_file("work/left.txt", run, 100, {}) == "here";
  }

  // Runs what would go on for ever until its time is up, and again with four times as much where
  // that was before it had `come` so far as it goes: to its last word, unless said otherwise.
  OverExecResult run_out(std::string_view program,
                         const std::function<bool(const ExecResult&)>& come = {}) {
    for (options.timeout = seconds(2);; options.timeout *= 4) {
      OverExecResult ended = run(program);
      const bool came = come ? come(ended.result) : has_left_its_word();
      tidy();
      EXPECT_TRUE(came || options.timeout < seconds(30)) << "its time is up before it came so far";
      if (came || options.timeout > seconds(30)) return ended;
    }
  }

  // A directory that its owner cannot enter stays until the call is closed.
  void tidy() {
    const std::string& transport = layout_->transport_directory();
    ExecRequest request;
    request.command =
        ShellLine{"chmod -R 700 '" + transport + "' 2>/dev/null; rm -rf '" + transport + "' '" +
                  layout_->run_directory() + "/away' '" + layout_->work_directory() + "/left.txt'"};
    ASSERT_EQ(guest_->exec(request).exit_code, 0);
  }

  // Whether a process of the run exists; by the guest's own view, in which it is not hidden.
  // Within 20 seconds: that the signal was sent is known, not when what got it is gone.
  bool ends(const std::string& pid) {
    ExecRequest request;
    request.command = Argv{{"/bin/sh", "-c",
                            "i=0; while kill -0 $1 2>/dev/null; do [ $i = 2000 ] && exit 1; "
                            "i=$((i+1)); /usr/bin/sleep 0.01; done",
                            "sh", pid}};
    return guest_->exec(request).exit_code == 0;
  }

  ResidentGuest& guest() { return *guest_; }
  const GuestRunLayout& layout() { return *layout_; }

  std::shared_ptr<HostToolRegistry> registry = registry_of({echo()});
  OverExecOptions options;
  std::chrono::nanoseconds call_timeout = seconds(300);
  std::optional<HostToolRun> host_run;

 private:
  std::optional<ResidentGuest> guest_;
  std::optional<GuestRunLayout> layout_;
};

TEST_F(OverExecOnLinux, ACallGoesToTheHostAndBack) {
  const OverExecResult ended = run(R"py(
import casemate_tools, os, sys
print(casemate_tools.call("echo", text="grüße \u2028 \0", number=2**63, none=None))
print(casemate_tools.echo(nested=[[1.5], {"a": True}]))
print(os.path.basename(os.getcwd()), sys.stdin.read() == "")
open("left.txt", "w").write("here")
print("a warning", file=sys.stderr)
sys.exit(7)
)py");
  EXPECT_EQ(ended.result.outcome, Outcome::exited);
  EXPECT_EQ(ended.result.exit_code, 7);
  EXPECT_EQ(ended.result.stdout,
            "{'text': 'grüße \\u2028 \\x00', 'number': 9223372036854775808, 'none': None}\n"
            "{'nested': [[1.5], {'a': True}]}\n"
            "work True\n");
  EXPECT_EQ(ended.result.stderr, "a warning\n");
  EXPECT_FALSE(ended.stop);
  EXPECT_EQ(guest().call().read_file("work/left.txt", layout().run_directory(), 100, {}), "here");
  EXPECT_EQ(host_run->counters().dispatched, 2U);
}

// HT-02
TEST_F(OverExecOnLinux, ThreadsAndChildProcessesCallToo) {
  registry = registry_of({echo()}, {.max_host_tool_calls_per_run = 64});
  EXPECT_EQ(printed(R"py(
import casemate_tools, os, subprocess, sys, threading
got = []
def work(n):
    for i in range(3):
        got.append(casemate_tools.echo(n=n * 10 + i)["n"])
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
child = subprocess.run([sys.executable, "-c",
                        "import casemate_tools; print(casemate_tools.echo(child=1))"],
                       capture_output=True, text=True)
pid = os.fork()
if pid == 0:
    casemate_tools.echo(fork=1)
    os._exit(0)
os.waitpid(pid, 0)
for thread in threads: thread.join()
print(sorted(got) == sorted(n * 10 + i for n in range(8) for i in range(3)), child.stdout, end="")
)py"),
            "True {'child': 1}\n");
  EXPECT_EQ(host_run->counters().delivered, 26U);
}

// HT-04
TEST_F(OverExecOnLinux, ArgumentsThatAreNoJsonFailInTheProgramAndReachNobody) {
  EXPECT_EQ(printed(R"py(
import casemate_tools
cycle = []
cycle.append(cycle)
for bad in (cycle, open("/dev/null"), float("nan"), "\ud800", {1, 2}):
    try:
        casemate_tools.call("echo", x=bad)
    except (TypeError, ValueError) as error:
        print(isinstance(error, casemate_tools.HostToolError))
try:
    casemate_tools.call(3)
except TypeError:
    print("TypeError")
print(casemate_tools.call("echo", name="n", self=1))
)py"),
            "False\nFalse\nFalse\nFalse\nFalse\nTypeError\n{'name': 'n', 'self': 1}\n");
  EXPECT_EQ(host_run->counters().dispatched, 1U);
}

// HT-06
TEST_F(OverExecOnLinux, ARefusalCanBeCaughtAlsoPastTheCap) {
  registry = registry_of({echo()}, {.max_host_tool_calls_per_run = 3});
  EXPECT_EQ(printed(R"py(
import casemate_tools
def attempt(name, **arguments):
    try:
        print(casemate_tools.call(name, **arguments))
    except casemate_tools.HostToolError as error:
        print(error)
attempt("nobody")
attempt("echo", a=1)
attempt("echo", a=2)
for _ in range(4):
    attempt("echo", a=3)
)py"),
            "Error: there is no host tool 'nobody'.\n{'a': 1}\n{'a': 2}\n"
            "Error: the 3 host tool calls of this run are used up; finish with what there is.\n"
            "Error: the 3 host tool calls of this run are used up; finish with what there is.\n"
            "Error: the 3 host tool calls of this run are used up; finish with what there is.\n"
            "Error: the 3 host tool calls of this run are used up; finish with what there is.\n");
  EXPECT_EQ(host_run->counters().dispatched, 4U);
}

TEST_F(OverExecOnLinux, ARequestThatIsTooLargeIsRefused) {
  registry = registry_of({echo()}, {.response_limits = {1000, kMiB, 64}});
  EXPECT_EQ(printed(R"py(
import casemate_tools
try:
    casemate_tools.echo(x="x" * 1000)
except casemate_tools.HostToolError as error:
    print(error)
print(casemate_tools.echo(x=1))
)py"),
            "Error: the request is too large; one may have 1000 bytes.\n{'x': 1}\n");
}

TEST_F(OverExecOnLinux, GarbageInPlaceOfRequestsIsRefusedAndHoldsUpNothing) {
  registry = registry_of({echo()}, {.max_host_tool_calls_per_run = 64});
  EXPECT_EQ(printed(R"py(
import casemate_tools, json, os, sys, time
calls = os.path.join(sys.path[0], "host_tool_calls")
os.makedirs(calls)
garbage = [b"\xff\xfe", b"{", b"[]", b"NaN", b"[" * 100000, b'{"name": "echo", "name": "echo"}',
           b'{"name": "echo", "arguments": {"n": 1e999}}', b'{"name": "echo", "arguments": {"n": ' + b"9" * 40 + b"}}",
           b'{"abandoned": true}', b'{"name": null}']
for number, text in enumerate(garbage, 1):
    open(f"{calls}/{number:04}.claim", "x").close()
    path = f"{calls}/{number:04}.request.json"
    # Half of it first, under its own name: as little as nothing is not there yet.
    open(path, "wb").close()
    time.sleep(0.01)
    with open(path + ".part", "wb") as file:
        file.write(text)
    os.replace(path + ".part", path)
print(casemate_tools.echo(still="here"))
answers = sorted(name for name in os.listdir(calls) if name.endswith(".response.json"))
print(len(answers), all("refusal" in json.load(open(f"{calls}/{name}")) for name in answers[:9]))
)py"),
            "{'still': 'here'}\n10 True\n");
}

TEST_F(OverExecOnLinux, AFileThatIsSharedDoesNotStandInForTheLibrary) {
  for (const char* name : {"json.py", "os.py", "time.py", "casemate_tools.py"}) {
    write(layout().work_directory() + "/" + name, "raise SystemExit('taken')");
  }
  EXPECT_EQ(printed("import casemate_tools\nprint(casemate_tools.echo(a=1))\n"), "{'a': 1}\n");
}

TEST_F(OverExecOnLinux, ToolsWithAnyNameCanBeCalledAndThoseThatAreWordsByAttribute) {
  std::vector<HostTool> tools;
  for (const char* name : {"echo", "call", "class", "HostToolError", "json", "open", "print",
                           "two words", "\xEF\xAC\x81le", "na\xC3\xAFve", "_claim", "__file__"}) {
    tools.push_back(
        tool_of(name, [name](const auto&, const auto&) { return boost::json::value(name); }));
  }
  registry = registry_of(std::move(tools));
  EXPECT_EQ(printed(R"py(
import casemate_tools
print(casemate_tools.open(), casemate_tools.print(), casemate_tools.file(), casemate_tools.naïve())
print(casemate_tools.call("call"), casemate_tools.call("class"), casemate_tools.call("two words"))
print([name for name in dir(casemate_tools) if not name.startswith("_")])
print(issubclass(casemate_tools.HostToolError, RuntimeError), hasattr(casemate_tools, "nobody"))
from casemate_tools import echo
print(echo(), echo.__name__)
)py"),
            "open print \xEF\xAC\x81le na\xC3\xAFve\n"
            "call class two words\n"
            "['HostToolError', 'call', 'echo', 'file', 'json', 'na\xC3\xAFve', 'open', 'print']\n"
            "True False\n"
            "echo echo\n");
}

TEST_F(OverExecOnLinux, ATimeoutKeepsWhatWasPrintedAndEndsTheGroup) {
  const OverExecResult ended = run_out(R"py(
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
print(os.getpid(), child.pid)
print("half a line", end="", file=sys.stderr)
open("left.txt", "w").write("here")
time.sleep(1000)
)py");
  EXPECT_EQ(ended.result.outcome, Outcome::timed_out);
  EXPECT_EQ(ended.result.limit, Limit::time);
  EXPECT_EQ(ended.result.stderr, "half a line");
  EXPECT_EQ(ended.stop, (ProgramStop{StopSignal::sent, StopReach::group}));
  EXPECT_FALSE(ended.result.stopped_known);
  const std::size_t space = ended.result.stdout.find(' ');
  ASSERT_NE(space, std::string::npos);
  EXPECT_TRUE(ends(ended.result.stdout.substr(0, space)));
  EXPECT_TRUE(ends(ended.result.stdout.substr(space + 1)));
}

TEST_F(OverExecOnLinux, WithoutSetsidThereIsNoSessionAndTheProgramAloneIsReached) {
  ExecRequest request;
  request.command = ShellLine{
      "mkdir /tmp/few && for each in sh mkdir mv nohup python3 rm sleep; do ln -s /usr/bin/$each "
      "/tmp/few/$each; done"};
  ASSERT_EQ(guest().exec(request).exit_code, 0);
  guest().environment["PATH"] = "/tmp/few";
  const OverExecResult ended = run_out(R"py(
import os, time
print(os.getpid())
open("left.txt", "w").write("here")
time.sleep(1000)
)py");
  EXPECT_EQ(ended.stop, (ProgramStop{StopSignal::sent, StopReach::program}));
  EXPECT_TRUE(ends(ended.result.stdout));
}

TEST_F(OverExecOnLinux, AForgedMarkEndsTheRunAndClaimsNothing) {
  const OverExecResult ended = run(R"py(
import os, sys, time
print("early", flush=True)
path = os.path.join(sys.path[0], "program_exit_code")
open(path + ".x", "w").write("0")
os.rename(path + ".x", path)
time.sleep(1000)
)py");
  EXPECT_EQ(ended.result.exit_code, 0);
  EXPECT_EQ(ended.result.stdout, "early\n");
  EXPECT_FALSE(ended.result.stopped_known);
}

// A program calls, spoils the files through which it calls, and calls again, when it waits for an
// answer no longer than 0.1 s: `spoil` is told the directory of the transport and that of the
// calls.
std::string spoiling(const std::string& spoil) {
  return R"py(
import casemate_tools, os, shutil, sys
transport = sys.path[0]
calls = os.path.join(transport, "host_tool_calls")
print(casemate_tools.echo(n=1), flush=True)
casemate_tools._TIMEOUT = 0.1
)py" + spoil +
         R"py(
try:
    print(casemate_tools.echo(n=2))
except (casemate_tools.HostToolError, OSError):
    print("lost")
open("left.txt", "w").write("here")
sys.exit(3)
)py";
}

TEST_F(OverExecOnLinux, AProgramThatSpoilsItsCallsKeepsItsOutputAndItsEnd) {
  const std::vector<std::string> ways = {
      "shutil.rmtree(calls)",
      "shutil.rmtree(calls); os.symlink('/tmp', calls)",
      "shutil.rmtree(calls); os.symlink('nowhere', calls)",
      "shutil.rmtree(calls); open(calls, 'w').close()",
      "shutil.rmtree(calls); os.mkfifo(calls)",
      "os.chmod(calls, 0)",
      "os.chmod(calls, 0o500)",
      "os.mkdir(calls + '/0002.request.json')",
      "os.symlink('/etc/passwd', calls + '/0002.request.json')",
      "os.mkfifo(calls + '/0002.request.json')",
      "open(calls + '/0002.request.json', 'w').write('{}'); os.chmod(calls + '/0002.request.json', "
      "0)",
      "os.symlink('/etc/passwd', calls + '/0002.response.json')",
      "os.symlink('nowhere', calls + '/0002.response.json')",
      "os.mkdir(calls + '/0002.response.json')",
      "open(calls + '/0002.response.json', 'w').close(); os.chmod(calls + '/0002.response.json', "
      "0)",
      "for name in os.listdir(calls): os.unlink(calls + '/' + name)",
      "for name in ('casemate_tools.py', 'run_program.sh', 'program_pid', 'program_session'):\n"
      "    while not os.path.exists(transport + '/' + name): pass\n"
      "    os.unlink(transport + '/' + name)",
  };
  for (const std::string& way : ways) {
    SCOPED_TRACE(way);
    const OverExecResult ended = run(spoiling(way));
    EXPECT_EQ(ended.result.outcome, Outcome::exited);
    EXPECT_EQ(ended.result.exit_code, 3) << ended.result.stderr;
    EXPECT_THAT(ended.result.stdout, testing::StartsWith("{'n': 1}\n"));
    EXPECT_THAT(ended.result.stdout,
                testing::AnyOf(testing::EndsWith("\n{'n': 2}\n"), testing::EndsWith("\nlost\n")));
    EXPECT_TRUE(has_left_its_word());
    tidy();
  }
}

TEST_F(OverExecOnLinux, AProgramThatHidesItsEndRunsIntoItsTime) {
  const std::vector<std::string> ways = {
      "os.rename(transport, '../away'); os.symlink('../away', transport)",
      "os.rename(transport, '../away'); os.symlink('away', transport)",
      "os.rename(transport, '../away'); open(transport, 'w').close()",
      "os.mkdir(transport + '/program_exit_code')",
      "os.mkfifo(transport + '/program_exit_code.part')",
      "os.chmod(transport, 0)",
  };
  for (const std::string& way : ways) {
    SCOPED_TRACE(way);
    EXPECT_EQ(run_out(spoiling(way)).result.outcome, Outcome::timed_out);
  }
  // Where the module waits for it.
  const OverExecResult waits =
      run_out(spoiling("os.mkfifo(calls + '/0002.response.json')"),
              [](const ExecResult& result) { return result.stdout == "{'n': 1}\n"; });
  EXPECT_EQ(waits.result.outcome, Outcome::timed_out);
}

TEST_F(OverExecOnLinux, AStreamThatTheProgramTookAwayIsNoted) {
  const OverExecResult ended = run(R"py(
import os, sys
print("printed", flush=True)
os.unlink(os.path.join(sys.path[0], "program_stdout.txt"))
os.mkdir(os.path.join(sys.path[0], "program_stdout.txt"))
sys.exit("why")
)py");
  EXPECT_EQ(ended.result.exit_code, 1);
  EXPECT_EQ(ended.result.stderr, "why\n");
  EXPECT_THAT(ended.notes,
              testing::ElementsAre(HasSubstr("standard output of the program is lost")));
}

TEST_F(OverExecOnLinux, AForgedNumberIsNotSignalled) {
  const OverExecResult ended = run_out(R"py(
import os, sys, time
for name, text in (("program_pid", "1; touch /tmp/forged"), ("program_session", "1")):
    path = os.path.join(sys.path[0], name)
    while not os.path.exists(path): pass
    open(path, "w").write(text)
open("left.txt", "w").write("here")
time.sleep(1000)
)py");
  EXPECT_EQ(ended.stop, (ProgramStop{StopSignal::refused, StopReach::nothing}));
  ExecRequest request;
  request.command = ShellLine{"test -e /tmp/forged"};
  EXPECT_EQ(guest().exec(request).exit_code, 1);
}

TEST_F(OverExecOnLinux, AnInterpreterThatIsMissingIsSaidByTheShell) {
  options.interpreter = "python99";
  const OverExecResult ended = run("print(1)");
  EXPECT_EQ(ended.result.exit_code, 127);
  EXPECT_THAT(ended.result.stderr, HasSubstr("python99"));
}

TEST_F(OverExecOnLinux, ALauncherThatFailsIsTheResult) {
  write(layout().work_directory() + "/x", "");
  guest().call().remove("work", layout().run_directory(), Recursive::yes, {});
  write(layout().work_directory(), "in the way");
  const OverExecResult ended = run("print(1)");
  EXPECT_EQ(ended.result.outcome, Outcome::exited);
  EXPECT_EQ(ended.result.exit_code, 1);
  EXPECT_THAT(ended.result.stderr, HasSubstr("mkdir"));
}

TEST_F(OverExecOnLinux, ASignalIsTheExitCodeThatAShellGivesIt) {
  EXPECT_EQ(run("import os\nos.kill(os.getpid(), 9)").result.exit_code, 137);
}

TEST_F(OverExecOnLinux, OutputOverTheCapIsLeftOutAndTheProgramGoesOn) {
  registry = registry_of({echo()}, {.response_limits = {1000, 5000, 64}});
  const OverExecResult ended = run(R"py(
import sys
print("x" * 5000)
print("short", file=sys.stderr)
)py");
  EXPECT_EQ(ended.result.exit_code, 0);
  EXPECT_EQ(ended.result.stdout, "");
  EXPECT_EQ(ended.result.stdout_missing_bytes, 5001U);
  EXPECT_EQ(ended.result.stderr, "short\n");
  ASSERT_EQ(ended.notes.size(), 1U);
  EXPECT_THAT(ended.notes[0], HasSubstr("standard output"));
}

TEST_F(OverExecOnLinux, AStreamThatWasMadeALinkIsNotFollowed) {
  const OverExecResult ended = run(R"py(
import os, sys
path = os.path.join(sys.path[0], "program_stdout.txt")
os.remove(path)
os.symlink("/etc/passwd", path)
)py");
  EXPECT_EQ(ended.result.exit_code, 0);
  EXPECT_THAT(ended.result.stdout, Not(HasSubstr("root")));
}

TEST_F(OverExecOnLinux, ThePathOfModulesHasTheTransportFirstAndNothingElseOfTheRun) {
  const std::string run_directory = layout().run_directory();
  guest().environment["PYTHONPATH"] = "/a//b:relative::/good/*:" + run_directory + ":" +
                                      run_directory + "/work:/x/./y:/x/..:" + run_directory +
                                      "x:/also good:/../z";
  EXPECT_EQ(printed("import os\nprint(os.environ['PYTHONPATH'])\n"),
            layout().transport_directory() + ":/good/*:" + run_directory + "x:/also good\n");
}

TEST_F(OverExecOnLinux, NothingOfTheLaunchersReachesTheProgramsEnvironment) {
  guest().environment["casemate_path"] = "theirs";
  guest().environment["casemate_entry"] = "theirs";
  EXPECT_EQ(printed(R"py(
import os
print(sorted(name for name in os.environ if name.startswith(("casemate", "IFS"))))
print(os.environ["PYTHONUNBUFFERED"], os.environ["PYTHONNOUSERSITE"])
)py"),
            "[]\n1 1\n");
}

TEST_F(OverExecOnLinux, ACallThatIsNotAnsweredInTimeFailsInTheProgram) {
  call_timeout = milliseconds(100);
  Gate gate;
  registry = registry_of({tool_of("slow", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value();
  })});
  EXPECT_EQ(printed(R"py(
import casemate_tools
try:
    casemate_tools.slow()
except casemate_tools.HostToolError as error:
    print(error)
)py"),
            "Error: the host did not answer within 0.1 seconds.\n");
  gate.open();
  host_run->close();  // the function may not even have begun
}

TEST_F(OverExecOnLinux, ARequestThatCannotBeWrittenIsAbandonedAndTheNextIsServed) {
  EXPECT_EQ(printed(R"py(
import casemate_tools, os
real = os.replace
def fail(source, target):
    os.replace = real
    raise OSError("full")
os.replace = fail
try:
    casemate_tools.echo(a=1)
except OSError as error:
    print(error)
print(casemate_tools.echo(a=2))
)py"),
            "full\n{'a': 2}\n");
  EXPECT_EQ(host_run->counters().dispatched, 1U);
}

TEST_F(OverExecOnLinux, ReclaimingRemovesTheRun) {
  EXPECT_EQ(printed("open('a', 'w').write('b')"), "");
  // The call's own directory is a mount; what is in it goes.
  reclaim_run(guest().access(), layout());
  EXPECT_TRUE(guest().call().list_dir("", layout().run_directory(), {}).empty());
}

}  // namespace
}  // namespace casemate
