#include "apps/casemate/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <stop_token>

#include "apps/casemate/verbs.h"
#include "casemate/backends/in_process/backend.h"
#include "casemate/core/errors.h"
#include "casemate/core/spec.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/local/diagnosis.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a run on a scripted sandbox wrote, and its exit status.
struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};

class RunProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "run-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    std::ofstream(directory_ / "program.py") << "print(1)\n";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static in_process::InProcessBackendOptions claims_container() {
    in_process::InProcessBackendOptions options;
    options.declarations.name = "fake";
    options.declarations.isolation = Isolation::container;
    options.declarations.capabilities = {Capability::exec, Capability::files_in,
                                         Capability::files_out};
    return options;
  }

  std::shared_ptr<in_process::InProcessSandboxBackend> backend_running(
      const in_process::OnExec& script,
      in_process::InProcessBackendOptions options = claims_container()) {
    in_process::InProcessSandboxOptions sandbox;
    sandbox.on_exec = script;
    sandbox.before = before_;
    return std::make_shared<in_process::InProcessSandboxBackend>(
        std::make_shared<in_process::InProcessSandbox>(std::move(sandbox)), std::move(options));
  }
  // The same, and it does not work here.
  static in_process::InProcessBackendOptions unavailable(const std::string& name) {
    in_process::InProcessBackendOptions options = claims_container();
    options.declarations.name = name;
    options.acquire_error = std::make_exception_ptr(SandboxUnavailable(name + " is not there"));
    options.probe = {.available = false, .reason = name + " is not there"};
    return options;
  }

  Ran run(const in_process::OnExec& script, std::vector<std::string> words = {}) {
    backend_ = backend_running(script);
    return run_on({backend_}, std::move(words));
  }

  Ran run_on(const Backends& backends, std::vector<std::string> words = {}) {
    words.push_back((directory_ / "program.py").string());
    std::vector<const char*> line;
    for (const std::string& word : words) line.push_back(word.c_str());
    const RunOptions options =
        read_run_options(parse_line(line, kRunVerb.options),
                         [](const std::string&) { return std::optional<std::string>(); });
    Ran ran;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    try {
      ran.status = run_program(options, backends, {});
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    ran.out = ::testing::internal::GetCapturedStdout();
    ran.err = ::testing::internal::GetCapturedStderr();
    return ran;
  }

  // The options of a run with one output.
  std::vector<std::string> with_output(std::vector<std::string> words = {}) {
    words.insert(words.end(), {"--output", "x", "--out-dir", (directory_ / "out").string()});
    return words;
  }

  std::filesystem::path directory_;
  std::shared_ptr<in_process::InProcessSandboxBackend> backend_;
  // Of the sandboxes that `run` makes.
  std::function<void(in_process::Operation, std::string_view)> before_;
};

ExecResult ended(Outcome outcome) {
  ExecResult result;
  result.outcome = outcome;
  result.stopped_known = true;
  result.stdout = "kept\n";
  if (outcome == Outcome::timed_out) result.limit = Limit::time;
  if (outcome == Outcome::out_of_memory) result.limit = Limit::memory;
  return result;
}

TEST_F(RunProgram, PassesStreamsOnAndKeepsTheProgramsStatus) {
  const Ran ran = run([](const auto&) { return in_process::finished("out\n\xff", 7, "err\n"); });
  EXPECT_EQ(ran.status, 7);
  EXPECT_EQ(ran.out, "out\n\xff");
  EXPECT_EQ(ran.err, "err\n");
}

TEST_F(RunProgram, GivesEachOutcomeItsExitStatus) {
  EXPECT_EQ(run([](const auto&) { return ended(Outcome::timed_out); }).status, 124);
  EXPECT_EQ(run([](const auto&) { return ended(Outcome::out_of_memory); }).status, 137);
  EXPECT_EQ(run([](const auto&) { return ended(Outcome::cancelled); }).status, 130);
  const Ran killed = run([](const auto&) {
    ExecResult result = ended(Outcome::signaled);
    result.signal = "SIGSEGV";
    return result;
  });
  EXPECT_EQ(killed.status, 139);
  EXPECT_THAT(killed.err, HasSubstr("casemate: note: the program was ended by SIGSEGV.\n"));
}

