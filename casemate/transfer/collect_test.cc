#include "casemate/transfer/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cerrno>
#include <stdexcept>

#include "casemate/transfer/fake_guest_files_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class RecordingSink : public OutputSink {
 public:
  LandedArtifact deliver(const Artifact& artifact) override {
    if (artifact.name == refused) {
      throw std::runtime_error("the sink's own exception");
    }
    delivered.push_back(artifact);
    return {artifact.name, "saved " + artifact.name, "handle:" + artifact.name};
  }
  NameNormalization normalization() const override { return rewriting; }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Artifact& artifact : delivered) {
      result.push_back(artifact.name);
    }
    return result;
  }

  std::vector<Artifact> delivered;
  NameNormalization rewriting = NameNormalization::nfc;
  std::string refused;
};

DeclaredOutput land(std::string path, std::optional<std::string> name = std::nullopt) {
  DeclaredOutput output;
  output.path = std::move(path);
  output.name = std::move(name);
  return output;
}
DeclaredOutput consume(std::string path) {
  DeclaredOutput output = land(std::move(path));
  output.disposition = OutputDisposition::consume;
  return output;
}
DeclaredOutput optional_output(DeclaredOutput output) {
  output.required = false;
  return output;
}

class Collect : public testing::Test {
 protected:
  CollectReport collect() {
    return collect_outputs(files_, spec_, {.sink = &sink_, .outputs = at_call_});
  }
  // What is left untouched by a refusal of phases 0 to 2.
  void expect_untouched() {
    EXPECT_THAT(files_.asked, IsEmpty());
    EXPECT_THAT(sink_.delivered, IsEmpty());
  }
  template <typename Refused>
  std::string refusal(std::initializer_list<std::string_view> parts) {
    const std::string text = expect_refusal<Refused>([&] { collect(); }, parts);
    EXPECT_THAT(sink_.delivered, IsEmpty());
    return text;
  }

  FakeGuestFiles files_;
  RecordingSink sink_;
  SandboxSpec spec_ = [] {
    SandboxSpec spec;
    spec.kind = "report";
    return spec;
  }();
  std::vector<DeclaredOutput> at_call_;
};

TEST_F(Collect, LandsEachDeclaredOutputInOrder) {
  files_.files = {{"a", {"first"}}, {"b", {"second"}}, {"c", {""}}};
  spec_.declared_outputs = {land("b", "plots/b.txt"), land("a")};
  spec_.declared_outputs[1].media_type = "text/csv";
  spec_.outputs_named_at_call_time = true;
  at_call_ = {land("c")};
  const CollectReport report = collect();
  EXPECT_THAT(files_.asked,
              ElementsAre("stat b", "stat a", "stat c", "read b 6", "read a 5", "read c 0"));
  EXPECT_THAT(sink_.delivered, ElementsAre(Artifact{"plots/b.txt", "second", "report", {}},
                                           Artifact{"a", "first", "report", "text/csv"},
                                           Artifact{"c", "", "report", {}}));
  EXPECT_THAT(report.landed, ElementsAre(LandedArtifact{"plots/b.txt", "saved plots/b.txt",
                                                        "handle:plots/b.txt", 6},
                                         LandedArtifact{"a", "saved a", "handle:a", 5},
                                         LandedArtifact{"c", "saved c", "handle:c", 0}));
  EXPECT_THAT(report.missing, IsEmpty());
}

TEST_F(Collect, AsksBelowTheSpecsDirectoryOrTheCalls) {
  files_.files = {{"a", {"x"}}};
  spec_.declared_outputs = {land("a")};
  collect();
  EXPECT_EQ(files_.directory, "/workspace");
  collect_outputs(files_, spec_, {.sink = &sink_, .working_directory = "/workspace/0123/work"});
  EXPECT_EQ(files_.directory, "/workspace/0123/work");
}

// -- Phases 0 and 1 --

TEST_F(Collect, RefusesOutputsNamedByTheCallUnlessTheSpecSaysSo) {
  spec_.declared_outputs = {land("../x")};
  at_call_ = {land("a")};
  refusal<InvalidArgument>({"outputs_named_at_call_time", "report"});
  expect_untouched();
  spec_.declared_outputs.clear();
  spec_.outputs_named_at_call_time = true;
  files_.files = {{"a", {"x"}}};
  EXPECT_EQ(collect().landed.size(), 1U);
}

TEST_F(Collect, RefusesALandingOutputWithoutASinkBeforeItsNameIsLookedAt) {
  spec_.declared_outputs = {consume("b"), land("../x")};
  expect_refusal<SandboxOutputSinkRequired>([&] { collect_outputs(files_, spec_, {}); },
                                            {"report", "no output sink"});
  expect_untouched();
}

