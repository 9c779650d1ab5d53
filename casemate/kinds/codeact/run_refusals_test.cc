// What a run refuses before anything is read or started.

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/scripted_test.h"
#include "casemate/tool/refusals.h"
#include "tests/support/expect_refusal.h"

namespace casemate::codeact {
namespace {

TEST(RunCodeact, RefusesAnEmptyKeyPart) {
  Scripted scripted;
  scripted.key.thread_id = "";
  expect_refusal<InvalidArgument>([&] { scripted.run(code()); }, "thread");
  EXPECT_TRUE(scripted.untouched());
}

TEST(RunCodeact, TakesATimeoutAboveZeroUpToSevenDays) {
  Scripted scripted;
  CodeactRequest request = code();
  const auto refused = [&](std::chrono::nanoseconds timeout) {
    request.timeout = timeout;
    expect_refusal<InvalidArgument>([&] { scripted.run(request); }, "604800");
  };
  refused(std::chrono::nanoseconds(0));
  refused(std::chrono::seconds(-1));
  refused(std::chrono::seconds(604800) + std::chrono::nanoseconds(1));
  EXPECT_TRUE(scripted.untouched());
  request.timeout = std::chrono::nanoseconds(1);
  EXPECT_NO_THROW(scripted.run(request));
  request.timeout = std::chrono::seconds(604800);
  EXPECT_NO_THROW(scripted.run(request));
  request.timeout.reset();
  EXPECT_NO_THROW(scripted.run(request));
}

TEST(RunCodeact, RefusesARequestThatDoesNotFitItsWiring) {
  Scripted scripted;
  CodeactRequest request = code();
  request.outputs = {"a"};
  expect_refusal<InvalidArgument>([&] { scripted.run(request); }, "none");
  expect_refusal<InvalidArgument>([&] { scripted.run(with_files({"a"})); }, "store");

  Scripted unlike([](const Program&) { return exited(); }, {.outputs = CodeactOutputs::declared});
  unlike.wiring.spec = codeact_sandbox_spec();
  expect_refusal<InvalidArgument>([&] { unlike.run(code()); },
                                  {"another outputs mode", "declared"});
  EXPECT_TRUE(unlike.untouched());

  Scripted listed([](const Program&) { return exited(); }, {.outputs = CodeactOutputs::manifest});
  expect_refusal<InvalidArgument>([&] { listed.run(request); }, "manifest");
  listed.wiring.output_sink = nullptr;
  expect_refusal<SandboxOutputSinkRequired>([&] { listed.run(code()); });
  EXPECT_TRUE(scripted.untouched() && listed.untouched());
}

TEST(RunCodeact, CountsTheProgramAmongTheFilesThatGoIn) {
  // IN-10: the count is refused before anything is listed, read or started.
  Scripted scripted([](const Program&) { return exited(); }, {.files_in = {10, 100, 3}});
  const auto store = std::make_shared<CountingStore>(
      std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}, {"c", "3"}});
  scripted.wiring.file_store = store;
  expect_refusal<SandboxTransferCapExceeded>([&] { scripted.run(with_files({"a", "b", "c"})); },
                                             {"3 files", "makes 4", "at most 3"});
  EXPECT_EQ(store->listings, 0);
  EXPECT_TRUE(scripted.untouched());
  EXPECT_NO_THROW(scripted.run(with_files({"a", "b"})));
}

TEST(RunCodeact, HoldsTheProgramAgainstTheCapsBeforeAnythingElse) {
  Scripted scripted([](const Program&) { return exited(); }, {.files_in = {10, 100, 3}});
  const auto store =
      std::make_shared<CountingStore>(std::map<std::string, std::string>{{"a", "1"}});
  scripted.wiring.file_store = store;
  CodeactRequest request = with_files({"a"});
  request.code = std::string(11, '#');
  expect_refusal<SandboxTransferCapExceeded>([&] { scripted.run(request); },
                                             {"program.py", "11", "10"});
  EXPECT_EQ(store->listings, 0);
  EXPECT_TRUE(scripted.untouched());
  request.code = std::string(10, '#');
  EXPECT_NO_THROW(scripted.run(request));
}

