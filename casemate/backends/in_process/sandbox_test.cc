#include "casemate/backends/in_process/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "casemate/core/errors.h"

namespace casemate::in_process {
namespace {

using std::chrono_literals::operator""s;

ExecRequest argv(std::vector<std::string> words) {
  ExecRequest request;
  request.command = Argv{std::move(words)};
  return request;
}

ExecRequest shell(std::string line) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  return request;
}

CallControl stopped() {
  std::stop_source source;
  source.request_stop();
  return {.deadline = {}, .stop = source.get_token()};
}

CallControl late() { return {.deadline = std::chrono::steady_clock::now(), .stop = {}}; }

// -- Programs
// --------------------------------------------------------------------------------------

TEST(InProcessSandbox, PrintsWhatTheFirstMarkerWithinTheCommandSays) {
  InProcessSandbox sandbox(
      {.outputs = {{"b c", "first"}, {"a", "second"}}, .default_stdout = "default"});
  EXPECT_EQ(sandbox.exec(argv({"a", "b c"}), {}).stdout, "first");
  EXPECT_EQ(sandbox.exec(shell("echo a"), {}).stdout, "second");
  const ExecResult result = sandbox.exec(argv({"x"}), {});
  EXPECT_EQ(result.stdout, "default");
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stopped_known);
}

TEST(InProcessSandbox, RecordsCommandsWithTheirDirectoryTimeoutAndEnvironment) {
  InProcessSandbox sandbox;
  const auto call = sandbox.open_call({.id = "0123456789ab"}, {});
  ExecRequest request = argv({"python3", "a b.py"});
  request.timeout = 5s;
  request.environment = {{"NAME", "value"}};
  call->exec(request, {});
  ExecRequest elsewhere = shell("ls | wc");
  elsewhere.directory = "/tmp";
  call->exec(elsewhere, {});
  const std::vector<CommandRecord> commands = sandbox.commands();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0].command, "python3 'a b.py'");
  EXPECT_EQ(commands[0].directory, "/workspace/0123456789ab/work");
  EXPECT_EQ(commands[0].timeout, 5s);
  EXPECT_EQ(commands[0].environment, request.environment);
  EXPECT_EQ(commands[0].call_id, "0123456789ab");
  EXPECT_EQ(commands[1].command, "ls | wc");
  EXPECT_EQ(commands[1].directory, "/tmp");
  EXPECT_EQ(commands[1].timeout, std::nullopt);
}

TEST(InProcessSandbox, ThrowsWhatItWasGivenAfterRecordingIt) {
  InProcessSandbox sandbox({.raises = std::make_exception_ptr(SandboxFileError("no python3", 2))});
  EXPECT_THROW(sandbox.exec(argv({"python3"}), {}), SandboxFileError);
  EXPECT_THROW(sandbox.run_code("1 + 1", 3s, {}), SandboxFileError);
  EXPECT_EQ(sandbox.commands().size(), 1U);
  ASSERT_EQ(sandbox.programs().size(), 1U);
  EXPECT_EQ(sandbox.programs()[0].code, "1 + 1");
  EXPECT_EQ(sandbox.programs()[0].timeout, 3s);
}

TEST(InProcessSandbox, RunsCodeByTheSameScript) {
  InProcessSandbox sandbox({.outputs = {{"+", "2"}}, .default_stdout = "none"});
  EXPECT_EQ(sandbox.run_code("1 + 1", {}, {}).stdout, "2");
  EXPECT_EQ(sandbox.run_code("1", {}, {}).stdout, "none");
  EXPECT_THROW(sandbox.run_code("1", {}, stopped()), SandboxCancelled);
  EXPECT_THROW(sandbox.run_code("1", {}, late()), SandboxTimeout);
}

