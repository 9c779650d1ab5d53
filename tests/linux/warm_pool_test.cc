// The warm pool: ready sandboxes, and interpreters that wait for their program.

#include "tests/linux/warm_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

TEST_F(WarmPoolTest, AReadySandboxBecomesTheOneOfWhoeverComesFirst) {
  pooled().acquire(key("first"), spec(), {});
  wait_until_warm();
  const auto ready = backend().list();
  ASSERT_EQ(ready.size(), 2U);
  SandboxSpec labelled = spec();
  labelled.labels = {{"colour", "red"}};
  const auto sandbox = pooled().acquire(key("second"), labelled, {});
  EXPECT_FALSE(sandbox->info().reused) << "nobody has used it";
  EXPECT_EQ(sandbox->exec(shell("echo hello"), {}).stdout, "hello\n");
  bool found = false;
  for (const SandboxRecord& record : ready) found |= record.id == sandbox->info().id;
  EXPECT_TRUE(found) << "it was made before it was asked for";
  expect_agent_first(*sandbox);
  for (const SandboxRecord& record : backend().list()) {
    if (record.id == sandbox->info().id) {
      EXPECT_EQ(record.key, key("second"));
      EXPECT_EQ(record.labels, labelled.labels);
    }
  }
  EXPECT_EQ(pooled().acquire(key("second"), spec(), {})->info().id, sandbox->info().id);
  EXPECT_EQ(pooled().dispose(key("second")), 1);
}

TEST_F(WarmPoolTest, ASpecOfAnotherShapeIsNotServedFromIt) {
  pooled().acquire(key("first"), spec(), {});
  wait_until_warm();
  const auto before = backend().list();
  SandboxSpec other = spec();
  other.resources.pids = stated(17);
  const std::string id = pooled().acquire(key("second"), other, {})->info().id;
  for (const SandboxRecord& record : before) EXPECT_NE(record.id, id);
}

TEST_F(WarmPoolTest, ItsEndEndsWhatNobodyTook) {
  pooled().acquire(key(), spec(), {});
  wait_until_warm();
  end_pooled();
  EXPECT_TRUE(wait_until_empty(state() / "sandboxes"));
}

TEST_F(WarmPoolTest, AnInterpreterThatWaitedIsToItsProgramLikeAFreshOne) {
  const auto held = pooled_sandbox();
  const auto fresh = backend().acquire(key("fresh"), spec(), {});
  await_ticks(ticks_of_a_held_program);
  ASSERT_TRUE(was_held(*held));
  ASSERT_FALSE(was_held(*fresh));
  for (const std::string_view code : {
           "import sys; print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.executable)",
           "print(__name__, __file__, __spec__, __loader__.__class__, __builtins__)",
           "import __main__, sys\n"
           "print(sorted((k, type(v).__name__) for k, v in vars(__main__).items()),"
           " vars(__main__) is globals(), sys.modules['__main__'] is __main__, __main__)",
           "import sys; print(sorted(sys.modules), sys.path_importer_cache.get(__file__, 0))",
           "import os; print(sorted(os.environ.items()), os.getcwd(), oct(os.umask(0)))",
           "import os; print(open('/proc/self/cmdline').read(), open('/proc/self/comm').read())",
           "import os\n"
           "for n in sorted(os.listdir('/proc/self/fd'), key=int):\n"
           "  try: print(n, os.readlink('/proc/self/fd/' + n).split(':')[0])\n"
           "  except OSError: pass",
           "import signal; print([(s, signal.getsignal(s)) for s in signal.valid_signals()"
           " if s < 65], signal.pthread_sigmask(signal.SIG_BLOCK, []))",
           "import threading, os; print(threading.active_count(), os.listdir('/proc/self/task') =="
           " [str(os.getpid())], os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())",
           "import resource; print([resource.getrlimit(n) for n in range(16)])",
           "import locale, sys; print(locale.setlocale(locale.LC_ALL), sys.stdout.encoding,"
           " sys.getfilesystemencoding(), sys.stdin.read(), sys.stdin.isatty(),"
           " sys.stdout.line_buffering)",
           "import stat, os; s = os.stat(__file__); print(stat.filemode(s.st_mode), s.st_uid,"
           " s.st_nlink, s.st_size, open(__file__).read(), os.listdir(os.path.dirname(__file__)))",
           "import inspect, linecache\n"
           "def f(): pass\n"
           "print(inspect.getsource(f), linecache.getline(__file__, 1))",
           "import atexit; atexit.register(print, 'bye'); print('hello')",
           "import sys; sys.exit(7)",
           "import os; os._exit(9)",
           "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
           "import os; os.abort()",
           "def f():\n  raise ValueError('wrong')\nf()",
           "print(1\nfor",
           "print('no newline at the end')",
           "",
           "# only a comment",
           "print('a')\r\nprint('b')\r\n",
           "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))",
           "import os; print(os.sched_getscheduler(0), os.getpriority(0, 0), os.getuid(),"
           " os.getgroups())",
           "import gc, sys; print(gc.get_threshold(), sys.getrecursionlimit(),"
           " sys.getswitchinterval(), sys.dont_write_bytecode)",
       }) {
    wait_until_warm();
    EXPECT_EQ(say(*held, code), say(*fresh, code)) << code;
  }
}

