// Host tools from real programs in real sandboxes.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "casemate/host_tools/session.h"
#include "casemate/host_tools/tools_test.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/policy/router.h"
#include "tests/linux/linux_test.h"

namespace casemate::linux_tests {
namespace {

class HostTools : public LinuxTest {
 protected:
  static std::shared_ptr<HostToolRegistry> tools(std::uint64_t max_calls = 16) {
    HostTool typed = tool_of("double", [](const boost::json::object& arguments, const auto&) {
      return boost::json::value(arguments.at("n").get_int64() * 2);
    });
    typed.parameters = R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],
                           "additionalProperties":false})";
    return registry_of({echo(), typed}, {.max_host_tool_calls_per_run = max_calls,
                                         .response_limits = {kMiB, 64 * kMiB, 100'000}});
  }

  // One call of the sandbox with host tools of its own.
  struct Opened {
    std::unique_ptr<HostToolSession> session;
    std::unique_ptr<Call> call;

    ExecResult run(ExecRequest request) const {
      for (auto& [name, value] : session->environment(call->host_tool_address())) {
        request.environment[name] = value;
      }
      request.environment["PYTHONPATH"] = "/casemate/python";
      return call->exec(request, {});
    }
    std::string output(ExecRequest request) const {
      const ExecResult result = run(std::move(request));
      EXPECT_EQ(result.exit_code, 0) << result.stdout << result.stderr;
      return result.stdout;
    }
  };

  Opened open(std::shared_ptr<HostToolRegistry> registry) {
    auto session = std::make_unique<HostToolSession>(std::move(registry), HostToolRunOptions{});
    auto call = sandbox().open_call({.host_tool_socket = session->socket()}, {});
    session->serve();
    return {std::move(session), std::move(call)};
  }
};

constexpr const char* kPrelude = "import casemate_tools as t\n";

TEST_F(HostTools, GoThereAndBack) {
  const Opened opened = open(tools());
  EXPECT_EQ(opened.output(python(std::string(kPrelude) +
                                 "print(t.call('double', n=21), t.double(n=4), "
                                 "t.call('echo', name='x', a=[1, 2.5, None, 'ü']))")),
            "42 8 {'name': 'x', 'a': [1, 2.5, None, 'ü']}\n");
  EXPECT_EQ(opened.session->counters().dispatched, 3U);
}

TEST_F(HostTools, RaiseTheHostsRefusal) {
  const Opened opened = open(tools(2));
  EXPECT_EQ(opened.output(python(std::string(kPrelude) + R"(
for arguments in ({"n": "x"}, {}, {"n": 1}):
    try:
        print(t.call("double", **arguments))
    except t.HostToolError as error:
        print(error)
)")),
            "Error: host tool 'double' was not called: argument 'n' must be an integer, not a "
            "string.\n"
            "Error: host tool 'double' was not called: argument 'n' is missing.\n"
            "Error: the 2 host tool calls of this run are used up; finish with what there is.\n");
}

TEST_F(HostTools, AreCalledByChildrenToo) {
  // HT-02
  const Opened opened = open(tools());
  EXPECT_EQ(opened.output(python(R"py(
import os, subprocess, sys
child = "import casemate_tools; print(casemate_tools.call('double', n=1))"
subprocess.run([sys.executable, "-c", child], check=True)
import casemate_tools
casemate_tools.call("echo")
if os.fork() == 0:
    print(casemate_tools.call("double", n=2), flush=True)
    os._exit(0)
os.wait()
print(casemate_tools.call("double", n=3))
)py")),
            "2\n4\n6\n");
  EXPECT_EQ(opened.session->counters().dispatched, 4U);
}

TEST_F(HostTools, AreCalledFromAShellAndFromAnyOtherLanguage) {
  const Opened opened = open(tools(200));
  EXPECT_EQ(opened.output(shell(R"sh(
casemate-call double '{"n": 21}'
echo '{"n": 4}' | casemate-call double -
casemate-call double '{"n": "x"}' >out 2>err; echo $? $(wc -c <out) $(cat err)
casemate-call none '{}' 2>/dev/null; echo $?
casemate-call double 2>/dev/null; echo $?
env -i /casemate/bin/casemate-call double '{"n": 5}'
head -c 200000 /dev/zero | tr '\0' x | sed 's/.*/{"t":"&"}/' | casemate-call echo - | wc -c
)sh")),
            "42\n8\n"
            "1 0 Error: host tool 'double' was not called: argument 'n' must be an integer, not a "
            "string.\n1\n2\n10\n200009\n");
  EXPECT_EQ(opened.output(shell(R"sh(
for i in $(seq 40); do
  (test "$(casemate-call double "{\"n\": $i}")" = $((2 * i)) || echo wrong $i) &
done
wait)sh")),
            "");
  EXPECT_EQ(opened.output(shell(R"sh(perl -e '
open(my $call, "-|", "casemate-call", "double", q({"n": 8})) or die; print <$call>;
close($call) or die; system("casemate-call", "none", "{}"); print $? >> 8, "\n";' 2>/dev/null
)sh")),
            "16\n1\n");
  EXPECT_EQ(opened.output(shell("ls -l /casemate/bin/casemate-call | cut -c1-10; "
                                "(: >/casemate/bin/x) 2>/dev/null || echo refused")),
            "-r-xr-xr-x\nrefused\n");
}

TEST_F(HostTools, SurviveArgumentsThatAreNoJson) {
  // HT-04
  const Opened opened = open(tools());
  EXPECT_EQ(opened.output(python(std::string(kPrelude) + R"(
a = []; a.append(a)
for bad in (a, float("nan"), float("inf"), open("/dev/null"), {1}, "\ud800", b"x"):
    try:
        t.call("echo", x=bad)
    except (ValueError, TypeError) as error:
        print(type(error).__name__)
    print(t.call("echo", x=1)["x"])
try:
    t.call("echo", x=2**64)
except t.HostToolError as error:
    print("64 bits" in str(error))
)")),
            "ValueError\n1\nValueError\n1\nValueError\n1\nTypeError\n1\nTypeError\n1\n"
            "UnicodeEncodeError\n1\nTypeError\n1\nTrue\n");
}

TEST_F(HostTools, AnswerEightThreadsWithoutCrossing) {
  const Opened opened = open(tools(100'000));
  EXPECT_EQ(opened.output(python(std::string(kPrelude) + R"(
import threading
wrong = []
def work(who):
    for n in range(1000):
        value = t.call("echo", who=who, n=n)
        if value != {"who": who, "n": n}:
            wrong.append(value)
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(wrong)
)")),
            "[]\n");
  EXPECT_EQ(opened.session->counters().dispatched, 8000U);
}

TEST_F(HostTools, AreSafeAgainstSharedFilesOfTheSameNames) {
  // IN-08
  const Opened opened = open(tools());
  EXPECT_EQ(opened.output(shell(R"(
for name in json socket _json _socket time os site sitecustomize keyword unicodedata casemate_tools; do
  echo 'print("SHADOWED")' > $name.py
done
cat > main.py <<'END'
import casemate_tools
print(casemate_tools.call("double", n=1), casemate_tools.__file__)
END
python3 main.py)")),
            "2 /casemate/python/casemate_tools.py\n");
}

TEST_F(HostTools, BelongToTheirCallAlone) {
  const Opened opened = open(tools());
  const auto other = sandbox().open_call({}, {});
  EXPECT_EQ(opened.call->host_tool_address(), "/casemate/call/host-tools.sock");
  EXPECT_EQ(other->host_tool_address(), "");
  EXPECT_EQ(opened.call->exec(shell("ls /casemate/call"), {}).stdout, "host-tools.sock\n");
  EXPECT_EQ(other->exec(shell("ls -A /casemate/call"), {}).stdout, "");
  ExecRequest request = python(
      "import casemate_tools\n"
      "try: casemate_tools.call('echo')\n"
      "except casemate_tools.HostToolError as error: print(error)\n");
  request.environment["PYTHONPATH"] = "/casemate/python";
  EXPECT_EQ(other->exec(request, {}).stdout, "Error: this run has no host tools.\n");
  EXPECT_EQ(opened.session->counters().dispatched, 0U);
}

TEST_F(HostTools, LeaveTheProgramNoWayToReplaceTheSocket) {
  const Opened opened = open(tools());
  EXPECT_EQ(opened.output(shell("cd /casemate/call; rm -f host-tools.sock 2>/dev/null; "
                                "mv host-tools.sock x 2>/dev/null; touch y 2>/dev/null; ls -A")),
            "host-tools.sock\n");
}

TEST_F(HostTools, EndWithTheRunThoughAChildStays) {
  // HT-10: the child dies with its call; the next run of the same key counts from nothing.
  {
    const Opened opened = open(tools());
    opened.output(python(std::string(kPrelude) + R"(
import os
t.call("echo")
os.mkfifo("go on")
waits, is_waiting = os.pipe()
if os.fork() == 0:
    for descriptor in (0, 1, 2): os.close(descriptor)
    told = os.open("go on", os.O_RDWR)
    os.write(is_waiting, b"x")
    os.read(told, 1)
    while True:
        t.call("echo")
os.read(waits, 1)
)"));
    // Nobody has it open any more: there is no child that could be told to go on.
    EXPECT_EQ(
        opened.output(python("import errno, os\n"
                             "try: os.write(os.open('go on', os.O_WRONLY | os.O_NONBLOCK), b'x')\n"
                             "except OSError as error: print(errno.errorcode[error.errno])")),
        "ENXIO\n");
    opened.session->close();
    EXPECT_EQ(opened.session->counters().dispatched, 1U);
    EXPECT_TRUE(opened.call->close());
  }
  const Opened next = open(tools());
  EXPECT_EQ(next.session->counters().dispatched, 0U);
}

TEST_F(HostTools, EndInTheMiddleOfCallsWhenTheProgramIsKilled) {
  const auto gate = std::make_shared<Gate>();
  const auto registry = registry_of({tool_of("wait", [gate](const auto&, const auto&) {
    gate->pass();
    return boost::json::value(1);
  })});
  Opened opened = open(registry);
  ExecRequest request = python(std::string(kPrelude) + "t.call('wait')\n");
  for (auto& [name, value] : opened.session->environment(opened.call->host_tool_address())) {
    request.environment[name] = value;
  }
  request.environment["PYTHONPATH"] = "/casemate/python";
  auto process = opened.call->start(request, {});
  gate->await(1);
  process->signal(9);
  EXPECT_EQ(process->wait({}).signal, "SIGKILL");
  gate->open();
  opened.session->close();
  EXPECT_EQ(registry->abandoned_calls(), 0U);
  EXPECT_TRUE(opened.call->close());
}

TEST_F(HostTools, AreCalledByManyForkedChildrenAtOnce) {
  // More of them than connections that the host takes at a time, and all of them keep theirs: after
  // the first call each waits until the others have made theirs.
  const Opened opened = open(tools(1000));
  EXPECT_EQ(opened.output(python(std::string(kPrelude) + R"(
import os
t.call("echo")
children = []
called, has_called = os.pipe()
waits, go_on = os.pipe()
for who in range(80):
    child = os.fork()
    if child == 0:
        right = False
        try:
            os.close(go_on)
            right = t.call("echo", who=who) == {"who": who}
            os.write(has_called, b"x")
            os.read(waits, 1)
            right = right and all(
                t.call("echo", who=who, n=n) == {"who": who, "n": n} for n in range(9))
        finally:
            os._exit(0 if right else 1)
    children.append(child)
for _ in children:
    os.read(called, 1)
print(t.call("echo", who="parent"))
os.close(go_on)
print(sum(os.waitpid(child, 0)[1] != 0 for child in children))
)")),
            "{'who': 'parent'}\n0\n");
  // None of them twice.
  EXPECT_EQ(opened.session->counters().dispatched, 802U);
}

// A program that is in the middle of its one call, and tells what becomes of it.
class HostToolCut : public HostTools {
 protected:
  void SetUp() override {
    HostTools::SetUp();
    if (IsSkipped()) return;
    opened_ = open(registry_);
    ExecRequest request = python(std::string(kPrelude) + R"(
import os
try:
    t.call("wait", name_space=os.readlink("/proc/self/ns/pid"))
except t.HostToolError as error:
    print(error)
)");
    for (auto& [name, value] : opened_.session->environment(opened_.call->host_tool_address())) {
      request.environment[name] = value;
    }
    request.environment["PYTHONPATH"] = "/casemate/python";
    process_ = opened_.call->start(request, {});
    gate_->await(1);
  }

  void TearDown() override {
    gate_->open();
    process_.reset();
    opened_ = {};
    EXPECT_EQ(gate_->arrived(), 1) << "it was called twice";
    EXPECT_EQ(registry_->abandoned_calls(), 0U);
    HostTools::TearDown();
  }

  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::shared_ptr<HostToolRegistry> registry_ =
      registry_of({tool_of("wait", [this](const boost::json::object& arguments, const auto&) {
        const auto gate = gate_;
        name_space_ = arguments.at("name_space").as_string();
        gate->pass();
        return boost::json::value(1);
      })});
  std::string name_space_;
  Opened opened_;
  std::unique_ptr<Process> process_;
};

TEST_F(HostToolCut, TheProgramHearsThatItsConnectionWasLost) {
  const std::jthread closing([this] { opened_.session->close(); });
  const ExecResult result = process_->wait({});
  gate_->open();
  EXPECT_EQ(
      result.stdout,
      "Error: the connection to the host was lost; whether the call was made is not known.\n");
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(HostToolCut, ACallProcessThatIsKilledTakesTheProgramWithIt) {
  const pid_t agent = agent_of(sandbox_directories().at(0));
  const std::vector<pid_t> calls = children_of(agent);
  ASSERT_EQ(calls.size(), 1U);
  const auto before = processes_in("pid", name_space_);
  ASSERT_FALSE(before.empty()) << name_space_;
  ASSERT_EQ(kill(calls[0], SIGKILL), 0);
  EXPECT_THROW(process_->wait({}), SandboxUnavailable);
  gate_->open();
  opened_.session->close();
  EXPECT_EQ(opened_.session->counters().dispatched, 1U);
  opened_.call->close();
  for (const auto& [pid, start] : before) EXPECT_TRUE(wait_until_gone(pid));
}

TEST_F(HostTools, AreRefusedWhenTheHostHasGone) {
  const Opened opened = open(tools());
  opened.session->close();
  const std::string text =
      opened.output(python(std::string(kPrelude) +
                           "try: t.call('echo')\nexcept t.HostToolError as error: print(error)\n"));
  EXPECT_TRUE(text.starts_with("Error: the host cannot be reached: ")) << text;
}

TEST_F(HostTools, MakeNothingOfGarbageAndManyConnections) {
  const Opened opened = open(tools());
  EXPECT_EQ(opened.output(python(std::string(kPrelude) + R"(
import os, socket
path = os.environ["CASEMATE_HOST_TOOLS"]
for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 64, b"\x08\0\0\0" + b"\xff" * 8,
             b"\x10\0\0\0\x01"):
    s = socket.socket(socket.AF_UNIX); s.connect(path); s.send(data); s.close()
for _ in range(10_000):
    s = socket.socket(socket.AF_UNIX); s.connect(path); s.close()
held = []
for _ in range(70):
    s = socket.socket(socket.AF_UNIX); s.connect(path); held.append(s)
for s in held: s.close()
print(t.call("double", n=5))
)")),
            "10\n");
}

TEST_F(HostTools, WorkOnTheOneRoadThatProgramsTake) {
  const auto registry = tools();
  CodeactSpecOptions options;
  options.host_tools = registry;
  const auto shared = std::shared_ptr<SandboxBackend>(&backend(), [](SandboxBackend*) {});
  const SandboxRouter router({shared}, {.min_isolation = Isolation::container});
  const CodeactWiring wiring{.router = router,
                             .spec = codeact_sandbox_spec(options),
                             .owner = {"a test", {}, {}},
                             .host_tools = registry};
  CodeactRequest request;
  request.code = "import casemate_tools\nprint(casemate_tools.call('double', n=7))\n";
  const CodeactRun run = run_codeact(wiring, key(), request, {});
  EXPECT_EQ(run.result.stdout, "14\n") << run.result.stderr;
  EXPECT_EQ(run.host_tool_calls, 1U);
  router.dispose(key());
}

}  // namespace
}  // namespace casemate::linux_tests