TEST_F(Collect, NeedsNoSinkWhereNothingLands) {
  files_.files = {{"b", {"x"}}};
  spec_.declared_outputs = {consume("b")};
  const CollectReport report = collect_outputs(files_, spec_, {});
  EXPECT_THAT(files_.asked, ElementsAre("stat b"));
  EXPECT_THAT(report.landed, IsEmpty());
}

// -- Phase 2 --

TEST_F(Collect, ValidatesEveryPathAndEveryLandingNameBeforeItAsksTheGuest) {
  for (const DeclaredOutput& bad : {land("../x"), consume("/x"), land("a", "b//c"), land("a", ""),
                                    land("a\xFF"), land("a", "b\xFF"), land("")}) {
    spec_.declared_outputs = {land("good"), bad};
    refusal<SandboxArtifactNameInvalid>({"file name"});
    expect_untouched();
  }
}

TEST_F(Collect, RefusesNamesInTheOrderOfDeclaration) {
  spec_.declared_outputs = {land("a"), land("A"), land("../x")};
  refusal<SandboxArtifactNameCollision>({"\"a\" and \"A\" differ only"});
  spec_.declared_outputs = {land("../x"), land("a"), land("A")};
  refusal<SandboxArtifactNameInvalid>({".."});
}

// NM-02
TEST_F(Collect, RefusesLandingNamesThatAreOneFile) {
  spec_.declared_outputs = {land("a", "x"), land("b", "x")};
  refusal<SandboxArtifactNameCollision>({"\"x\" is given twice"});
  spec_.declared_outputs = {land("a", "D/x"), land("b", "d/x")};
  refusal<SandboxArtifactNameCollision>({"differ only in letter case"});
  spec_.declared_outputs = {land("a", "x"), land("b", "x/y")};
  refusal<SandboxArtifactNameCollision>({"directory of"});
  expect_untouched();
}

// FO-13
TEST_F(Collect, LandsEqualBaseNamesUnderTheirDirectories) {
  files_.files = {{"a/x.txt", {"1"}}, {"b/x.txt", {"2"}}};
  spec_.declared_outputs = {land("a/x.txt"), land("b/x.txt")};
  collect();
  EXPECT_THAT(sink_.names(), ElementsAre("a/x.txt", "b/x.txt"));
}

TEST_F(Collect, ConsumedNamesNeverCollide) {
  files_.files = {{"a", {"1"}}, {"A", {"2"}}};
  spec_.declared_outputs = {consume("a"), consume("a"), consume("A"), land("a")};
  collect();
  EXPECT_THAT(sink_.names(), ElementsAre("a"));
}

TEST_F(Collect, RewritesLandingNamesToNfcUnlessTheSinkSaysNone) {
  files_.files = {{"e\u0301", {"x"}}};
  spec_.declared_outputs = {land("e\u0301")};
  collect();
  EXPECT_THAT(sink_.names(), ElementsAre("\u00e9"));
  EXPECT_THAT(files_.asked, ElementsAre("stat e\u0301", "read e\u0301 1"));
  sink_.delivered.clear();
  sink_.rewriting = NameNormalization::none;
  collect();
  EXPECT_THAT(sink_.names(), ElementsAre("e\u0301"));
}

TEST_F(Collect, ComparesInNfcAlsoWhereNamesAreNotRewritten) {
  sink_.rewriting = NameNormalization::none;
  spec_.declared_outputs = {land("\u00e9"), land("e\u0301")};
  refusal<SandboxArtifactNameCollision>({"Unicode composition"});
}

// NM-06
TEST_F(Collect, CountsTheNameAndNotTheDirectoryItLiesIn) {
  const std::string longest(255, 'n');
  files_.files = {{longest, {"x"}}};
  spec_.declared_outputs = {land(longest)};
  const std::string deep = "/workspace/0123456789ab/" + std::string(100, 'd');
  collect_outputs(files_, spec_, {.sink = &sink_, .working_directory = deep});
  EXPECT_THAT(sink_.names(), ElementsAre(longest));
  spec_.declared_outputs = {land(longest + "n")};
  expect_refusal<SandboxArtifactNameInvalid>([&] { collect(); }, "256 bytes");
}

// The NFC form is what lands, so it is what has to fit: U+1D15E takes 4 bytes and its form 8.
TEST_F(Collect, ValidatesTheRewrittenNameToo) {
  std::string name;
  for (int i = 0; i < 40; ++i) {
    name += "\U0001D15E";
  }
  spec_.declared_outputs = {land(name)};
  refusal<SandboxArtifactNameInvalid>({"320 bytes"});
  expect_untouched();
}