// In memory and processor time, each within what two runs of one program differ by here.
TEST_F(WarmPoolTest, WhatAProgramOfOneThatWaitedSpendsIsCountedLikeThatOfAFreshOne) {
  constexpr std::int64_t kMemory = 48 << 20;
  constexpr std::int64_t kMemoryApart = 12 << 20;
  constexpr std::chrono::milliseconds kCpu{300};
  constexpr std::chrono::milliseconds kCpuApart{150};
  const std::string code = fmt::format(
      "import time\n"
      "begun = time.process_time()\n"
      "held = bytearray(b'x') * {}\n"
      "while time.process_time() < begun + {}: pass\n",
      kMemory, std::chrono::duration<double>(kCpu).count());
  const auto held = pooled_sandbox();
  const auto fresh = backend().acquire(key("fresh"), spec(), {});
  const ExecResult first = run_program(*held, code);
  const ExecResult second = run_program(*fresh, code);
  for (const ExecResult* result : {&first, &second}) {
    EXPECT_EQ(result->outcome, Outcome::exited);
    EXPECT_EQ(result->limit, std::nullopt);
    EXPECT_GE(result->cpu, kCpu);
    EXPECT_GE(result->peak_memory, std::uint64_t{kMemory});
  }
  // A fresh one has its interpreter's start counted, too.
  const std::chrono::nanoseconds start = run_program(*fresh, "").cpu;
  EXPECT_LT(std::chrono::abs(first.cpu - second.cpu), start + kCpuApart);
  EXPECT_LT(std::abs(static_cast<std::int64_t>(first.peak_memory) -
                     static_cast<std::int64_t>(second.peak_memory)),
            kMemoryApart);
}

TEST_F(WarmPoolTest, TwoThatWaitedDoNotShareTheirSeeds) {
  const auto held = pooled_sandbox();
  const std::string code = "import random; print(hash('x'), random.random())";
  const std::string first = say(*held, code);
  wait_until_warm();
  EXPECT_NE(say(*held, code), first);
}

TEST_F(WarmPoolTest, TimeAndProcessorTimeCountFromWhenTheProgramIsThere) {
  const auto held = pooled_sandbox();
  // The interpreter has waited for longer than its program may take.
  await_ticks(101);
  const auto call = held->open_call({.expects = program()}, {});
  call->write_file(program().path, std::string_view("print(1)"), call->directory(), {});
  ExecRequest request = request_for(*call);
  request.timeout = std::chrono::seconds(1);
  const ExecResult result = call->exec(request, {});
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_LT(result.wall, std::chrono::seconds(1));
  EXPECT_GT(result.peak_memory, 1U << 20) << "what the interpreter had taken is its program's";
  EXPECT_GT(result.cpu, std::chrono::nanoseconds{0});
  EXPECT_LT(result.cpu, std::chrono::seconds(1)) << "nothing of what was before";
  wait_until_warm();
  const auto second = held->open_call({.expects = program()}, {});
  second->write_file(program().path, std::string_view("while True: pass"), second->directory(), {});
  request = request_for(*second);
  request.timeout = std::chrono::milliseconds(250);
  EXPECT_EQ(second->exec(request, {}).outcome, Outcome::timed_out);
}

TEST_F(WarmPoolTest, ACallThatIsUsedOtherwiseIsAsIfNothingHadWaitedInIt) {
  const auto held = pooled_sandbox();
  {
    const auto call = held->open_call({.expects = program()}, {});
    EXPECT_EQ(call->exec(shell("ls -A .. ; echo $$"), {}).stdout, "work\n2\n");
  }
  wait_until_warm();
  {
    const auto call = held->open_call({.expects = program()}, {});
    call->write_file(program().path, std::string_view("print(2)"), call->directory(), {});
    EXPECT_EQ(call->read_file(program().path, call->directory(), 100, {}), "print(2)");
    EXPECT_EQ(call->exec(request_for(*call), {}).stdout, "2\n");
  }
  wait_until_warm();
  {
    const auto call = held->open_call({.expects = program()}, {});
    call->write_file(program().path, std::string_view("import sys; print(sys.argv[1])"),
                     call->directory(), {});
    ExecRequest request = request_for(*call);
    std::get<Argv>(request.command).words.emplace_back("word");
    EXPECT_EQ(call->exec(request, {}).stdout, "word\n");
  }
  wait_until_warm();
  const std::string large = "#" + std::string(100000, 'x') + "\nprint(3)\n";
  EXPECT_EQ(run_program(*held, large).stdout, "3\n");
}