TEST(InProcessSandbox, AScriptActsLikeAProgram) {
  InProcessSandbox sandbox({.on_exec = [](const Execution& execution) {
    EXPECT_EQ(execution.command, "cat in.txt");
    EXPECT_EQ(execution.call_id, "0123456789ab");
    EXPECT_EQ(execution.call_directory, "/workspace/0123456789ab");
    EXPECT_EQ(execution.directory, "/workspace/0123456789ab/work");
    EXPECT_EQ(execution.request.environment.at("NAME"), "value");
    EXPECT_EQ(execution.stdin_bytes, "typed");
    const std::string text = execution.store.bytes(execution.directory + "/in.txt").value();
    execution.store.put_file(execution.directory + "/out.txt", text + "!");
    return finished(text, 3, "oops");
  }});
  const auto call = sandbox.open_call({.id = "0123456789ab"}, {});
  call->write_file("in.txt", std::string_view("hello"), call->directory() + "/work", {});
  ExecRequest request = argv({"cat", "in.txt"});
  request.environment = {{"NAME", "value"}};
  request.stdin_mode = StdinMode::piped;
  const auto process = call->start(request, {});
  process->write_stdin(std::string_view("ty"), {});
  process->write_stdin(std::string_view("ped"), {});
  process->close_stdin();
  process->write_stdin(std::string_view("dropped"), {});
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.stdout, "hello");
  EXPECT_EQ(result.stderr, "oops");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(call->read_file("out.txt", call->directory() + "/work", 99, {}), "hello!");
}

TEST(InProcessSandbox, AScriptRunsOnceHoweverOftenItsResultIsAsked) {
  int runs = 0;
  InProcessSandbox sandbox({.on_exec = [&](const Execution&) {
    ++runs;
    return ExecResult();
  }});
  const auto call = sandbox.open_call({}, {});
  const auto process = call->start(argv({"x"}), {});
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(process->wait({}).exit_code, 0) << "an exit without a status is status 0";
  process->wait(stopped());
  process->wait(late());
  EXPECT_EQ(runs, 1);
}

TEST(InProcessSandbox, HandsOutputToTheCallbackAndCapsWhatItKeeps) {
  InProcessSandbox sandbox(
      {.on_exec = [](const Execution&) { return finished("0123456789", 0, "e"); }});
  ExecRequest request = argv({"x"});
  request.capture_bytes = 4;
  std::string out;
  std::string err;
  request.on_output = [&](OutputStream stream, std::span<const char> bytes) {
    (stream == OutputStream::out ? out : err).append(bytes.begin(), bytes.end());
  };
  const ExecResult result = sandbox.exec(request, {});
  EXPECT_EQ(out, "0123456789");
  EXPECT_EQ(err, "e");
  EXPECT_EQ(result.stdout, "0189");
  EXPECT_EQ(result.stdout_missing_bytes, 6U);
  EXPECT_EQ(result.stdout_cut_at, 2U);
  EXPECT_EQ(result.stderr, "e");
  EXPECT_EQ(result.stderr_missing_bytes, 0U);
}

TEST(InProcessSandbox, AThrowingCallbackEndsTheProgramAndReachesTheCaller) {
  InProcessSandbox sandbox({.default_stdout = "x"});
  const auto call = sandbox.open_call({}, {});
  ExecRequest request = argv({"x"});
  request.on_output = [](OutputStream, std::span<const char>) { throw std::domain_error("mine"); };
  const auto process = call->start(request, {});
  EXPECT_THROW(process->wait({}), std::domain_error);
  EXPECT_EQ(process->wait({}).signal, "SIGKILL");
}

TEST(InProcessSandbox, StopIsAnOutcomeOfAProgramAndTheDeadlineTheProvidersFault) {
  int runs = 0;
  InProcessSandbox sandbox({.on_exec = [&](const Execution&) {
    ++runs;
    return finished();
  }});
  const auto call = sandbox.open_call({}, {});
  const ExecResult result = call->start(argv({"x"}), {})->wait(stopped());
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_EQ(result.exit_code, std::nullopt);
  const auto process = call->start(argv({"x"}), {});
  EXPECT_THROW(process->wait(late()), SandboxTimeout);
  EXPECT_EQ(process->wait({}).outcome, Outcome::signaled);
  EXPECT_EQ(runs, 0);
}