TEST(RunCodeact, RefusesAFileOverTheCapByNameAndWithoutAHostPath) {
  // IN-10
  Scripted scripted([](const Program&) { return exited(); }, {.files_in = {10, 100, 3}});
  scripted.wiring.file_store = std::make_shared<CountingStore>(std::map<std::string, std::string>{
      {"at the cap", std::string(10, 'x')}, {"over", std::string(11, 'x')}});
  EXPECT_NO_THROW(scripted.run(with_files({"at the cap"})));
  const std::size_t acquired = scripted.backend->keys().size();
  const std::string text = expect_refusal<SandboxTransferCapExceeded>(
      [&] { scripted.run(with_files({"over"})); }, {"'over'", "10 bytes"});
  EXPECT_EQ(text.find("/host"), std::string::npos);
  EXPECT_EQ(scripted.backend->keys().size(), acquired);
}

TEST(RunCodeact, RefusesFilesThatAreTogetherOverTheTotal) {
  // IN-10
  Scripted scripted([](const Program&) { return exited(); }, {.files_in = {10, 20, 4}});
  scripted.wiring.file_store = std::make_shared<CountingStore>(std::map<std::string, std::string>{
      {"a", std::string(6, 'x')}, {"b", std::string(6, 'x')}, {"c", std::string(7, 'x')}});
  CodeactRequest request = with_files({"a", "b"});
  request.code = std::string(8, '#');
  EXPECT_NO_THROW(scripted.run(request));
  request.files = {"a", "c"};
  const std::string text = expect_refusal<SandboxTransferCapExceeded>(
      [&] { scripted.run(request); }, {"'c'", "20 bytes in all"});
  EXPECT_EQ(text.find("/host"), std::string::npos);
}

TEST(RunCodeact, RefusesFileNamesByTheRulesBeforeTheyAreLookedFor) {
  Scripted scripted;
  const auto store =
      std::make_shared<CountingStore>(std::map<std::string, std::string>{{"a", "1"}, {"a/b", "2"}});
  scripted.wiring.file_store = store;
  for (const char* name : {"", "../a", "/etc/hostname", "a\\b", "./a", "a\nb", "\xff"}) {
    const std::string text =
        expect_refusal<SandboxArtifactNameInvalid>([&] { scripted.run(with_files({name})); });
    EXPECT_EQ(text.find("hostname"), std::string::npos);
  }
  expect_refusal<SandboxArtifactNameCollision>([&] { scripted.run(with_files({"a", "a"})); });
  expect_refusal<SandboxArtifactNameCollision>([&] { scripted.run(with_files({"a", "a/b"})); });
  EXPECT_EQ(store->reads, 0);
  EXPECT_TRUE(scripted.untouched());
}

TEST(RunCodeact, ReservesTheListOnlyWhereItIsRead) {
  Scripted scripted([](const Program&) { return exited(); }, {.outputs = CodeactOutputs::manifest});
  scripted.wiring.file_store = std::make_shared<InMemoryStore>(
      std::map<std::string, std::string>{{"outputs.json", "1"}, {"outputs.jsonl", "2"}});
  expect_refusal<ModelFacingRefusal>([&] { scripted.run(with_files({"outputs.json"})); },
                                     "reserved");
  expect_refusal<ModelFacingRefusal>([&] { scripted.run(with_files({"outputs.json/x"})); },
                                     "reserved");
  EXPECT_TRUE(scripted.untouched());
  EXPECT_NO_THROW(scripted.run(with_files({"outputs.jsonl"})));
}

