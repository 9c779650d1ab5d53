// What was kept of a sandbox comes back, in a sandbox of its own, to whom it belongs and nobody
// else.

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"
#include "casemate/core/limits.h"

namespace casemate::conformance {
namespace {

constexpr std::string_view kUnknownId = "00000000000000000000000000000000";

// Sandboxes of a probe's own, under keys of a conversation of its own; all disposed with it.
class Keeping {
 public:
  explicit Keeping(Trial& trial, std::string_view probe)
      : trial_(trial),
        backend_(trial.backend()),
        // Apart from the run's own, in which a call is open.
        thread_(fmt::format("{} {}", trial.key().thread_id, probe)),
        spec_(trial.spec()) {}
  ~Keeping() {
    for (const std::string& thread : {thread_, other_thread()}) {
      backend_.dispose_scope(trial_.key().scope, thread);
    }
  }
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;

  SandboxBackend& backend() { return backend_; }
  const CallControl& control() const { return trial_.control(); }
  SandboxSpec& spec() { return spec_; }
  std::string other_thread() const { return thread_ + " other"; }

  SandboxKey key(std::string agent = "first") const {
    return {trial_.key().scope, thread_, std::move(agent)};
  }
  SandboxKey key_elsewhere() const { return {trial_.key().scope, other_thread(), "first"}; }

  std::shared_ptr<Sandbox> acquire(const SandboxKey& key) {
    return backend_.acquire(key, spec_, control());
  }
  SandboxSnapshot snapshot() { return backend_.snapshot(key(), spec_.kind, control()); }
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, std::string_view id) {
    return backend_.restore(key, spec_, id, control());
  }
  std::shared_ptr<Sandbox> fork(const SandboxKey& to) {
    return backend_.fork(key(), to, spec_, control());
  }

  // What the line prints in the directory that the sandbox keeps; standard error is in it.
  std::string print(Sandbox& sandbox, const std::string& line) {
    ExecRequest request;
    request.command = ShellLine{fmt::format("cd '{}' && {{ {}; }} 2>&1", spec_.work_dir, line)};
    return sandbox.exec(request, control()).stdout;
  }
  void expect_printed(std::string_view step, Sandbox& sandbox, const std::string& line,
                      const std::string& expected) {
    expect_equal(step, print(sandbox, line), expected);
  }
  void refuse(std::string_view step, std::string_view code, const auto& act) {
    expect_refused(step, code, std::nullopt, [&]() -> std::string {
      act();
      return "it was done";
    });
  }