TEST_F(WarmPoolTest, AnotherEnvironmentIsNotServedByOneThatWaited) {
  const auto held = pooled_sandbox();
  CallProfile profile{.expects = program()};
  profile.expects->environment["COLOUR"] = "red";
  const auto call = held->open_call(profile, {});
  call->write_file(program().path, std::string_view("import os; print(os.environ['COLOUR'])"),
                   call->directory(), {});
  ExecRequest request = request_for(*call);
  request.environment["COLOUR"] = "red";
  EXPECT_EQ(call->exec(request, {}).stdout, "red\n");
}

TEST_F(WarmPoolTest, WhatWaitsDoesNotMakeItsSandboxBusy) {
  const auto held = pooled_sandbox();
  const std::string id = held->info().id;
  SandboxSpec other = spec();
  other.resources.pids = stated(17);
  // Another process's view of the same key: it may replace a sandbox that nobody uses.
  EXPECT_NE(backend().acquire(key(), other, {})->info().id, id);
}

TEST_F(WarmPoolTest, AProgramThatWaitedEndsWithItsSandbox) {
  const auto held = pooled_sandbox();
  EXPECT_EQ(pooled().dispose(key()), 1);
  EXPECT_THROW(run_program(*held, "print(1)"), SandboxUnavailable);
}

constexpr char kModules[] =
    "import sys\n"
    "print([name for name in ('decimal', 'json', 'secrets', 'no_such_module') if name in "
    "sys.modules])";

TEST_F(WarmPoolTest, ModulesThatWereAskedForAreThereAlready) {
  make_pooled({"decimal", "json", "no_such_module", "secrets"});
  const auto held = pooled_sandbox();
  EXPECT_EQ(run_program(*held, kModules).stdout, "['decimal', 'json', 'secrets']\n");
  wait_until_warm();
  EXPECT_EQ(run_program(*held, "import no_such_module").exit_code, 1)
      << "told to whom it is of use";
}

TEST_F(WarmPoolTest, BeyondItsModulesAProgramFindsWhatItWouldFindWithout) {
  make_pooled({"decimal", "json", "no_such_module", "secrets"});
  const auto held = pooled_sandbox();
  const auto fresh = backend().acquire(key("fresh"), spec(), {});
  for (const std::string_view code : {
           "import sys; print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.executable)",
           "print(__name__, __file__, __spec__, sorted(globals()))",
           "import os; print(sorted(os.environ.items()), os.getcwd(), oct(os.umask(0)))",
           "import os; print(open('/proc/self/cmdline').read(), open('/proc/self/environ').read())",
           "import os; print(sorted(os.listdir('/proc/self/fd')))",
           "import os; print(os.listdir(os.path.dirname(__file__)), os.listdir('.'))",
           "import signal; print([(s, signal.getsignal(s)) for s in signal.valid_signals()"
           " if s < 65], signal.pthread_sigmask(signal.SIG_BLOCK, []))",
           "import threading; print(threading.active_count())",
           "import sys; print(sys.stdin.read(), sys.stdout.encoding, sys.gettrace())",
           "import atexit; atexit.register(print, 'bye'); print('hello')",
           "def f():\n  raise ValueError('wrong')\nf()",
       }) {
    wait_until_warm();
    EXPECT_EQ(say(*held, code), say(*fresh, code)) << code;
  }
}

TEST_F(WarmPoolTest, TwoThatImportedDoNotShareTheirSeeds) {
  make_pooled({"random"});
  const auto held = pooled_sandbox();
  const std::string code = "import random; print(hash('x'), random.random())";
  const std::string first = say(*held, code);
  wait_until_warm();
  EXPECT_NE(say(*held, code), first);
}

TEST_F(WarmPoolTest, AProgramsOwnModuleIsImportedUnlessItsNameWasAskedFor) {
  make_pooled({"decimal"});
  const auto held = pooled_sandbox();
  const auto said = [&](const std::string& name) {
    wait_until_warm();
    const auto call = held->open_call({.expects = program()}, {});
    call->write_file("work/" + name + ".py", std::string_view("own = True\n"), call->directory(),
                     {});
    call->write_file(program().path, "import " + name + "; print(hasattr(" + name + ", 'own'))",
                     call->directory(), {});
    return call->exec(request_for(*call), {}).stdout;
  };
  EXPECT_EQ(said("fractions"), "True\n");
  EXPECT_EQ(said("decimal"), "False\n") << "one of the documented differences";
}

TEST_F(WarmPoolTest, WhatIsNoNameOfAModuleIsRefused) {
  for (const char* name : {"", "a b", "os;", "../os", "a\nb"}) {
    expect_refusal<InvalidArgument>([&] { make_pooled({name}); }, "WarmPool::imports");
  }
  expect_refusal<InvalidArgument>([&] { make_pooled(std::vector<std::string>(65, "os")); },
                                  "65 names");
}

}  // namespace
}  // namespace casemate::linux_tests