// -- Phases 3 and 4 --

TEST_F(Collect, RefusesAMissingRequiredOutput) {
  files_.files = {{"a", {"x"}}};
  spec_.declared_outputs = {land("a"), land("b", "name"), land("c")};
  refusal<SandboxOutputMissing>({"\"name\" was not written"});
  EXPECT_THAT(files_.asked, ElementsAre("stat a", "stat b"));
}

TEST_F(Collect, ReportsMissingOptionalOutputsAndDoesNotCountThem) {
  files_.files = {{"b", {"x"}}};
  spec_.files_out.max_files = 1;
  spec_.declared_outputs = {optional_output(land("a")), land("b"), optional_output(land("c")),
                            optional_output(consume("gone"))};
  const CollectReport report = collect();
  EXPECT_THAT(report.missing, ElementsAre("a", "c", "gone"));
  EXPECT_THAT(sink_.names(), ElementsAre("b"));
}

TEST_F(Collect, LeavesTheSinkAloneWhenNothingLands) {
  files_.files = {{"b", {"x"}}};
  spec_.declared_outputs = {optional_output(land("a")), consume("b")};
  const CollectReport report = collect();
  EXPECT_THAT(report.missing, ElementsAre("a"));
  EXPECT_THAT(report.landed, IsEmpty());
  EXPECT_THAT(files_.asked, ElementsAre("stat a", "stat b"));
}

// FO-01, FO-09
TEST_F(Collect, RefusesWhatIsNoRegularFileAndNeverMakesAnEmptyOneOfIt) {
  for (const auto& [kind, word] :
       {std::pair{EntryKind::symlink, "a link"}, std::pair{EntryKind::directory, "a directory"},
        std::pair{EntryKind::other, "a FIFO"}}) {
    files_.asked.clear();
    files_.files = {{"a", {"", kind}}};
    for (const DeclaredOutput& output : {land("a"), optional_output(land("a")), consume("a")}) {
      spec_.declared_outputs = {output};
      refusal<SandboxOutputNotRegular>({"\"a\" is not a regular file", word});
    }
    EXPECT_THAT(files_.asked, ElementsAre("stat a", "stat a", "stat a"));
  }
}

TEST_F(Collect, RefusesAFileWhoseSizeTheBackendDoesNotVouchFor) {
  files_.files = {{"a", {.content = "x", .size_known = false}}};
  spec_.declared_outputs = {land("a")};
  refusal<SandboxOutputSizeUnknown>({"\"a\""});
  EXPECT_THAT(files_.asked, ElementsAre("stat a"));
}

// FO-07
TEST_F(Collect, RefusesAHugeFileFromItsStat) {
  files_.files = {{"big", {.size = std::uint64_t{1} << 40}}};
  spec_.declared_outputs = {land("big")};
  refusal<SandboxTransferCapExceeded>({"'big'", "1099511627776", "8388608"});
  EXPECT_THAT(files_.asked, ElementsAre("stat big"));
}

TEST_F(Collect, HoldsEachCapAtEqualAndRefusesOneMore) {
  files_.files = {{"a", {"12345"}}, {"b", {"1234"}}};
  spec_.declared_outputs = {land("a"), land("b")};
  const TransferLimits exact{.max_bytes_per_file = 5, .max_total_bytes = 9, .max_files = 2};
  spec_.files_out = exact;
  EXPECT_EQ(collect().landed.size(), 2U);
  sink_.delivered.clear();
  files_.asked.clear();

  spec_.files_out = exact;
  spec_.files_out.max_bytes_per_file = 4;
  refusal<SandboxTransferCapExceeded>({"'a'", "bytes a file"});
  EXPECT_THAT(files_.asked, ElementsAre("stat a"));
  spec_.files_out = exact;
  spec_.files_out.max_files = 1;
  refusal<SandboxTransferCapExceeded>({"'b'", "file number 2"});
  spec_.files_out = exact;
  spec_.files_out.max_total_bytes = 8;
  refusal<SandboxTransferCapExceeded>({"'b'", "bytes in all"});
  EXPECT_THAT(files_.asked, Not(testing::Contains(HasSubstr("read"))));
}

TEST_F(Collect, CountsConsumedOutputsBeforeTheyAreDropped) {
  files_.files = {{"a", {"12345"}}, {"b", {"1234"}}};
  spec_.declared_outputs = {consume("a"), land("b")};
  spec_.files_out = {.max_bytes_per_file = 5, .max_total_bytes = 9, .max_files = 2};
  EXPECT_EQ(collect().landed.size(), 1U);
  sink_.delivered.clear();
  spec_.files_out.max_total_bytes = 8;
  refusal<SandboxTransferCapExceeded>({"'b'", "bytes in all"});
}