 private:
  Trial& trial_;
  SandboxBackend& backend_;
  std::string thread_;
  SandboxSpec spec_;
};

void what_was_there_comes_back(Trial& trial) {
  Keeping at(trial, "comes back");
  const auto sandbox = at.acquire(at.key());
  at.print(*sandbox, "echo then > before; mkdir -p d/e; echo deep > d/e/f; echo home > ~/of-home");
  const std::string id = at.snapshot().id;
  at.print(*sandbox, "echo now > before; echo new > after; rm -r d ~/of-home");
  const auto restored = at.restore(at.key(), id);
  at.expect_printed("what was written before the snapshot", *restored, "cat before d/e/f ~/of-home",
                    "then\ndeep\nhome\n");
  at.expect_printed("what was written after it", *restored, "ls -d after || echo gone",
                    "ls: cannot access 'after': No such file or directory\ngone\n");
}

void twins_are_apart(Trial& trial) {
  Keeping at(trial, "apart");
  const auto source = at.acquire(at.key());
  at.print(*source, "echo base > file");
  const auto one = at.fork(at.key("one"));
  const auto two = at.fork(at.key("two"));
  at.print(*one, "echo one > file; echo one > ~/of-one");
  at.print(*two, "echo two > file");
  constexpr char kLook[] = "cat file; cat ~/of-one || true";
  at.expect_printed("the one that wrote", *one, kLook, "one\none\n");
  for (const auto& [step, sandbox, text] :
       {std::tuple("its twin", two, "two"), std::tuple("what both began from", source, "base")}) {
    at.expect_printed(step, *sandbox, "cat file; [ ! -e ~/of-one ] || echo seen",
                      std::string(text) + "\n");
  }
}

void twins_differ(Trial& trial) {
  Keeping at(trial, "differ");
  at.acquire(at.key());
  const std::string id = at.snapshot().id;
  const auto one = at.restore(at.key("one"), id);
  const auto two = at.restore(at.key("two"), id);
  if (one->info().id == two->info().id) {
    throw Unmet("the ids of two that began from one snapshot", "two ids", one->info().id);
  }
  for (const char* line : {"od -An -tx8 -N16 /dev/urandom", "cat /proc/sys/kernel/random/uuid",
                           "cat /etc/machine-id || cat /proc/sys/kernel/random/uuid"}) {
    const std::string of_one = at.print(*one, line);
    if (of_one != at.print(*two, line)) continue;
    throw Unmet(fmt::format("`{}` in two that began from one snapshot", line),
                "something else in each", shown(of_one));
  }
}

void links_and_names_are_kept(Trial& trial) {
  Keeping at(trial, "links");
  const auto sandbox = at.acquire(at.key());
  at.print(*sandbox,
           "ln -s /etc/passwd link; ln -s nowhere dangling; echo x > one; ln one other; "
           "chmod 751 one; printf odd > \"$(printf ' -\\377\\033[31m\\nname')\"; "
           "touch -d @1234567890 one; : > sparse; truncate -s 10G sparse");
  constexpr char kLook[] =
      "stat -c '%F %a %h %Y' one; stat -c '%F' link dangling; readlink link dangling; "
      "[ one -ef other ] && echo same; cat \"$(printf ' -\\377\\033[31m\\nname')\"; "
      "stat -c '%s' sparse; [ $(stat -c %b sparse) -lt 1000 ] && echo hole";
  const std::string before = at.print(*sandbox, kLook);
  at.expect_printed("links, modes, times, holes and names", *at.fork(at.key("twin")), kLook,
                    before);
}

void a_running_call_refuses(Trial& trial) {
  Keeping at(trial, "running");
  const auto sandbox = at.acquire(at.key());
  const auto call = sandbox->open_call({}, at.control());
  at.refuse("a snapshot while a call is open", "SandboxBusy", [&] { at.snapshot(); });
  call->close();
  at.snapshot();
}

void a_busy_sandbox_is_not_replaced(Trial& trial) {
  Keeping at(trial, "replaced");
  at.acquire(at.key());
  const std::string id = at.snapshot().id;
  const auto busy = at.acquire(at.key("busy"));
  const auto call = busy->open_call({}, at.control());
  at.refuse("restoring under a key whose sandbox runs a call", "SandboxBusy",
            [&] { at.restore(at.key("busy"), id); });
}

void nothing_is_made_to_be_kept(Trial& trial) {
  Keeping at(trial, "nothing");
  at.refuse("a snapshot under a key without a sandbox", "NoSuchSandbox", [&] { at.snapshot(); });
}

void an_unknown_snapshot_is_refused(Trial& trial) {
  Keeping at(trial, "unknown");
  at.refuse("an id that nobody gave", "NoSuchSnapshot",
            [&] { at.restore(at.key("twin"), kUnknownId); });
}

void another_scope_is_refused(Trial& trial) {
  Keeping at(trial, "scope");
  at.acquire(at.key());
  const std::string id = at.snapshot().id;
  SandboxKey foreign = at.key();
  foreign.scope += " of somebody else";
  struct Disposal {
    SandboxBackend& backend;
    const SandboxKey& key;
    ~Disposal() { backend.dispose(key); }
  } const disposal{at.backend(), foreign};
  at.refuse("a snapshot of another scope", "NoSuchSnapshot", [&] { at.restore(foreign, id); });
}

void another_spec_is_refused(Trial& trial) {
  Keeping at(trial, "spec");
  at.acquire(at.key());
  const std::string id = at.snapshot().id;
  const SandboxSpec good = at.spec();
  at.spec().kind += " other";
  at.refuse("a snapshot of another kind", "SandboxSnapshotMismatch",
            [&] { at.restore(at.key("kind"), id); });
  at.spec() = good;
  at.spec().work_dir += "-other";
  at.refuse("a snapshot of a sandbox that was made with something else", "SandboxSnapshotMismatch",
            [&] { at.restore(at.key("made"), id); });
}

void what_it_holds_counts(Trial& trial) {
  Keeping at(trial, "counts");
  at.spec().resources.disk_bytes = stated(8 * kMiB);
  const auto sandbox = at.acquire(at.key());
  at.print(*sandbox, "head -c 5242880 /dev/zero > most");
  const auto twin = at.fork(at.key("twin"));
  at.expect_printed("more than the rest of the disk", *twin,
                    "stat -c %s most; head -c 5242880 /dev/zero > more && echo written; true",
                    "5242880\nhead: error writing 'standard output': No space left on device\n");
}

void a_conversation_keeps_none_when_it_is_over(Trial& trial) {
  Keeping at(trial, "over");
  at.acquire(at.key());
  const std::string id = at.snapshot().id;
  at.backend().dispose_scope(at.key().scope, at.key().thread_id);
  at.refuse("a snapshot of a conversation that is disposed", "NoSuchSnapshot",
            [&] { at.restore(at.key_elsewhere(), id); });
}

void a_disposed_snapshot_is_over(Trial& trial) {
  Keeping at(trial, "disposed");
  const auto source = at.acquire(at.key());
  at.print(*source, "echo kept > file");
  const std::string id = at.snapshot().id;
  const auto twin = at.restore(at.key("twin"), id);
  if (!at.backend().dispose_snapshot(id)) {
    throw Unmet("disposing a snapshot that is there", "that it was", "that it was not");
  }
  at.refuse("a snapshot that is disposed", "NoSuchSnapshot",
            [&] { at.restore(at.key("late"), id); });
  at.expect_printed("what began from it", *twin, "cat file", "kept\n");
}

constexpr auto kProbes = std::to_array<Probe>({
    {"what-was-there-comes-back",
     "a restored sandbox has what was written before the snapshot and nothing that came later",
     what_was_there_comes_back, Capability::exec},
    {"twins-are-apart", "what one twin writes, neither the other nor the source sees",
     twins_are_apart, Capability::exec},
    {"twins-differ", "two that began from one snapshot have ids and random numbers of their own",
     twins_differ, Capability::exec},
    {"links-and-names-are-kept", "links stay links, holes holes, and names, modes and times stay",
     links_and_names_are_kept, Capability::exec},
    {"a-running-call-refuses", "no snapshot is taken while a call is open", a_running_call_refuses},
    {"a-busy-sandbox-is-not-replaced", "a restore ends no sandbox in which a call is open",
     a_busy_sandbox_is_not_replaced},
    {"nothing-is-made-to-be-kept", "no snapshot is taken where there is no sandbox",
     nothing_is_made_to_be_kept},
    {"an-unknown-snapshot-is-refused", "an id that is no snapshot's restores nothing",
     an_unknown_snapshot_is_refused},
    {"another-scope-is-refused", "a snapshot is restored in its own scope only",
     another_scope_is_refused},
    {"another-spec-is-refused",
     "a snapshot is restored into its own kind only, with what its sandbox was made with",
     another_spec_is_refused},
    {.id = "what-it-holds-counts",
     .sentence = "what a sandbox begins with counts against its disk bound",
     .run = what_it_holds_counts,
     .also = Capability::exec,
     .held = Limit::disk},
    {"a-conversation-keeps-none-when-it-is-over",
     "a conversation's snapshots go with it, as seen from the others of its scope",
     a_conversation_keeps_none_when_it_is_over},
    {"a-disposed-snapshot-is-over",
     "a disposed snapshot restores nothing more, and what began from it lives on",
     a_disposed_snapshot_is_over, Capability::exec},
});

}  // namespace

std::span<const Probe> snapshot_probes() { return kProbes; }

}  // namespace casemate::conformance