TEST(InProcessSandbox, ASignalEndsAProgramThatDidNotRunYet) {
  InProcessSandbox sandbox({.default_stdout = "x"});
  const auto call = sandbox.open_call({}, {});
  const auto process = call->start(argv({"x"}), {});
  process->signal(SIGUSR1);
  process->signal(SIGTERM);
  process->signal(SIGKILL);
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.outcome, Outcome::signaled);
  EXPECT_EQ(result.signal, "SIGTERM");
  EXPECT_EQ(result.stdout, "");
  process->signal(SIGKILL);
  EXPECT_EQ(sandbox.signals(), (std::vector{SIGUSR1, SIGTERM, SIGKILL, SIGKILL}));
  const auto harmless = call->start(argv({"x"}), {});
  harmless->signal(SIGUSR1);
  EXPECT_EQ(harmless->wait({}).outcome, Outcome::exited);
}

TEST(InProcessSandbox, RefusesNumbersThatAreNoSignal) {
  InProcessSandbox sandbox;
  const auto call = sandbox.open_call({}, {});
  const auto process = call->start(argv({"x"}), {});
  for (const int number : {0, -1, 65}) EXPECT_THROW(process->signal(number), InvalidArgument);
  process->signal(1);
  process->signal(64);
}

TEST(InProcessSandbox, RefusesInputForAProgramWithoutAPipe) {
  InProcessSandbox sandbox;
  const auto call = sandbox.open_call({}, {});
  const auto process = call->start(argv({"x"}), {});
  EXPECT_THROW(process->write_stdin(std::string_view("x"), {}), InvalidArgument);
  ExecRequest piped = argv({"x"});
  piped.stdin_mode = StdinMode::piped;
  EXPECT_THROW(call->start(piped, {})->write_stdin(std::string_view("x"), late()), SandboxTimeout);
}

TEST(InProcessSandbox, RefusesAProgramWithoutANameOrDirectory) {
  InProcessSandbox sandbox({.seed_files = {{"/workspace/link", EntryKind::symlink}}});
  EXPECT_THROW(sandbox.exec(argv({}), {}), InvalidArgument);
  ExecRequest request = argv({"x"});
  request.directory = "missing";
  EXPECT_THROW(sandbox.exec(request, {}), SandboxFileError);
  request.directory = "/workspace/link";
  EXPECT_THROW(sandbox.exec(request, {}), SandboxPathRefused);
  EXPECT_TRUE(sandbox.commands().empty());
}

// -- Calls
// -----------------------------------------------------------------------------------------

TEST(InProcessSandbox, ACallHasADirectoryOfItsOwnUntilItCloses) {
  InProcessSandbox sandbox;
  const auto call = sandbox.open_call({}, {});
  EXPECT_EQ(call->id().size(), 12U);
  EXPECT_EQ(call->directory(), "/workspace/" + call->id());
  EXPECT_TRUE(sandbox.store().contains(call->directory() + "/work"));
  call->write_file("program/program.py", std::string_view("1"), call->directory(), {});
  sandbox.store().put_file("/workspace/kept", "kept");
  EXPECT_FALSE(sandbox.calls().at(0).closed);

  EXPECT_TRUE(call->close());
  EXPECT_TRUE(call->close());
  EXPECT_TRUE(sandbox.calls().at(0).closed);
  EXPECT_FALSE(sandbox.store().contains(call->directory()));
  EXPECT_TRUE(sandbox.store().contains("/workspace/kept"));
}

TEST(InProcessSandbox, ADestroyedCallIsClosed) {
  InProcessSandbox sandbox;
  sandbox.open_call({.id = "0123456789ab"}, {}).reset();
  EXPECT_TRUE(sandbox.calls().at(0).closed);
  EXPECT_FALSE(sandbox.store().contains("/workspace/0123456789ab"));
}

TEST(InProcessSandbox, AClosedCallServesNothingAndItsProgramsAreGone) {
  InProcessSandbox sandbox({.default_stdout = "x"});
  const auto call = sandbox.open_call({}, {});
  const auto process = call->start(argv({"x"}), {});
  call->close();
  EXPECT_EQ(process->wait({}).signal, "SIGKILL");
  const std::string& directory = call->directory();
  EXPECT_THROW(call->start(argv({"x"}), {}), SandboxUnavailable);
  EXPECT_THROW(call->write_file("a", {}, directory, {}), SandboxUnavailable);
  EXPECT_THROW(call->stat_file("a", directory, {}), SandboxUnavailable);
  EXPECT_THROW(call->read_file("a", directory, 1, {}), SandboxUnavailable);
  EXPECT_THROW(call->remove("a", directory, Recursive::no, {}), SandboxUnavailable);
  EXPECT_THROW(call->list_dir("", directory, {}), SandboxUnavailable);
}

