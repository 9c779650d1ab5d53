#include "casemate/core/sandbox.h"

#include <gtest/gtest.h>

#include "casemate/core/backend.h"
#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using Events = std::vector<std::string>;

struct Script {
  Events events;
  bool close_known = true;
  bool fail = false;
};

class ScriptedProcess : public Process {
 public:
  ExecResult wait(const CallControl&) override {
    ExecResult result;
    result.exit_code = 7;
    result.stopped_known = true;
    return result;
  }
  void write_stdin(std::span<const char>, const CallControl&) override {}
  void close_stdin() override {}
  void signal(int) override {}
};

class ScriptedCall : public Call {
 public:
  explicit ScriptedCall(Script& script) : script_(script) {}
  ~ScriptedCall() override { script_.events.push_back("gone"); }

  const std::string& id() const override { return id_; }
  const std::string& directory() const override { return directory_; }
  std::unique_ptr<Process> start(const ExecRequest&, const CallControl&) override {
    note("start");
    return std::make_unique<ScriptedProcess>();
  }
  bool close() noexcept override {
    script_.events.push_back("close");
    return script_.close_known;
  }
  void write_file(std::string_view path, std::span<const char> content, std::string_view,
                  const CallControl&) override {
    note("write " + std::string(path) + "=" + std::string(content.begin(), content.end()));
  }
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view,
                                        const CallControl&) override {
    note("stat " + std::string(path));
    return SandboxEntry{.path = "x", .kind = EntryKind::file, .size_bytes = 3};
  }
  std::string read_file(std::string_view path, std::string_view, std::uint64_t max_bytes,
                        const CallControl&) override {
    note("read " + std::string(path) + " " + std::to_string(max_bytes));
    return "abc";
  }
  void remove(std::string_view path, std::string_view, Recursive recursive,
              const CallControl&) override {
    note("remove " + std::string(path) + (recursive == Recursive::yes ? " all" : ""));
  }
  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view,
                                     const CallControl&) override {
    note("list " + std::string(path));
    return {{.path = "x", .kind = EntryKind::file, .size_bytes = 3}};
  }

 private:
  void note(std::string event) {
    if (script_.fail) {
      throw SandboxPathRefused("as the script says");
    }
    script_.events.push_back(std::move(event));
  }

  Script& script_;
  std::string id_ = "0123456789ab";
  std::string directory_ = "/workspace/0123456789ab";
};

class ScriptedSandbox : public Sandbox {
 public:
  explicit ScriptedSandbox(Script& script) : script_(script) {}
  SandboxInfo info() const override { return {}; }
  std::unique_ptr<Call> open_call(const CallProfile&, const CallControl&) override {
    script_.events.push_back("open");
    return std::make_unique<ScriptedCall>(script_);
  }

 private:
  Script& script_;
};

TEST(Sandbox, RunCodeIsRefusedUnlessABackendHasIt) {
  Script script;
  ScriptedSandbox sandbox(script);
  expect_refusal<SandboxCapabilityNotSupported>([&] { sandbox.run_code("1", std::nullopt, {}); },
                                                "run_code");
}

TEST(Sandbox, AnExecIsACallOfItsOwnThatIsClosedBeforeTheResultCounts) {
  Script script;
  ScriptedSandbox sandbox(script);
  const ExecResult result = sandbox.exec({.command = ShellLine{"true"}}, {});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_EQ(script.events, (Events{"open", "start", "close", "gone"}));
}

TEST(Sandbox, AnExecWhoseCallCannotBeClosedClaimsNoEnd) {
  Script script;
  script.close_known = false;
  ScriptedSandbox sandbox(script);
  EXPECT_FALSE(sandbox.exec({.command = ShellLine{"true"}}, {}).stopped_known);
}

TEST(Sandbox, AFileOperationIsACallOfItsOwn) {
  Script script;
  ScriptedSandbox sandbox(script);
  sandbox.write_file("w", std::string_view("abc"), "/workspace", {});
  EXPECT_EQ(sandbox.stat_file("s", "/workspace", {})->size_bytes, 3U);
  EXPECT_EQ(sandbox.read_file("r", "/workspace", 9, {}), "abc");
  sandbox.remove("d", "/workspace", Recursive::yes, {});
  EXPECT_EQ(sandbox.list_dir("l", "/workspace", {}).size(), 1U);
  EXPECT_EQ(script.events,
            (Events{"open",  "write w=abc", "close",    "gone",   "open",  "stat s", "close",
                    "gone",  "open",        "read r 9", "close",  "gone",  "open",   "remove d all",
                    "close", "gone",        "open",     "list l", "close", "gone"}));
}

TEST(Sandbox, AFileOperationWhoseCallCannotBeClosedSaysThatTheSandboxIsToGo) {
  Script script;
  script.close_known = false;
  ScriptedSandbox sandbox(script);
  expect_refusal<SandboxUnavailable>([&] { sandbox.read_file("r", "/workspace", 9, {}); },
                                     "the end of call 0123456789ab");
  expect_refusal<SandboxUnavailable>([&] { sandbox.remove("d", "/workspace", Recursive::no, {}); },
                                     "the end of call");
}

