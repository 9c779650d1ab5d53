// How a program over the file transport ends in a real sandbox, also one that works against it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "casemate/host_tools/tools_test.h"
#include "tests/over_exec/over_exec_on_linux.h"

namespace casemate {
namespace {

using testing::HasSubstr;
using testing::Not;

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

}  // namespace
}  // namespace casemate