TEST(InProcessSandbox, CanSayThatTheEndOfACallIsNotKnown) {
  InProcessSandbox sandbox({.close_is_known = false});
  EXPECT_FALSE(sandbox.open_call({}, {})->close());
}

TEST(InProcessSandbox, TakesAnIdOfTwelveHexDigitsOnce) {
  InProcessSandbox sandbox;
  for (const std::string id : {"0123456789a", "0123456789abc", "0123456789AB", "0123456789a/"}) {
    EXPECT_THROW(sandbox.open_call({.id = id}, {}), InvalidArgument) << id;
  }
  auto call = sandbox.open_call({.id = "0123456789ab"}, {});
  EXPECT_THROW(sandbox.open_call({.id = "0123456789ab"}, {}), InvalidArgument);
  call.reset();
  EXPECT_EQ(sandbox.open_call({.id = "0123456789ab"}, {})->id(), "0123456789ab");
}

TEST(InProcessSandbox, MakesItsWorkDirectoryUnlessSomethingElseWasPutThere) {
  SandboxSpec elsewhere;
  elsewhere.kind = "codeact";
  elsewhere.work_dir = "/srv/work";
  InProcessSandbox fresh;
  EXPECT_TRUE(fresh.store().contains("/workspace"));
  fresh.serve({}, {}, elsewhere, false);
  EXPECT_TRUE(fresh.store().contains("/srv/work"));

  InProcessSandbox seeded(
      {.seed_files = {{"/workspace", EntryKind::symlink}, {"/srv/work", EntryKind::symlink}}});
  seeded.serve({}, {}, elsewhere, false);
  EXPECT_EQ(seeded.store().paths_of(EntryKind::symlink),
            (std::vector<std::string>{"/srv/work", "/workspace"}));
}

TEST(InProcessSandbox, CallsOutliveTheHandle) {
  auto sandbox = std::make_unique<InProcessSandbox>(InProcessSandboxOptions{.default_stdout = "x"});
  const auto call = sandbox->open_call({}, {});
  sandbox.reset();
  EXPECT_EQ(call->exec(argv({"x"}), {}).stdout, "x");
}

// -- Files
// -----------------------------------------------------------------------------------------

TEST(InProcessSandbox, ServesFilesInACallAndWithoutOne) {
  InProcessSandbox sandbox({.seed_files = {{"/workspace/seed", "seed"}}});
  const auto call = sandbox.open_call({}, {});
  for (GuestFiles* files :
       {static_cast<GuestFiles*>(&sandbox), static_cast<GuestFiles*>(call.get())}) {
    EXPECT_EQ(files->read_file("seed", "/workspace", 4, {}), "seed");
    files->write_file("a", std::string_view("bytes"), "/workspace", {});
    EXPECT_EQ(files->stat_file("a", "/workspace", {})->size_bytes, 5U);
    EXPECT_EQ(files->list_dir("", "/workspace", {}).size(), 3U);
    files->remove("a", "/workspace", Recursive::no, {});
    EXPECT_EQ(files->stat_file("a", "/workspace", {}), std::nullopt);
  }
}

