// Programs call the functions that the host offered to their run, and no others'.

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"
#include "casemate/conformance/tool_run.h"
#include "casemate/conformance/trial.h"

namespace casemate::conformance {
namespace {

using Function = HostToolFunction;

// How long a function waits for what a good transport brings at once.
constexpr std::chrono::seconds kPatience{5};

std::shared_ptr<HostToolRegistry> offer(std::string name, Function function,
                                        std::uint64_t max_calls = 16) {
  HostToolRegistryOptions options;
  options.max_host_tool_calls_per_run = max_calls;
  auto registry = std::make_shared<HostToolRegistry>(std::move(options));
  HostTool tool;
  tool.name = std::move(name);
  tool.description = "a function of a probe's";
  tool.function = std::move(function);
  tool.parameters = R"({"type":"object"})";
  tool.declaration =
      HostToolDeclaration{.source = std::nullopt, .sink = std::nullopt, .identity = std::nullopt};
  registry->register_tool(std::move(tool));
  return registry;
}

std::shared_ptr<HostToolRegistry> echo(std::uint64_t max_calls = 16) {
  return offer(
      "echo",
      [](const boost::json::object& arguments, const HostToolContext&) {
        return boost::json::value(arguments);
      },
      max_calls);
}

// A text of JSON is one of Python's, too.
std::string python_string(std::string_view text) {
  return serialise_json(boost::json::value(boost::json::string(text)));
}

void expect_printed(std::string_view step, const ExecResult& seen, const std::string& expected) {
  if (seen.outcome == Outcome::exited && seen.exit_code == 0 && seen.stdout == expected) return;
  ExecResult good;
  good.exit_code = 0;
  good.stdout = expected;
  throw Unmet(std::string(step), shown(good), shown(seen));
}

void expect_dispatched(std::string_view step, const ToolRun& run, std::uint64_t expected) {
  const std::uint64_t seen = run.counters().dispatched;
  if (seen == expected) return;
  throw Unmet(std::string(step), fmt::format("{} calls at the host", expected),
              fmt::format("{} calls", seen));
}

void a_call_goes_there_and_back(Trial& trial) {
  ToolRun run(trial, echo());
  const std::string program =
      "sent = {'name': 'x', 'list': [1, 2.5, None, True, 'k\\u016f\\u0148'], 'deep': {'a': {}}}\n"
      "print(call('echo', **sent) == sent)\n";
  expect_printed("a call with every kind of JSON value", run.run(program, trial.control()),
                 "True\n");
  expect_dispatched("after one call", run, 1);
}

void calls_run_in_parallel(Trial& trial) {
  // Each waits for the other three.
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    int arrived = 0;
    std::chrono::steady_clock::time_point until{};
  };
  constexpr int kCallers = 4;
  auto meeting = std::make_shared<Meeting>();
  ToolRun run(trial, offer("meet", [meeting](const boost::json::object&, const HostToolContext&) {
                std::unique_lock lock(meeting->mutex);
                // The first one sets the time for all.
                if (meeting->arrived++ == 0) {
                  meeting->until = std::chrono::steady_clock::now() + kPatience;
                }
                meeting->changed.notify_all();
                return boost::json::value(meeting->changed.wait_until(
                    lock, meeting->until, [&] { return meeting->arrived >= kCallers; }));
              }));
  const std::string program = fmt::format(
      "import threading\n"
      "met = []\n"
      "threads = [threading.Thread(target=lambda: met.append(call('meet'))) for _ in range({})]\n"
      "for thread in threads: thread.start()\n"
      "for thread in threads: thread.join()\n"
      "print(met)\n",
      kCallers);
  expect_printed("calls of four threads that wait for one another",
                 run.run(program, trial.control()), "[True, True, True, True]\n");
}

void a_call_past_the_cap_is_refused(Trial& trial) {
  ToolRun run(trial, echo(2));
  const std::string program =
      "for number in range(3):\n"
      "    try:\n"
      "        print(call('echo', n=number)['n'])\n"
      "    except HostToolError as error:\n"
      "        print(str(error).startswith('Error: '))\n";
  expect_printed("three calls where two are allowed", run.run(program, trial.control()),
                 "0\n1\nTrue\n");
}

void a_child_process_may_call(Trial& trial) {
  ToolRun run(trial, echo());
  const std::string child =
      std::string(run.caller()) + "print(call('echo', who='started')['who'])\n";
  const std::string program = fmt::format(
      "import os, subprocess, sys\n"
      "subprocess.run([sys.executable, '-c', {}], check=True)\n"
      "if os.fork() == 0:\n"
      "    print(call('echo', who='forked')['who'], flush=True)\n"
      "    os._exit(0)\n"
      "os.wait()\n"
      "print(call('echo', who='parent')['who'])\n",
      python_string(child));
  expect_printed("calls of a child that was started, one that was forked, and the program",
                 run.run(program, trial.control()), "started\nforked\nparent\n");
  expect_dispatched("after three calls", run, 3);
}

void another_run_is_refused(Trial& trial) {
  ToolRun run(trial, echo());
  // The trial's own call was offered nothing; it lives in the same sandbox and knows the address.
  ExecRequest request;
  request.command =
      Argv{{"python3", "-c",
            std::string(kChannelCaller) + "try:\n    print(call('echo'))\n"
                                          "except OSError:\n    print('nobody there')\n"}};
  request.environment["CASEMATE_HOST_TOOLS"] = run.call().host_tool_address();
  expect_printed("a call to the run's address from another call of the sandbox",
                 trial.call().exec(request, trial.control()), "nobody there\n");
  expect_dispatched("after a call from elsewhere", run, 0);
  expect_printed("a call from the run itself", run.run("print(call('echo'))", trial.control()),
                 "{}\n");
}

void calls_are_answered_after_a_cancellation(Trial& trial) {
  {
    std::stop_source stop;
    ToolRun run(
        trial, offer("cancel", [&stop](const boost::json::object&, const HostToolContext& context) {
          stop.request_stop();
          // Until the run is closed, as one that a caller gave up on does.
          std::mutex mutex;
          std::condition_variable_any changed;
          std::unique_lock lock(mutex);
          changed.wait_for(lock, context.stop, kPatience, [] { return false; });
          return boost::json::value("too late");
        }));
    CallControl control = trial.control();
    control.stop = stop.get_token();
    const ExecResult result = run.run("print(call('cancel'))", control);
    ExecResult expected;
    expected.outcome = Outcome::cancelled;
    if (result.outcome != expected.outcome || result.stdout != expected.stdout) {
      throw Unmet("a program that is cancelled while it waits for its call's answer",
                  shown(expected), shown(result));
    }
  }
  ToolRun next(trial, echo());
  expect_printed("a call of the next run", next.run("print(call('echo', n=1))", trial.control()),
                 "{'n': 1}\n");
}

// Says where it listens by a file that appears as a whole; ends when somebody asks it to, or nobody
// comes.
constexpr std::string_view kResident = R"py(
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
server.settimeout(20)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
connection, _ = server.accept()
connection.sendall(b"still here")
)py";

