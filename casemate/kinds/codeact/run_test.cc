#include "casemate/kinds/codeact/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "casemate/kinds/codeact/scripted_test.h"
#include "casemate/tool/refusals.h"
#include "tests/support/expect_refusal.h"

namespace casemate::codeact {
namespace {

using in_process::Operation;

// -- How a program is run ------------------------------------------------------------------------

TEST(RunCodeact, StartsTheInterpreterOnTheProgramInItsOwnDirectory) {
  Scripted scripted([](const Program& program) {
    EXPECT_EQ(program.source(), "print(1)");
    return exited(0, "1\n");
  });
  CodeactRequest request = code();
  request.arguments = {"-x", "two words"};
  const CodeactRun run = scripted.run(request);
  EXPECT_EQ(run.result.stdout, "1\n");

  const auto command = scripted.sandbox->commands().at(0);
  const std::string directory = scripted.sandbox->calls().at(0).directory;
  EXPECT_EQ(command.command,
            "/usr/bin/python3 " + directory + "/program/program.py -x 'two words'");
  EXPECT_EQ(command.directory, directory + "/work");
  EXPECT_EQ(command.timeout, std::chrono::seconds(120));
}

TEST(RunCodeact, HandsTheProgramsBytesOnUnchanged) {
  const std::string source("\xef\xbb\xbf# \xe9\r\nprint(1)\0", 17);
  Scripted scripted([&](const Program& program) {
    EXPECT_EQ(program.source(), source);
    return exited();
  });
  scripted.run(code(source));
  Scripted empty([&](const Program& program) {
    EXPECT_EQ(program.source(), "");
    return exited();
  });
  empty.run(code(""));
}

TEST(RunCodeact, GivesTheInterpreterItsEnvironment) {
  Scripted scripted;
  CodeactRequest request = code();
  request.environment = {{"NAME", "value"}, {"PYTHONUNBUFFERED", ""}, {"PYTHONPATH", "/opt/lib"}};
  scripted.run(request);
  EXPECT_EQ(scripted.sandbox->commands().at(0).environment,
            (std::map<std::string, std::string>{{"NAME", "value"},
                                                {"PYTHONPATH", "/casemate/python:/opt/lib"},
                                                {"PYTHONUNBUFFERED", ""},
                                                {"PYTHONNOUSERSITE", "1"},
                                                {"PYTHONDONTWRITEBYTECODE", "1"}}));
  EXPECT_EQ(codeact_environment({}).at("PYTHONPATH"), "/casemate/python");
}

TEST(RunCodeact, PutsSharedFilesByteForByteIntoTheCurrentDirectory) {
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  Scripted scripted([&](const Program& program) {
    EXPECT_EQ(program.read("data/all.bin"), every_byte);
    EXPECT_EQ(program.read("empty"), "");
    EXPECT_EQ(program.read("not asked for"), std::nullopt);
    return exited();
  });
  scripted.wiring.file_store = std::make_shared<InMemoryStore>(std::map<std::string, std::string>{
      {"data/all.bin", every_byte}, {"empty", ""}, {"not asked for", "x"}});
  scripted.run(with_files({"data/all.bin", "empty"}));
}

TEST(RunCodeact, ReservesNoNameForTheProgram) {
  Scripted scripted([](const Program& program) {
    EXPECT_EQ(program.read("program.py"), "shared");
    EXPECT_EQ(program.source(), "print(1)");
    return exited();
  });
  scripted.wiring.file_store = std::make_shared<InMemoryStore>(
      std::map<std::string, std::string>{{"program.py", "shared"}, {"outputs.json", "[]"}});
  scripted.run(with_files({"program.py", "outputs.json"}));
}

TEST(RunCodeact, PassesNamesOnThatAShellOrAGlobWouldTakeApart) {
  // IN-04: a name is a value, never a part of a command or a program.
  const std::vector<std::string> names{"x';touch pwn;'.txt",
                                       "$(touch pwn).txt",
                                       "`touch pwn`.txt",
                                       "a b;touch pwn.txt",
                                       "-rf",
                                       "--help",
                                       "x\"; import os; #",
                                       "*"};
  std::map<std::string, std::string> files;
  for (const std::string& name : names) files[name] = name;
  Scripted scripted([&](const Program& program) {
    for (const std::string& name : names) EXPECT_EQ(program.read(name), name);
    return exited();
  });
  scripted.wiring.file_store = std::make_shared<InMemoryStore>(files);
  scripted.run(with_files(names));
  EXPECT_EQ(scripted.sandbox->commands().at(0).command.find("pwn"), std::string::npos);
}

TEST(RunCodeact, ForwardsADescriptorAsStandardInput) {
  StdinMode mode = StdinMode::piped;
  int descriptor = 0;
  Scripted scripted([&](const Program& program) {
    mode = program.execution().request.stdin_mode;
    descriptor = program.execution().request.stdin_descriptor;
    return exited();
  });
  scripted.run(code());
  EXPECT_EQ(mode, StdinMode::empty);
  CodeactRequest request = code();
  request.stdin_descriptor = 0;
  scripted.run(request);
  EXPECT_EQ(mode, StdinMode::forwarded);
  EXPECT_EQ(descriptor, 0);
}

TEST(RunCodeact, TellsEachStepBeforeItBegins) {
  Scripted scripted([](const Program&) { return exited(); }, {.outputs = CodeactOutputs::declared});
  CodeactRequest request = code();
  request.outputs = {"a"};
  std::vector<std::string> steps;
  request.progress = [&](std::string_view step) { steps.emplace_back(step); };
  scripted.run(request);
  EXPECT_EQ(steps, (std::vector<std::string>{"preparing the sandbox", "running the program",
                                             "collecting outputs"}));
}

TEST(RunCodeact, PassesOutputOnWholeAndKeepsHeadAndTail) {
  Scripted scripted([](const Program&) { return exited(0, std::string(1000, 'x'), "err"); });
  scripted.wiring.capture_bytes = 100;
  CodeactRequest request = code();
  std::string seen;
  request.on_output = [&](OutputStream stream, std::span<const char> bytes) {
    if (stream == OutputStream::out) seen.append(bytes.begin(), bytes.end());
  };
  const CodeactRun run = scripted.run(request);
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_EQ(run.result.stdout.size(), 100U);
  EXPECT_EQ(run.result.stdout_missing_bytes, 900U);
  EXPECT_EQ(run.result.stderr, "err");
}

TEST(RunCodeact, LetsPassWhatAListenerThrewAndLeavesNothing) {
  Scripted scripted([](const Program&) { return exited(0, "text"); });
  CodeactRequest request = code();
  request.on_output = [](OutputStream, std::span<const char>) { throw std::logic_error("mine"); };
  EXPECT_THROW(scripted.run(request), std::logic_error);
  EXPECT_TRUE(scripted.sandbox->calls().at(0).closed);
}

TEST(RunCodeact, MeasuresItsSteps) {
  Scripted scripted;
  const CodeactTimings timings = scripted.run(code()).timings;
  EXPECT_GT(timings.acquire.count(), 0);
  EXPECT_GT(timings.stage.count(), 0);
  EXPECT_GT(timings.run.count(), 0);
  EXPECT_GE(timings.total, timings.acquire + timings.stage + timings.run + timings.collect);
}

// -- Before the program began --------------------------------------------------------------------

TEST(RunCodeact, NamesTheImageThatHasNoInterpreter) {
  for (const int error : {ENOENT, EACCES}) {
    Scripted scripted([](const Program&) { return exited(); }, {},
                      {.raises = std::make_exception_ptr(SandboxFileError("exec", error))});
    expect_refusal<SandboxImageInvalid>([&] { scripted.run(code()); },
                                        {"'host'", "no /usr/bin/python3 that can"});
    EXPECT_TRUE(scripted.sandbox->calls().at(0).closed);
  }
  Scripted other([](const Program&) { return exited(); }, {},
                 {.raises = std::make_exception_ptr(SandboxFileError("exec", ENOMEM))});
  expect_refusal<SandboxFileError>([&] { other.run(code()); }, "exec");
}

// Throws `SandboxUnavailable` from the first `times` operations of that kind.
in_process::InProcessSandboxOptions failing(Operation operation, int times) {
  return {
      .before = [operation, left = std::make_shared<int>(times)](Operation each, std::string_view) {
        if (each == operation && (*left)-- > 0) throw SandboxUnavailable("connection refused");
      }};
}

TEST(RunCodeact, AcquiresADeadSandboxAnewOnce) {
  // LC-08
  for (const Operation operation :
       {Operation::open_call, Operation::write_file, Operation::start}) {
    Scripted scripted([](const Program&) { return exited(0, "ran"); }, {}, failing(operation, 1));
    const CodeactRun run = scripted.run(code());
    EXPECT_EQ(run.result.stdout, "ran");
    EXPECT_EQ(scripted.backend->keys().size(), 2U);
    EXPECT_TRUE(run.notes.empty()) << "nothing was lost with a sandbox that was new";
    EXPECT_NE(scripted.log.find("connection refused"), std::string::npos);
    for (const auto& call : scripted.sandbox->calls()) EXPECT_TRUE(call.closed);
  }
}

TEST(RunCodeact, SaysWhatWasLostWithASandboxThatWasKnown) {
  // LC-08
  const auto fail = std::make_shared<std::function<void()>>();
  Scripted scripted([](const Program&) { return exited(); }, {},
                    {.before = [fail](Operation operation, std::string_view) {
                      if (operation != Operation::start || !*fail) return;
                      std::exchange(*fail, {})();
                      throw SandboxUnavailable("gone");
                    }});
  EXPECT_TRUE(scripted.run(code()).notes.empty());
  *fail = [&] { scripted.backend->dispose(scripted.backend->keys().back()); };
  const CodeactRun run = scripted.run(code());
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_NE(run.notes.front().find("made anew"), std::string::npos);
  *fail = [] {};
  EXPECT_THAT(scripted.run(code()).notes, testing::IsEmpty()) << "it lives, and so does all in it";
}

TEST(RunCodeact, DisposesADeadSandboxQuietly) {
  // LC-08
  in_process::InProcessSandboxOptions options = failing(Operation::start, 1);
  options.close_is_known = false;
  Scripted scripted([](const Program&) { return exited(); }, {}, options);
  scripted.run(code());
  EXPECT_EQ(scripted.backend->disposed_ids().size(), 2U) << "the dead one, and the one that ran";
  EXPECT_EQ(scripted.failures.size(), 1U) << "nobody is told of the dead one";
}

TEST(RunCodeact, DoesNotTryAThirdTime) {
  // LC-08
  Scripted scripted([](const Program&) { return exited(); }, {}, failing(Operation::start, 2));
  expect_refusal<SandboxUnavailable>([&] { scripted.run(code()); });
  EXPECT_EQ(scripted.backend->keys().size(), 2U);
}

TEST(RunCodeact, DoesNotTakeWhatAListenerThrewForADeadSandbox) {
  for (const std::string_view step : {"preparing the sandbox", "running the program"}) {
    Scripted scripted;
    CodeactRequest request = code();
    int told = 0;
    request.progress = [&](std::string_view each) {
      if (each != step) return;
      ++told;
      throw SandboxUnavailable("mine");
    };
    expect_refusal<SandboxUnavailable>([&] { scripted.run(request); }, "mine");
    EXPECT_EQ(told, 1) << step;
    EXPECT_EQ(scripted.log, "");
  }
}

TEST(RunCodeact, KeepsAProvidersTextFromModelsWhateverItsClass) {
  for (const Operation operation :
       {Operation::open_call, Operation::write_file, Operation::start}) {
    Scripted scripted([](const Program&) { return exited(); }, {},
                      {.before = [operation](Operation each, std::string_view) {
                        if (each == operation) throw SandboxTransferCapExceeded("/host/secret");
                      }});
    try {
      scripted.run(code());
      FAIL() << "nothing was refused";
    } catch (const SandboxError& refusal) {
      EXPECT_EQ(refusal.code(), "SandboxUnavailable");
      EXPECT_NE(refusal.message().find("SandboxTransferCapExceeded: /host/secret"),
                std::string::npos)
          << "an operator reads it";
      EXPECT_EQ(sentence_for_model(refusal), sentence_for_model(SandboxUnavailable("")));
    }
  }
}

TEST(RunCodeact, DoesNotRepeatAProgramThatBegan) {
  int runs = 0;
  Scripted scripted([&](const Program&) -> ExecResult {
    ++runs;
    throw SandboxUnavailable("the stream ended without an exit status");
  });
  expect_refusal<SandboxUnavailable>([&] { scripted.run(code()); }, "without an exit status");
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(scripted.sandbox->calls().at(0).closed);
}

// EX-07
TEST(RunCodeact, KeepsWhatHadComeOfAProgramWhoseSandboxWasLost) {
  const auto expect_kept = [](const auto& refusal) {
    using R = std::decay_t<decltype(refusal)>;
    Scripted scripted([&](const Program&) -> ExecResult {
      throw Carrying<R, ReceivedOutput>(refusal, {{"pre", 7, 2}, {"warning", 8, 3}});
    });
    try {
      scripted.run(code());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const R& failure) {
      const auto* run = dynamic_cast<const CodeactRun*>(&failure);
      ASSERT_NE(run, nullptr);
      EXPECT_STREQ(failure.what(), "lost");
      EXPECT_EQ(run->sandbox.id,
                scripted.backend->acquire(scripted.key, scripted.wiring.spec, {})->info().id);
      EXPECT_EQ(run->result.stdout, "pre");
      EXPECT_EQ(run->result.stdout_missing_bytes, 7U);
      EXPECT_EQ(run->result.stdout_cut_at, 2U);
      EXPECT_EQ(run->result.stderr, "warning");
      EXPECT_EQ(run->result.stderr_missing_bytes, 8U);
      EXPECT_EQ(run->result.stderr_cut_at, 3U);
    }
  };
  expect_kept(SandboxUnavailable("lost"));
  expect_kept(SandboxTimeout("lost"));
}

TEST(RunCodeact, DoesNotRetryAProviderThatHasNoSandbox) {
  Scripted scripted;
  const auto backend = std::make_shared<in_process::InProcessSandboxBackend>(
      nullptr, in_process::InProcessBackendOptions{
                   .declarations = able_declarations(),
                   .acquire_error = std::make_exception_ptr(SandboxUnavailable("no engine"))});
  scripted.wiring.router = SandboxRouter({backend}, {.min_isolation = Isolation::process});
  expect_refusal<SandboxUnavailable>([&] { scripted.run(code()); }, "no engine");
  EXPECT_TRUE(scripted.log.empty());
}

// -- The end of the call -------------------------------------------------------------------------

TEST(RunCodeact, ClosesItsCallAndKeepsTheSandbox) {
  Scripted scripted;
  scripted.run(code());
  EXPECT_TRUE(scripted.sandbox->calls().at(0).closed);
  EXPECT_TRUE(scripted.backend->disposed_ids().empty());
  EXPECT_TRUE(scripted.failures.empty());
}

TEST(RunCodeact, EndsItsSandboxInOneWithItsCallWhereTheKeyIsItsOwn) {
  Scripted scripted([](const Program&) { return exited(0, "text"); }, {},
                    {.close_is_known = false});
  scripted.wiring.ends_sandbox = true;
  EXPECT_EQ(scripted.run(code()).result.stdout, "text");
  EXPECT_EQ(scripted.backend->disposed_ids(),
            std::vector{identity_digest(scripted.key, kCodeactKind)});
  EXPECT_TRUE(scripted.failures.empty()) << "there was no close that could not be shown";
}

TEST(RunCodeact, DisposesASandboxWhoseCallMayLiveOn) {
  Scripted scripted([](const Program&) { return exited(0, "text"); }, {},
                    {.close_is_known = false});
  EXPECT_EQ(scripted.run(code()).result.stdout, "text");
  EXPECT_EQ(scripted.backend->disposed_ids(),
            std::vector{identity_digest(scripted.key, kCodeactKind)});
  EXPECT_EQ(scripted.failures.size(), 1U);
}

}  // namespace
}  // namespace casemate::codeact