TEST(InProcessSandbox, EveryOperationObeysItsControl) {
  InProcessSandbox sandbox;
  const auto call = sandbox.open_call({}, {});
  const auto refused = [&](const CallControl& control) {
    int count = 0;
    const auto expect = [&](const auto& action) {
      try {
        action();
      } catch (const SandboxCancelled&) {
        ++count;
      } catch (const SandboxTimeout&) {
        ++count;
      }
    };
    expect([&] { sandbox.open_call({}, control); });
    expect([&] { call->start(argv({"x"}), control); });
    for (GuestFiles* files :
         {static_cast<GuestFiles*>(&sandbox), static_cast<GuestFiles*>(call.get())}) {
      expect([&] { files->write_file("a", {}, "/workspace", control); });
      expect([&] { files->stat_file("a", "/workspace", control); });
      expect([&] { files->read_file("a", "/workspace", 1, control); });
      expect([&] { files->remove("a", "/workspace", Recursive::no, control); });
      expect([&] { files->list_dir("", "/workspace", control); });
    }
    return count;
  };
  EXPECT_EQ(refused(stopped()), 12);
  EXPECT_EQ(refused(late()), 12);
  EXPECT_FALSE(sandbox.store().contains("/workspace/a"));
}

TEST(InProcessSandbox, TheHookComesBeforeEveryOperationAndMayRefuseIt) {
  std::vector<std::string> seen;
  bool refuse = false;
  InProcessSandbox sandbox({.before = [&](Operation operation, std::string_view path) {
    seen.push_back(std::string(to_string(operation)) + " " + std::string(path));
    if (refuse) throw SandboxUnavailable("died");
  }});
  const auto call = sandbox.open_call({.id = "0123456789ab"}, {});
  refuse = true;
  EXPECT_THROW(sandbox.open_call({.id = "ba9876543210"}, {}), SandboxUnavailable);
  EXPECT_THROW(call->start(argv({"x", "y z"}), {}), SandboxUnavailable);
  EXPECT_THROW(call->write_file("a", {}, "/workspace", {}), SandboxUnavailable);
  EXPECT_THROW(call->stat_file("b", "/workspace", {}), SandboxUnavailable);
  EXPECT_THROW(call->read_file("c", "/workspace", 1, {}), SandboxUnavailable);
  EXPECT_THROW(call->remove("d", "/workspace", Recursive::no, {}), SandboxUnavailable);
  EXPECT_THROW(call->list_dir("e", "/workspace", {}), SandboxUnavailable);
  EXPECT_EQ(seen, (std::vector<std::string>{"open_call 0123456789ab", "open_call ba9876543210",
                                            "start x 'y z'", "write_file a", "stat_file b",
                                            "read_file c", "remove d", "list_dir e"}));
  EXPECT_FALSE(sandbox.store().contains("/workspace/a"));
  EXPECT_TRUE(sandbox.commands().empty());
  EXPECT_EQ(sandbox.calls().size(), 1U);
}

TEST(InProcessSandbox, MayBeUsedFromSeveralThreads) {
  InProcessSandbox sandbox({.on_exec = [](const Execution& execution) {
    execution.store.put_file(execution.directory + "/out", execution.command);
    return finished(execution.command);
  }});
  constexpr int kRounds = 50;
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&, number] {
        for (int round = 0; round < kRounds; ++round) {
          const auto call = sandbox.open_call({}, {});
          const std::string word = "t" + std::to_string(number);
          EXPECT_EQ(call->exec(argv({word}), {}).stdout, word);
          EXPECT_EQ(call->read_file("out", call->directory() + "/work", 99, {}), word);
        }
      });
    }
  }
  EXPECT_EQ(sandbox.calls().size(), 4U * kRounds);
  EXPECT_EQ(sandbox.store().contents().size(), 0U);
}

TEST(InProcessSandbox, RecordsThatAProgramIsToStayAndRefusesOneWithInputOrAListener) {
  InProcessSandbox sandbox;
  const auto call = sandbox.open_call({}, {});
  ExecRequest request = argv({"serve"});
  request.lifetime = Lifetime::sandbox;
  call->exec(request, {});
  EXPECT_EQ(sandbox.commands().at(0).lifetime, Lifetime::sandbox);
  request.stdin_mode = StdinMode::piped;
  EXPECT_THROW(call->exec(request, {}), InvalidArgument);
  request.stdin_mode = StdinMode::empty;
  request.on_output = [](OutputStream, std::span<const char>) {};
  EXPECT_THROW(call->exec(request, {}), InvalidArgument);
  EXPECT_EQ(sandbox.commands().size(), 1U);
}

}  // namespace
}  // namespace casemate::in_process