TEST_F(RunProgram, WritesOneJsonObjectInsteadOfTheStreams) {
  const Ran ran = run([](const auto&) { return ended(Outcome::timed_out); }, {"--json"});
  EXPECT_EQ(ran.status, 124);
  EXPECT_THAT(ran.out, StartsWith(R"({"status":"timed_out","exit_code":null,"signal":null,)"
                                  R"("stdout":"kept\n",)"));
  EXPECT_THAT(ran.out, HasSubstr(R"("limit":"time")"));
  EXPECT_EQ(ran.out.back(), '\n');
}

TEST_F(RunProgram, FailsASuccessThatDidNotWriteItsOutput) {
  const Ran missing = run([](const auto&) { return in_process::finished(); }, with_output());
  EXPECT_EQ(missing.status, 125);
  EXPECT_THAT(missing.err, StartsWith("missing x\ncasemate: error: SandboxOutputMissing: "));
  const Ran failed = run([](const auto&) { return in_process::finished({}, 3); }, with_output());
  EXPECT_EQ(failed.status, 3);
  EXPECT_EQ(failed.err, "missing x\n");
}

TEST_F(RunProgram, LandsOutputsAndNamesThem) {
  const auto script = [](const in_process::Execution& execution) {
    execution.store.put_file(execution.directory + "/x", "content");
    return in_process::finished();
  };
  const Ran ran = run(script, with_output());
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "saved x\n");
  EXPECT_EQ(std::filesystem::file_size(directory_ / "out" / "x"), 7U);
  EXPECT_EQ(run(script, with_output({"--overwrite"})).status, 0);
}

TEST_F(RunProgram, RefusesBeforeTheStartToReplaceAnOutputThatIsThere) {
  const auto never = [](const in_process::Execution&) -> ExecResult {
    throw std::logic_error("started");
  };
  std::filesystem::create_directories(directory_ / "out");
  std::filesystem::create_symlink("nowhere", directory_ / "out" / "x");
  EXPECT_THROW(run(never, with_output()), SandboxLandingExists);
  EXPECT_THROW(run(never, with_output({"--check"})), SandboxLandingExists);
  EXPECT_TRUE(backend_->keys().empty());
}

TEST_F(RunProgram, KeepsTheOutcomeWhenAFileComesToLieWhereAnOutputLands) {
  const Ran ran = run(
      [this](const in_process::Execution& execution) {
        execution.store.put_file(execution.directory + "/x", "content");
        std::ofstream(directory_ / "out" / "x") << "meanwhile";
        return in_process::finished();
      },
      with_output({"--json"}));
  EXPECT_EQ(ran.status, 125);
  EXPECT_THAT(ran.err, HasSubstr("casemate: error: SandboxLandingExists: "));
  EXPECT_THAT(ran.err, HasSubstr("give --overwrite"));
  EXPECT_THAT(ran.out, HasSubstr(R"("status":"exited","exit_code":0)"));
}

TEST_F(RunProgram, SaysThatNothingLandsWhereNoOutputIsNamed) {
  const Ran ran = run([](const auto&) { return in_process::finished(); },
                      {"--out-dir", (directory_ / "out").string()});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.err, HasSubstr("note: nothing lands"));
}

TEST_F(RunProgram, RefusesWithoutStartingAnythingAndLeavesNoDirectory) {
  const auto never = [](const in_process::Execution&) -> ExecResult {
    throw std::logic_error("started");
  };
  EXPECT_THROW(run(never, {"--min-isolation", "microvm"}), SandboxBackendNotPermitted);
  EXPECT_THROW(run(never, {"--backend", "fakee"}), InvalidArgument);
  EXPECT_THROW(run(never, with_output({"--deny-capability", "files_out"})),
               SandboxCapabilityDenied);
  EXPECT_TRUE(backend_->keys().empty());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
}

TEST_F(RunProgram, ChecksTheSameAndStartsNothing) {
  const auto never = [](const in_process::Execution&) -> ExecResult {
    throw std::logic_error("started");
  };
  const Ran ran = run(never, with_output({"--check"}));
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out + ran.err, "");
  EXPECT_EQ(run(never, with_output({"--check", "--json"})).out,
            "{\"check\":\"passed\",\"error\":null}\n");
  EXPECT_TRUE(backend_->keys().empty());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
  EXPECT_THROW(run(never, {"--check", "--min-isolation", "vm"}), SandboxBackendNotPermitted);
  EXPECT_THROW(run(never, {"--check", "--file", "x=/nowhere"}), SandboxFileError);
}

