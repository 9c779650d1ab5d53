#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/scripted_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::codeact {
namespace {

using in_process::Operation;

CodeactSpecOptions declared(TransferLimits files_out = kDefaultCodeactFilesOut) {
  return {.outputs = CodeactOutputs::declared, .files_out = files_out};
}

CodeactSpecOptions listed(TransferLimits files_out = kDefaultCodeactFilesOut) {
  return {.outputs = CodeactOutputs::manifest, .files_out = files_out};
}

CodeactRequest naming(std::vector<std::string> outputs) {
  CodeactRequest request;
  request.code = "pass";
  request.outputs = std::move(outputs);
  return request;
}

// -- Declared ------------------------------------------------------------------------------------

TEST(CodeactOutputs, LandUnderTheirNestedNames) {
  // FO-13
  Scripted scripted(
      [](const Program& program) {
        program.write("a/x.txt", "1");
        program.write("b/x.txt", "22");
        return exited();
      },
      declared());
  const CodeactRun run = scripted.run(naming({"b/x.txt", "a/x.txt"}));
  EXPECT_EQ(scripted.sink->landed,
            (std::map<std::string, std::string>{{"a/x.txt", "1"}, {"b/x.txt", "22"}}));
  ASSERT_EQ(run.artifacts.size(), 2U);
  EXPECT_EQ(run.artifacts[0].name, "b/x.txt");
  EXPECT_EQ(run.artifacts[0].bytes, 2U);
  EXPECT_FALSE(run.collect_error);
}

TEST(CodeactOutputs, ThatWereNotWrittenAreNamed) {
  Scripted scripted(
      [](const Program& program) {
        program.write("b", "1");
        return exited();
      },
      declared());
  const CodeactRun run = scripted.run(naming({"c", "b", "a"}));
  EXPECT_EQ(run.missing_outputs, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(scripted.sink->landed.size(), 1U);
  EXPECT_FALSE(run.collect_error);
}

TEST(CodeactOutputs, AreCollectedAfterEveryOutcomeButCancelled) {
  for (const Outcome outcome :
       {Outcome::signaled, Outcome::timed_out, Outcome::out_of_memory, Outcome::cancelled}) {
    Scripted scripted(
        [outcome](const Program& program) {
          program.write("a", "1");
          return ended_as(outcome);
        },
        declared());
    scripted.run(naming({"a"}));
    EXPECT_EQ(scripted.sink->landed.size(), outcome == Outcome::cancelled ? 0U : 1U)
        << to_string(outcome);
  }
  Scripted failed(
      [](const Program& program) {
        program.write("a", "1");
        return exited(3);
      },
      declared());
  const CodeactRun run = failed.run(naming({"a", "b"}));
  EXPECT_EQ(run.result.exit_code, 3) << "a missing output never hides the program's own error";
  EXPECT_EQ(run.artifacts.size(), 1U);
}

TEST(CodeactOutputs, NamesAreCheckedBeforeAnythingStarts) {
  // NM-02, NM-04, NM-06
  Scripted scripted([](const Program&) { return exited(); }, declared());
  const auto invalid = [&](std::string name) {
    SCOPED_TRACE(name);
    expect_refusal<SandboxArtifactNameInvalid>([&] { scripted.run(naming({name})); });
  };
  invalid("");
  invalid("../up");
  invalid("/etc/hostname");
  invalid("a\\b");
  invalid("a\nb.txt");
  invalid(
      "a\xe2\x80\xae"
      "txt.exe");  // U+202E
  invalid("a\x1b[2J");
  invalid("a\x7f");
  invalid("\xff");
  invalid(std::string(256, 'n'));
  const auto clash = [&](std::string one, std::string other) {
    SCOPED_TRACE(other);
    expect_refusal<SandboxArtifactNameCollision>([&] { scripted.run(naming({one, other})); });
  };
  clash("a", "a");
  clash("A.txt", "a.txt");
  clash("D/x", "d/x");
  clash("\u212a.txt", "k.txt");
  clash("caf\u00e9", "cafe\u0301");
  clash("a", "a/b");
  EXPECT_TRUE(scripted.untouched());
  EXPECT_NO_THROW(scripted.run(naming({std::string(255, 'n'), "stra\u00dfe", "strasse"})));
}

TEST(CodeactOutputs, NameThatGrowsOverTheLimitByCompositionIsRefusedUpFront) {
  // U+FB2C has three code points in NFC: 3 bytes become 6.
  std::string name = std::string(251, 'n') + "\uFB2C";
  ASSERT_EQ(name.size(), 254U);
  Scripted scripted([](const Program&) { return exited(); }, declared());
  expect_refusal<SandboxArtifactNameInvalid>([&] { scripted.run(naming({name})); }, "255");
  EXPECT_TRUE(scripted.untouched());
}

TEST(CodeactOutputs, AreCountedBeforeAnythingStarts) {
  Scripted scripted([](const Program&) { return exited(); }, declared({10, 100, 2}));
  expect_refusal<SandboxTransferCapExceeded>([&] { scripted.run(naming({"a", "b", "c"})); },
                                             {"3 outputs", "at most 2"});
  EXPECT_TRUE(scripted.untouched());
  EXPECT_NO_THROW(scripted.run(naming({"a", "b"})));
}

TEST(CodeactOutputs, NamesAreCheckedBeforeTheFilesThatGoIn) {
  Scripted scripted([](const Program&) { return exited(); }, declared());
  CodeactRequest request = naming({"../a"});
  request.code = std::string(9 * kMiB, '#');
  expect_refusal<SandboxArtifactNameInvalid>([&] { scripted.run(request); });
}

struct Refusing {
  std::string what;
  std::function<void(const Program&)> act;
  std::string code;
  std::string part;
};

TEST(CodeactOutputs, ThatAreRefusedDoNotHideTheProgramsResult) {
  const std::vector<Refusing> cases{
      // FO-01, FO-09: a link is never read and never an empty file.
      {"a link", [](const Program& program) { program.make("out", EntryKind::symlink); },
       "SandboxOutputNotRegular", "out"},
      {"a directory", [](const Program& program) { program.make("out", EntryKind::directory); },
       "SandboxOutputNotRegular", "out"},
      {"a FIFO", [](const Program& program) { program.make("out", EntryKind::other); },
       "SandboxOutputNotRegular", "out"},
      {"too big", [](const Program& program) { program.write("out", std::string(11, 'x')); },
       "SandboxTransferCapExceeded", "10 bytes"},
  };
  for (const Refusing& each : cases) {
    SCOPED_TRACE(each.what);
    Scripted scripted(
        [&](const Program& program) {
          each.act(program);
          return exited(0, "printed");
        },
        declared({10, 100, 2}));
    const CodeactRun run = scripted.run(naming({"out"}));
    EXPECT_EQ(run.result.stdout, "printed");
    ASSERT_TRUE(run.collect_error);
    EXPECT_EQ(run.collect_error->code, each.code);
    EXPECT_NE(run.collect_error->message.find(each.part), std::string::npos)
        << run.collect_error->message;
    EXPECT_TRUE(run.collect_error->sentence.starts_with("Error: "));
    EXPECT_TRUE(run.collect_error->sentence.ends_with(" Nothing was saved."));
    EXPECT_TRUE(scripted.sink->landed.empty());
    EXPECT_NE(scripted.log.find(each.code), std::string::npos);
  }
}

TEST(CodeactOutputs, AtTheCapPass) {
  Scripted scripted(
      [](const Program& program) {
        program.write("out", std::string(10, 'x'));
        return exited();
      },
      declared({10, 10, 1}));
  EXPECT_FALSE(scripted.run(naming({"out"})).collect_error);
}

TEST(CodeactOutputs, ReportWhatTheSinkThrewAndKeepItFromTheModel) {
  Scripted scripted(
      [](const Program& program) {
        program.write("out", "1");
        return exited(0, "printed");
      },
      declared());
  scripted.sink->failure = std::make_exception_ptr(std::runtime_error("/mnt/outputs is full"));
  CodeactRun run = scripted.run(naming({"out"}));
  EXPECT_EQ(run.result.stdout, "printed");
  ASSERT_TRUE(run.collect_error);
  EXPECT_EQ(run.collect_error->code, "SinkFailed");
  EXPECT_EQ(run.collect_error->message, "/mnt/outputs is full");
  EXPECT_EQ(run.collect_error->sentence,
            "Error: the outputs could not be saved. Some outputs may already have been saved.");

  scripted.sink->failure = std::make_exception_ptr(SandboxFileError("disk full", ENOSPC));
  run = scripted.run(naming({"out"}));
  ASSERT_TRUE(run.collect_error);
  EXPECT_EQ(run.collect_error->code, "SandboxFileError");
  EXPECT_EQ(run.collect_error->sentence,
            "Error: the outputs could not be saved. Some outputs may already have been saved.");

  scripted.sink->failure =
      std::make_exception_ptr(SandboxLandingExists("output \"out\" exists", "--overwrite"));
  run = scripted.run(naming({"out"}));
  ASSERT_TRUE(run.collect_error);
  EXPECT_EQ(run.collect_error->hint, "--overwrite");
  EXPECT_EQ(run.collect_error->sentence,
            "Error: output \"out\" exists. Some outputs may already have been saved.");

  scripted.sink->failure = std::make_exception_ptr(42);
  EXPECT_EQ(scripted.run(naming({"out"})).collect_error->code, "SinkFailed");

  scripted.sink->failure =
      std::make_exception_ptr(SandboxLandingExists("output \"out\" exists", "--overwrite"));
  scripted.sink->all_or_none = true;
  run = scripted.run(naming({"out"}));
  ASSERT_TRUE(run.collect_error);
  EXPECT_EQ(run.collect_error->sentence, "Error: output \"out\" exists. Nothing was saved.");
}

TEST(CodeactOutputs, OfASandboxThatDiedMeanwhileAreAnErrorBesideTheResult) {
  Scripted scripted(
      [](const Program& program) {
        program.write("out", "1");
        return exited(0, "printed");
      },
      declared(), {.before = [](Operation operation, std::string_view) {
        if (operation == Operation::stat_file) throw SandboxUnavailable("/run/x.sock");
      }});
  const CodeactRun run = scripted.run(naming({"out"}));
  EXPECT_EQ(run.result.stdout, "printed");
  ASSERT_TRUE(run.collect_error);
  EXPECT_EQ(run.collect_error->code, "SandboxOutputUnreachable");
  EXPECT_EQ(run.collect_error->sentence.find("/run"), std::string::npos);
}

TEST(CodeactOutputs, MayBeASharedFileThatWasNotRewritten) {
  Scripted scripted([](const Program&) { return exited(); }, declared());
  scripted.wiring.file_store =
      std::make_shared<InMemoryStore>(std::map<std::string, std::string>{{"a", "as it was"}});
  CodeactRequest request = naming({"a"});
  request.files = {"a"};
  scripted.run(request);
  EXPECT_EQ(scripted.sink->landed.at("a"), "as it was");
}

TEST(CodeactOutputs, AreNotLookedForWhereNoneIsNamed) {
  int looks = 0;
  Scripted scripted([](const Program&) { return exited(); }, declared(),
                    {.before = [&](Operation operation, std::string_view) {
                      if (operation == Operation::stat_file) ++looks;
                    }});
  scripted.run(naming({}));
  EXPECT_EQ(looks, 0);
}

// -- Listed by the program -----------------------------------------------------------------------

CodeactRun run_listed(const std::string& list, TransferLimits limits = kDefaultCodeactFilesOut,
                      std::map<std::string, std::string>* landed = nullptr) {
  Scripted scripted(
      [&](const Program& program) {
        program.write("outputs.json", list);
        program.write("a", "1");
        program.write("b", "22");
        return exited(0, "printed");
      },
      listed(limits));
  const CodeactRun run = scripted.run(naming({}));
  EXPECT_EQ(run.result.stdout, "printed");
  if (landed != nullptr) *landed = scripted.sink->landed;
  return run;
}

TEST(CodeactManifest, LandsWhatItLists) {
  std::map<std::string, std::string> landed;
  const CodeactRun run = run_listed(
      R"({"outputs":[{"path":"b","media_type":"text/html"},{"path":"a"},{"path":"c"}],"more":1})",
      kDefaultCodeactFilesOut, &landed);
  EXPECT_EQ(landed, (std::map<std::string, std::string>{{"a", "1"}, {"b", "22"}}));
  EXPECT_EQ(run.missing_outputs, std::vector<std::string>{"c"});
  EXPECT_FALSE(run.collect_error);
  EXPECT_TRUE(run.notes.empty());
}

TEST(CodeactManifest, ThatIsMissingOrEmptyIsNoError) {
  Scripted scripted([](const Program&) { return exited(); }, listed());
  const CodeactRun run = scripted.run(naming({}));
  EXPECT_FALSE(run.collect_error);
  EXPECT_EQ(run.notes,
            std::vector<std::string>{"outputs.json was not written, so nothing was saved."});
  EXPECT_EQ(run_listed(R"({"outputs":[]})").notes,
            std::vector<std::string>{"outputs.json names no file, so nothing was saved."});
}

std::string error_of(const CodeactRun& run) {
  if (!run.collect_error) return "";
  EXPECT_TRUE(run.collect_error->sentence.ends_with(" Nothing was saved."))
      << run.collect_error->sentence;
  return run.collect_error->code + ": " + run.collect_error->message;
}

TEST(CodeactManifest, OfAnotherFormIsRefusedInWordsForAModel) {
  const std::string form = "; it has to be {\"outputs\":[{\"path\":\"NAME\"}]}.";
  EXPECT_EQ(error_of(run_listed("[]")), "InvalidArgument: outputs.json is not an object" + form);
  EXPECT_EQ(error_of(run_listed("{}")),
            "InvalidArgument: outputs.json has no list \"outputs\"" + form);
  EXPECT_EQ(error_of(run_listed(R"({"outputs":{}})")),
            "InvalidArgument: outputs.json has no list \"outputs\"" + form);
  EXPECT_EQ(error_of(run_listed(R"({"outputs":[{"path":"a"},"b"]})")),
            "InvalidArgument: outputs.json has no string \"path\" in entry 1" + form);
  EXPECT_EQ(error_of(run_listed(R"({"outputs":[{"path":7}]})")),
            "InvalidArgument: outputs.json has no string \"path\" in entry 0" + form);
  for (const std::string& text :
       {std::string("not json"), std::string("\xff\xfe"), std::string(1000, '['), std::string(),
        std::string("{\"outputs\":[],\"n\":99999999999999999999999}")}) {
    EXPECT_NE(error_of(run_listed(text)).find("InvalidArgument: outputs.json is not valid JSON"),
              std::string::npos)
        << text;
  }
}

TEST(CodeactManifest, NamesAreHeldToTheSameRules) {
  EXPECT_TRUE(error_of(run_listed(R"({"outputs":[{"path":"../../etc/passwd"}]})"))
                  .starts_with("SandboxArtifactNameInvalid"));
  EXPECT_TRUE(error_of(run_listed(R"({"outputs":[{"path":"a"},{"path":"A"}]})"))
                  .starts_with("SandboxArtifactNameCollision"));
  EXPECT_NE(error_of(run_listed(R"({"outputs":[{"path":"outputs.json"}]})")).find("reserved"),
            std::string::npos);
}

TEST(CodeactManifest, NeverRepeatsANameThatWasRefusedForTraversalToTheModel) {
  const CodeactRun run = run_listed(R"({"outputs":[{"path":"../../etc/passwd"}]})");
  ASSERT_TRUE(run.collect_error);
  EXPECT_EQ(run.collect_error->sentence.find("passwd"), std::string::npos);
  EXPECT_NE(run.collect_error->message.find("passwd"), std::string::npos)
      << "the operator may know";
}

TEST(CodeactManifest, TakesOneFileAndItsBytesOfTheBudget) {
  const std::string two = R"({"outputs":[{"path":"a"},{"path":"b"}]})";
  const std::uint64_t size = two.size();
  EXPECT_EQ(error_of(run_listed(two, {100, size + 3, 3})), "");
  EXPECT_TRUE(
      error_of(run_listed(two, {100, size + 2, 3})).starts_with("SandboxTransferCapExceeded"));
  EXPECT_NE(error_of(run_listed(two, {100, size + 3, 2})).find("2 outputs are named; at most 1"),
            std::string::npos);
}

TEST(CodeactManifest, IsReadOnlyUpToTheSmallestCap) {
  const auto padded = [](std::uint64_t size) {
    std::string text = R"({"outputs":[{"path":"a"}]})";
    text.resize(size, ' ');
    return text;
  };
  const std::uint64_t ceiling = kMaxManifestBytes;
  EXPECT_EQ(error_of(run_listed(padded(ceiling))), "");
  EXPECT_NE(error_of(run_listed(padded(ceiling + 1))).find("at most 65536"), std::string::npos);
  EXPECT_EQ(error_of(run_listed(padded(26), {26, 100, 2})), "");
  EXPECT_NE(error_of(run_listed(padded(27), {26, 100, 2})).find("at most 26"), std::string::npos);
  EXPECT_NE(error_of(run_listed(padded(31), {100, 30, 2})).find("at most 30"), std::string::npos);
}

TEST(CodeactManifest, ThatIsNoRegularFileIsRefused) {
  for (const EntryKind kind : {EntryKind::symlink, EntryKind::directory, EntryKind::other}) {
    Scripted scripted(
        [kind](const Program& program) {
          program.make("outputs.json", kind);
          return exited();
        },
        listed());
    EXPECT_EQ(error_of(scripted.run(naming({}))),
              "SandboxOutputNotRegular: outputs.json is not a regular file");
  }
}

// What a provider says while the list is read, and what becomes of it.
template <typename Thrown>
std::string error_when_reading(const Thrown& thrown) {
  Scripted scripted(
      [](const Program& program) {
        program.write("outputs.json", R"({"outputs":[{"path":"a"}]})");
        return exited();
      },
      listed(), {.before = [thrown](Operation operation, std::string_view) {
        if (operation == Operation::read_file) throw Thrown(thrown);
      }});
  return error_of(scripted.run(naming({})));
}

TEST(CodeactManifest, ThatCannotBeReadIsOfTheOutputFamily) {
  EXPECT_EQ(error_when_reading(SandboxPathRefused("/x")),
            "SandboxOutputNotConfined: outputs.json is reached through a link");
  EXPECT_EQ(error_when_reading(SandboxFileError("/x", EIO)),
            "SandboxOutputUnreachable: outputs.json could not be read");
  EXPECT_EQ(error_when_reading(SandboxTimeout("/x")),
            "SandboxOutputUnreachable: outputs.json could not be read in time");
  EXPECT_EQ(error_when_reading(SandboxUnavailable("/x")),
            "SandboxOutputUnreachable: outputs.json could not be read: the sandbox is not "
            "available any more");
  EXPECT_EQ(error_when_reading(SandboxTransferCapExceeded("/x")),
            "SandboxTransferCapExceeded: outputs.json grew while it was read");
}

}  // namespace
}  // namespace casemate::codeact