TEST(Sandbox, ARefusedRequestLeavesNoCallOpen) {
  Script script;
  script.fail = true;
  ScriptedSandbox sandbox(script);
  EXPECT_THROW(sandbox.read_file("r", "/workspace", 9, {}), SandboxPathRefused);
  EXPECT_THROW(sandbox.exec({.command = ShellLine{"true"}}, {}), SandboxPathRefused);
  EXPECT_EQ(script.events, (Events{"open", "gone", "open", "gone"}));
}

class SmallestBackend : public SandboxBackend {
 public:
  BackendDeclarations declarations() const override { return {}; }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    return nullptr;
  }
  int dispose(const SandboxKey&) noexcept override { return 0; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 0; }
  bool dispose_id(std::string_view) noexcept override { return false; }
};

TEST(SandboxBackend, AdministrationHasWorkingDefaults) {
  SmallestBackend backend;
  EXPECT_TRUE(backend.probe().available);
  EXPECT_TRUE(backend.list().empty());
  expect_refusal<NoSuchSandbox>([&] { backend.attach({"s", "t", "a"}, "codeact", {}); }, "codeact");
}

TEST(SandboxBackend, WithoutTheCapabilityRefusesSnapshots) {
  SmallestBackend backend;
  const SandboxKey key{"s", "t", "a"};
  const SandboxKey twin{"s", "twin", "a"};
  SandboxSpec spec;
  spec.kind = "codeact";
  const auto not_supported = [](const std::function<void()>& act) {
    expect_refusal<SandboxCapabilityNotSupported>(act, {"keeps no snapshots", "declares snapshot"});
  };
  not_supported([&] { backend.snapshot(key, "codeact", {}); });
  not_supported([&] { backend.restore(key, spec, "00", {}); });
  not_supported([&] { backend.fork(key, twin, spec, {}); });
  EXPECT_FALSE(backend.dispose_snapshot("00"));
}

// Takes and restores, and says in which order.
class KeepingBackend : public SmallestBackend {
 public:
  SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                           const CallControl&) override {
    events.push_back("taken of " + key.thread_id);
    return {.id = "5a", .backend = "", .key = key, .kind = std::string(kind)};
  }
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec&,
                                   std::string_view snapshot_id, const CallControl&) override {
    events.push_back(std::string(snapshot_id) + " restored as " + key.thread_id);
    if (refuses) throw SandboxBusy("it runs a call");
    return nullptr;
  }
  bool dispose_snapshot(std::string_view id) noexcept override {
    events.push_back(std::string(id) + " disposed");
    return true;
  }
  Events events;
  bool refuses = false;
};

TEST(SandboxBackend, AForkIsASnapshotThatIsRestoredAndGone) {
  KeepingBackend backend;
  const SandboxKey key{"s", "t", "a"};
  const SandboxKey twin{"s", "twin", "a"};
  SandboxSpec spec;
  spec.kind = "codeact";
  backend.fork(key, twin, spec, {});
  const Events whole{"taken of t", "5a restored as twin", "5a disposed"};
  EXPECT_EQ(backend.events, whole);
  backend.events.clear();
  backend.refuses = true;
  EXPECT_THROW(backend.fork(key, twin, spec, {}), SandboxBusy);
  EXPECT_EQ(backend.events, whole) << "a refused fork leaves nothing";
}

TEST(SandboxBackend, AForkStaysInItsScopeUnderAKeyOfItsOwn) {
  KeepingBackend backend;
  const SandboxKey key{"s", "t", "a"};
  SandboxSpec spec;
  spec.kind = "codeact";
  expect_refusal<InvalidArgument>([&] { backend.fork(key, key, spec, {}); }, "of its own");
  expect_refusal<InvalidArgument>([&] { backend.fork(key, {"other", "t", "a"}, spec, {}); },
                                  "same scope");
  expect_refusal<InvalidArgument>([&] { backend.fork(key, {"s", "", "a"}, spec, {}); }, "thread");
  EXPECT_TRUE(backend.events.empty());
}

TEST(BackendDeclarations, SilenceClaimsNoIsolationAndNoEgressMode) {
  const BackendDeclarations declarations;
  EXPECT_FALSE(declarations.isolation);
  EXPECT_TRUE(declarations.egress_modes.empty());
  EXPECT_EQ(declarations.capabilities, default_capabilities());
  EXPECT_EQ(declarations.limits, SandboxLimits{});
  EXPECT_TRUE(declarations.os_families.empty());
  EXPECT_TRUE(declarations.enforceable_limits.empty());
  EXPECT_EQ(declarations.host_tool_transport, HostToolTransport::none);
}

}  // namespace
}  // namespace casemate