TEST_F(Collect, SizesThatWrapAroundAreStillOverTheTotal) {
  files_.files = {{"a", {.size = 10}}, {"b", {.size = UINT64_MAX - 5}}};
  spec_.declared_outputs = {land("a"), land("b")};
  spec_.files_out = {.max_bytes_per_file = UINT64_MAX, .max_total_bytes = 1000, .max_files = 9};
  refusal<SandboxTransferCapExceeded>({"bytes in all"});
}

// -- Phase 6 --

// FO-07
TEST_F(Collect, RefusesAFileThatGrewAfterItsStat) {
  for (const bool buffers : {false, true}) {
    files_.files = {{"a", {.content = "123456", .size = 5, .ignores_cap = buffers}}};
    spec_.declared_outputs = {land("a")};
    refusal<SandboxTransferCapExceeded>({"\"a\" has more than the 5 bytes"});
  }
}

TEST_F(Collect, TakesAFileThatShrankAfterItsStat) {
  files_.files = {{"a", {.content = "123", .size = 5}}};
  spec_.declared_outputs = {land("a")};
  EXPECT_EQ(collect().landed.front().bytes, 3U);
}

TEST_F(Collect, ReadsNothingWhenAnyStatIsRefused) {
  files_.files = {{"a", {"x"}}, {"b", {"", EntryKind::symlink}}};
  spec_.declared_outputs = {land("a"), land("b")};
  refusal<SandboxOutputNotRegular>({"\"b\""});
  EXPECT_THAT(files_.asked, ElementsAre("stat a", "stat b"));
}

TEST_F(Collect, DeliversNothingWhenAnyReadFails) {
  files_.files = {
      {"a", {"x"}},
      {"b", {.content = "x", .on_read = [] { throw SandboxFileError("detail", EIO); }}}};
  spec_.declared_outputs = {land("a"), land("b")};
  refusal<SandboxOutputUnreachable>({"\"b\" could not be read", "Input/output error"});
}

// -- Translation --

template <typename Cause>
void expect_cause(const std::exception& error) {
  EXPECT_THROW(std::rethrow_if_nested(error), Cause);
}

TEST_F(Collect, TurnsFailuresOfStatAndReadIntoTheOutputFamilyAndKeepsTheCause) {
  spec_.declared_outputs = {land("a")};
  for (const bool at_stat : {true, false}) {
    const auto failing = [&](std::function<void()> failure) {
      FakeGuestFiles::File file{"x"};
      (at_stat ? file.on_stat : file.on_read) = std::move(failure);
      files_.files.insert_or_assign("a", std::move(file));
    };
    const auto expect_unreachable = [&]<typename Cause>(const Cause*, const char* why) {
      try {
        collect();
        ADD_FAILURE() << "nothing was refused";
      } catch (const SandboxOutputUnreachable& error) {
        EXPECT_THAT(error.message(), HasSubstr(why));
        EXPECT_THAT(error.message(), HasSubstr(at_stat ? "looked at" : "read"));
        EXPECT_THAT(error.message(), Not(HasSubstr("provider's detail")));
        expect_cause<Cause>(error);
      }
    };
    failing([] { throw SandboxFileError("provider's detail", ENOTDIR); });
    expect_unreachable(static_cast<SandboxFileError*>(nullptr), "Not a directory");
    failing([] { throw SandboxTimeout("provider's detail"); });
    expect_unreachable(static_cast<SandboxTimeout*>(nullptr), "in time");
    failing([] { throw SandboxUnavailable("provider's detail"); });
    expect_unreachable(static_cast<SandboxUnavailable*>(nullptr), "not available");

    failing([] { throw SandboxPathRefused("provider's detail"); });
    try {
      collect();
      ADD_FAILURE() << "nothing was refused";
    } catch (const SandboxOutputNotConfined& error) {
      EXPECT_THAT(error.message(), Not(HasSubstr("provider's detail")));
      expect_cause<SandboxPathRefused>(error);
    }
    EXPECT_THAT(sink_.delivered, IsEmpty());
  }
}

// FO-03
TEST_F(Collect, RefusesAFileThatBecameALinkBetweenStatAndRead) {
  files_.files = {
      {"out.txt", {.content = "x", .on_read = [] { throw SandboxFileError("open", ELOOP); }}}};
  spec_.declared_outputs = {land("out.txt")};
  refusal<SandboxOutputUnreachable>({"\"out.txt\" could not be read"});
}