TEST(RunCodeact, HelpsWithANameThatIsNotShared) {
  Scripted scripted;
  std::map<std::string, std::string> files{{"data/Sales.csv", ""}, {"old/sales.csv", ""}};
  for (int number = 10; number < 32; ++number) files["n" + std::to_string(number)] = "";
  scripted.wiring.file_store = std::make_shared<InMemoryStore>(files);
  EXPECT_EQ(expect_refusal<ModelFacingRefusal>([&] { scripted.run(with_files({"sales.csv"})); }),
            "there is no shared file 'sales.csv'; did you mean data/Sales.csv, old/sales.csv? ()");
  const std::string text = expect_refusal<ModelFacingRefusal>(
      [&] { scripted.run(with_files({"other"})); }, {"data/Sales.csv, n10", "n28, and 4 more"});
  EXPECT_EQ(text.find("n29"), std::string::npos);
  scripted.wiring.file_store =
      std::make_shared<InMemoryStore>(std::map<std::string, std::string>());
  expect_refusal<ModelFacingRefusal>([&] { scripted.run(with_files({"a"})); },
                                     "no files are shared");
  EXPECT_TRUE(scripted.untouched());
}

TEST(RunCodeact, AsksForTheListingOnlyWhenFilesAreNamed) {
  Scripted scripted;
  const auto store =
      std::make_shared<CountingStore>(std::map<std::string, std::string>{{"a", "1"}});
  scripted.wiring.file_store = store;
  scripted.run(code());
  EXPECT_EQ(store->listings, 0);
  scripted.run(with_files({"a"}));
  EXPECT_EQ(store->listings, 1);
  EXPECT_EQ(store->reads, 1);
}

TEST(RunCodeact, FindsANameWhateverTheOrderOfTheListing) {
  Scripted scripted;
  scripted.wiring.file_store = std::make_shared<CountingStore>(
      std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}});
  EXPECT_NO_THROW(scripted.run(with_files({"a", "b", "c", "d"})));
}

TEST(RunCodeact, TurnsAStoresOwnFailureIntoARefusal) {
  Scripted scripted;
  const auto store =
      std::make_shared<CountingStore>(std::map<std::string, std::string>{{"a", "1"}});
  scripted.wiring.file_store = store;
  store->vanished = true;
  expect_refusal<ModelFacingRefusal>([&] { scripted.run(with_files({"a"})); },
                                     "not there any more");
  store->read_failure = std::make_exception_ptr(std::runtime_error("blob store down"));
  expect_refusal<SandboxFileError>([&] { scripted.run(with_files({"a"})); }, "blob store down");
  store->read_failure = std::make_exception_ptr(SandboxFileError("eio", EIO));
  expect_refusal<SandboxFileError>([&] { scripted.run(with_files({"a"})); }, "eio");
  store->failure = std::make_exception_ptr(std::runtime_error("no listing"));
  expect_refusal<SandboxFileError>([&] { scripted.run(with_files({"a"})); }, "no listing");
  // Not in its own class: a model would read its text.
  // Not in its own class, whose text a model would read.
  store->failure = std::make_exception_ptr(SandboxTransferCapExceeded("too many"));
  expect_refusal<SandboxFileError>([&] { scripted.run(with_files({"a"})); }, "too many");
  store->failure = nullptr;
  store->read_failure = std::make_exception_ptr(SandboxOutputMissing("/host/a"));
  expect_refusal<SandboxFileError>([&] { scripted.run(with_files({"a"})); }, "/host/a");
  EXPECT_TRUE(scripted.untouched());
}

TEST(RunCodeact, IsCancelledBetweenFiles) {
  Scripted scripted;
  scripted.wiring.file_store =
      std::make_shared<InMemoryStore>(std::map<std::string, std::string>{{"a", "1"}});
  std::stop_source source;
  source.request_stop();
  expect_refusal<SandboxCancelled>(
      [&] { scripted.run(with_files({"a"}), {.deadline = {}, .stop = source.get_token()}); });
  EXPECT_TRUE(scripted.untouched());
}

TEST(RunCodeact, ObeysTheRouter) {
  Scripted scripted;
  scripted.wiring.router = SandboxRouter(
      {scripted.backend},
      {.min_isolation = Isolation::process, .denied_capabilities = {Capability::files_in}});
  expect_refusal<SandboxCapabilityDenied>([&] { scripted.run(code()); }, "files_in");
  scripted.wiring.router = SandboxRouter({});
  expect_refusal<NoSandboxBackend>([&] { scripted.run(code()); });
}

}  // namespace
}  // namespace casemate::codeact