TEST_F(RunProgram, AskingForTheBackendByNameTakesIt) {
  EXPECT_EQ(run([](const auto&) { return in_process::finished(); }, {"--backend", "fake"}).status,
            0);
}

TEST_F(RunProgram, RunsOnTheFirstBackendThatIsAvailable) {
  const auto script = [](const auto&) { return in_process::finished("ran\n"); };
  const auto missing = backend_running(script, unavailable("missing"));
  const auto works = backend_running(script);
  const auto later = backend_running(script, unavailable("later"));
  EXPECT_EQ(run_on({missing, works, later}).out, "ran\n");
  EXPECT_EQ(works->keys().size(), 1U);
  EXPECT_EQ(later->probes(), 0) << "what comes behind it is not asked";
}

TEST_F(RunProgram, NamesOneWhoseStateCannotBeUsedAndNotOneThatIsAbsent) {
  const auto script = [](const auto&) { return in_process::finished("ran\n"); };
  in_process::InProcessBackendOptions unusable = unavailable("unusable");
  unusable.acquire_error = std::make_exception_ptr(Carrying<SandboxUnavailable, local::StateRemedy>(
      SandboxUnavailable(unusable.probe.reason), {}));
  const auto works = backend_running(script);
  const Ran named = run_on({backend_running(script, unusable), works});
  EXPECT_EQ(named.out, "ran\n");
  EXPECT_EQ(named.err, "casemate: note: backend unusable does not work, so fake is used: " +
                           unusable.probe.reason + "\n");
  EXPECT_EQ(run_on({backend_running(script, unavailable("absent")), works}).err, "");
}

TEST_F(RunProgram, AsksNobodyWhetherItIsAvailableWhereTheFirstServes) {
  const auto script = [](const auto&) { return in_process::finished(); };
  in_process::InProcessBackendOptions cheapest = claims_container();
  cheapest.declarations.name = "cheapest";
  const auto first = backend_running(script, cheapest);
  const auto second = backend_running(script);
  EXPECT_EQ(run_on({first, second}).status, 0);
  EXPECT_EQ(first->probes() + second->probes(), 0);
  EXPECT_TRUE(second->keys().empty());
}

TEST_F(RunProgram, PassesOverWhatCannotServeTheSpecOrIsBelowTheFloor) {
  const auto script = [](const auto&) { return in_process::finished("ran\n"); };
  in_process::InProcessBackendOptions weak = claims_container();
  weak.declarations.name = "weak";
  weak.declarations.isolation = Isolation::os_process;
  in_process::InProcessBackendOptions closed = claims_container();
  closed.declarations.name = "closed";
  closed.declarations.egress_modes = {Egress::closed};
  const auto below = backend_running(script, weak);
  const auto without_egress = backend_running(script, closed);
  const auto serves = backend_running(script);
  EXPECT_EQ(run_on({below, without_egress, serves}, {"--allow", "example.org"}).out, "ran\n");
  EXPECT_EQ(serves->keys().size(), 1U);
  EXPECT_EQ(run_on({below, without_egress, serves}).out, "ran\n");
  EXPECT_EQ(without_egress->keys().size(), 1U);
  EXPECT_TRUE(below->keys().empty());
}

TEST_F(RunProgram, TheRefusalIsTheFirstsWhereNoneIsAvailableOrOneIsNamed) {
  const auto script = [](const auto&) { return in_process::finished(); };
  const auto refused_by = [&](const Backends& backends, std::vector<std::string> words) {
    try {
      run_on(backends, std::move(words));
      return std::string("nobody");
    } catch (const SandboxUnavailable& refusal) {
      return refusal.message();
    }
  };
  const auto one = backend_running(script, unavailable("one"));
  const auto two = backend_running(script, unavailable("two"));
  const auto works = backend_running(script);
  EXPECT_EQ(refused_by({one, two}, {}), "one is not there");
  EXPECT_EQ(refused_by({works, one}, {"--backend", "one"}), "one is not there");
  EXPECT_TRUE(works->keys().empty());
}