TEST_F(Collect, LetsEverythingElsePass) {
  spec_.declared_outputs = {land("a")};
  files_.files["a"].on_stat = [] { throw SandboxCancelled("stop"); };
  EXPECT_THROW(collect(), SandboxCancelled);
  files_.files["a"].on_stat = [] { throw SandboxCapabilityNotSupported("no"); };
  EXPECT_THROW(collect(), SandboxCapabilityNotSupported);
  files_.files["a"].on_stat = [] { throw std::logic_error("fault"); };
  EXPECT_THROW(collect(), std::logic_error);
}

// -- Phase 7 --

TEST_F(Collect, PassesOnWhatTheSinkThrowsAndKeepsEarlierOnesOfAPlainSink) {
  files_.files = {{"a", {"1"}}, {"b", {"2"}}, {"c", {"3"}}};
  spec_.declared_outputs = {land("a"), land("b"), land("c")};
  sink_.refused = "b";
  EXPECT_THROW(collect(), std::runtime_error);
  EXPECT_THAT(sink_.names(), ElementsAre("a"));
}

class CountingSink : public RecordingSink {
 public:
  std::vector<LandedArtifact> deliver_all(std::span<const Artifact> artifacts) override {
    batches.push_back(artifacts.size());
    return std::vector<LandedArtifact>(answered.value_or(artifacts.size()));
  }
  std::vector<std::size_t> batches;
  std::optional<std::size_t> answered;
};

TEST_F(Collect, HandsASinkThatTakesBatchesOneBatchAfterAllReads) {
  files_.files = {{"a", {"1"}}, {"b", {"2"}}};
  spec_.declared_outputs = {land("a"), land("b")};
  CountingSink sink;
  collect_outputs(files_, spec_, {.sink = &sink});
  EXPECT_THAT(sink.batches, ElementsAre(2U));
  sink.answered = 1;
  expect_refusal<InvalidArgument>([&] { collect_outputs(files_, spec_, {.sink = &sink}); },
                                  "1 records for 2 artifacts");
}

// -- Helpers --

TEST(LandingOutputs, AreThoseThatTheSpecDeclares) {
  SandboxSpec spec;
  EXPECT_THAT(landing_outputs(spec), IsEmpty());
  EXPECT_FALSE(spec_lands_artifacts(spec));
  spec.declared_outputs = {consume("a")};
  EXPECT_FALSE(spec_lands_artifacts(spec));
  spec.outputs_named_at_call_time = true;
  EXPECT_TRUE(spec_lands_artifacts(spec));
  EXPECT_THAT(landing_outputs(spec), IsEmpty());
  spec.outputs_named_at_call_time = false;
  spec.declared_outputs.push_back(land("b"));
  EXPECT_TRUE(spec_lands_artifacts(spec));
  EXPECT_THAT(landing_outputs(spec), ElementsAre(land("b")));
}

TEST(MissingSink, NamesTheKindOnOneLine) {
  EXPECT_THAT(missing_sink_refusal("co\ndeact").message(), HasSubstr("co\\ndeact"));
}

// Whatever a guest says, the host never reads or lands more than the caps.
RC_GTEST_PROP(CollectCaps, HoldWhateverTheGuestSays, ()) {
  FakeGuestFiles files;
  SandboxSpec spec;
  spec.kind = "report";
  spec.files_out = {.max_bytes_per_file = 6, .max_total_bytes = 12, .max_files = 3};
  const auto count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) {
    const std::string name = "f" + std::to_string(i);
    FakeGuestFiles::File file;
    file.content = std::string(*rc::gen::inRange<std::size_t>(0, 9), 'x');
    file.size = *rc::gen::weightedOneOf<std::uint64_t>(
        {{3, rc::gen::just<std::uint64_t>(file.content.size())},
         {1, rc::gen::inRange<std::uint64_t>(0, 9)}});
    file.ignores_cap = *rc::gen::arbitrary<bool>();
    files.files.emplace(name, file);
    spec.declared_outputs.push_back(*rc::gen::arbitrary<bool>() ? land(name) : consume(name));
  }
  RecordingSink sink;
  try {
    collect_outputs(files, spec, {.sink = &sink});
  } catch (const SandboxTransferCapExceeded&) {
    RC_ASSERT(sink.delivered.empty());
  }
  std::size_t total = 0;
  for (const Artifact& artifact : sink.delivered) {
    RC_ASSERT(artifact.content.size() <= 6U);
    total += artifact.content.size();
  }
  RC_ASSERT(total <= 12U);
  RC_ASSERT(sink.delivered.size() <= 3U);
}

}  // namespace
}  // namespace casemate