constexpr std::string_view kVisitor = R"py(
import os, socket, sys, time
until = time.monotonic() + float(sys.argv[2])
while not os.path.exists(sys.argv[1]):
    if time.monotonic() > until:
        sys.exit("it left no file")
    time.sleep(0.01)
with open(sys.argv[1]) as file:
    port = int(file.read())
with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
    print(connection.makefile().read())
)py";

void a_program_may_outlive_its_call(Trial& trial) {
  // Of the sandbox, not of a call.
  const std::string said = trial.spec().work_dir + "/port-" + fresh_mark();
  {
    const auto other = trial.sandbox().open_call({}, trial.control());
    ExecRequest request;
    request.command = Argv{{"python3", "-c", std::string(kResident), said}};
    request.lifetime = Lifetime::sandbox;
    other->start(request, trial.control());
    if (!other->close()) {
      throw Unmet("closing the call of a program with the sandbox's lifetime",
                  "nothing else of the call is left", "its end cannot be shown");
    }
  }
  const auto patience = std::to_string(kPatience.count());
  expect_printed("a visit to a program of a call that was closed",
                 trial.run({"python3", "-c", std::string(kVisitor), said, patience}),
                 "still here\n");
}

std::string files(const BackendDeclarations& declared) {
  return declared.host_tool_transport == HostToolTransport::files
             ? "over files calls go one at a time, to no address"
             : "";
}

std::string launched(const BackendDeclarations& declared) {
  return declared.host_tool_transport == HostToolTransport::files
             ? "over files the program of every probe outlives the exec that launched it"
             : "";
}

}  // namespace

std::span<const Probe> host_tools_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {"a-call-goes-there-and-back", "a program calls a function of the host's and gets its value",
       a_call_goes_there_and_back},
      {"calls-run-in-parallel",
       "calls of several threads are under way at once",
       calls_run_in_parallel,
       {},
       files},
      {"a-call-past-the-cap-is-refused", "one call too many is refused, and the program goes on",
       a_call_past_the_cap_is_refused},
      {"a-child-process-may-call", "children of the program may call, however they were made",
       a_child_process_may_call},
      {"another-run-is-refused",
       "no other call of the sandbox can call in the run's name",
       another_run_is_refused,
       {},
       files},
      {"calls-are-answered-after-a-cancellation",
       "a program is cancelled in the middle of a call, and the next run is answered",
       calls_are_answered_after_a_cancellation},
      {"a-program-may-outlive-its-call",
       "a program with the sandbox's lifetime is met by the next through its files and on loopback",
       a_program_may_outlive_its_call,
       {},
       launched},
  });
  return kProbes;
}

}  // namespace casemate::conformance
