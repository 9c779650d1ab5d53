// The calls of a program over the file transport, in a real sandbox.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "casemate/host_tools/tools_test.h"
#include "tests/over_exec/over_exec_on_linux.h"

namespace casemate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