TEST_F(RunProgram, AnAvailableBackendThatFailedIsNotReplacedByAnother) {
  const auto script = [](const auto&) { return in_process::finished(); };
  in_process::InProcessBackendOptions full = claims_container();
  full.declarations.name = "full";
  full.acquire_error = std::make_exception_ptr(SandboxUnavailable("no descriptor is left"));
  const auto works = backend_running(script);
  EXPECT_THROW(run_on({backend_running(script, full), works}), SandboxUnavailable);
  EXPECT_TRUE(works->keys().empty());
}

TEST_F(RunProgram, AProgramThatHadBegunIsNotRunAgainElsewhere) {
  in_process::InProcessBackendOptions fails = claims_container();
  fails.declarations.name = "fails";
  fails.probe = {.available = false, .reason = "it ended"};
  const auto breaks = backend_running(
      [](const in_process::Execution&) -> ExecResult {
        throw SandboxUnavailable("the connection ended");
      },
      fails);
  const auto works = backend_running([](const auto&) { return in_process::finished(); });
  EXPECT_THROW(run_on({breaks, works}), SandboxUnavailable);
  EXPECT_TRUE(works->keys().empty());
}

TEST_F(RunProgram, EndsTheSandboxOfItsOwnKeyButNotOneThatOthersMayShare) {
  const auto script = [](const auto&) { return in_process::finished(); };
  run(script);
  EXPECT_EQ(backend_->disposed_ids(),
            std::vector{identity_digest(backend_->keys().at(0), kCodeactKind)});
  run(script, {"--thread", "shared"});
  EXPECT_TRUE(backend_->disposed_ids().empty());
  EXPECT_TRUE(backend_->disposed().empty());
}

TEST_F(RunProgram, AProviderThatFailsUnderTheProgramIsThrown) {
  EXPECT_THROW(run([](const in_process::Execution&) -> ExecResult {
                 throw SandboxUnavailable("the connection ended");
               }),
               SandboxUnavailable);
}

// Sends this process a signal and waits until it is taken as a stop.
void stop_by(int number, const std::stop_token& stop) {
  std::promise<void> stopped;
  const std::stop_callback tell(stop, [&] { stopped.set_value(); });
  ::kill(::getpid(), number);
  stopped.get_future().wait();
}

// What a run did that was made in a child: a signal that is blocked stays so.
Ran in_a_child(const std::filesystem::path& json, const std::function<Ran()>& run) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const Ran ran = run();
    std::ofstream(json) << ran.out;
    ::_exit(ran.status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  std::ifstream file(json);
  return {WEXITSTATUS(status), std::string((std::istreambuf_iterator<char>(file)), {}), {}};
}

TEST_F(RunProgram, StopsTheProgramAtASignalAndStillWritesItsJson) {
  const Ran ran = in_a_child(directory_ / "json", [this] {
    return run(
        [](const in_process::Execution& execution) {
          stop_by(SIGTERM, execution.control.stop);
          return ended(Outcome::cancelled);
        },
        {"--json"});
  });
  EXPECT_EQ(ran.status, 143);
  EXPECT_THAT(ran.out, StartsWith(R"({"status":"cancelled")"));
}

TEST_F(RunProgram, ASignalWhileOutputsAreCollectedCancelsTheRun) {
  const Ran ran = in_a_child(directory_ / "json", [this] {
    std::stop_token stop;
    before_ = [&stop](in_process::Operation operation, std::string_view) {
      if (operation == in_process::Operation::stat_file) stop_by(SIGHUP, stop);
    };
    return run(
        [&stop](const in_process::Execution& execution) {
          stop = execution.control.stop;
          execution.store.put_file(execution.directory + "/x", "content");
          return in_process::finished("kept\n");
        },
        with_output({"--json"}));
  });
  EXPECT_EQ(ran.status, 129);
  EXPECT_THAT(ran.out, StartsWith(R"({"status":"cancelled","exit_code":0,"signal":null,)"
                                  R"("stdout":"kept\n")"));
  EXPECT_THAT(ran.out, HasSubstr(R"("error":{"code":"SandboxCancelled")"));
}

}  // namespace
}  // namespace casemate::app
