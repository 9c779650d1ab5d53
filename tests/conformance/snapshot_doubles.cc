// Backends whose snapshots are wrong in one fact.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "casemate/core/errors.h"
#include "tests/conformance/doubles.h"

namespace casemate::conformance_tests {
namespace {

using conformance::Suite;
using Restore = decltype(Faults::restore);

SandboxSnapshot made_up(const SandboxKey& key, std::string_view kind) {
  return {.id = std::string(32, 'f'), .backend = "", .key = key, .kind = std::string(kind)};
}

// What the good one refuses as `Refused` is done by `instead`.
template <typename Refused, typename Instead>
Restore restoring(Instead instead) {
  return [instead](SandboxBackend& good, const SandboxKey& key, const SandboxSpec& spec,
                   std::string_view id, const CallControl& control) {
    try {
      return good.restore(key, spec, id, control);
    } catch (const Refused&) {
      return instead(good, key, spec, id, control);
    }
  };
}

// The good one's, and a shell line in what it made.
Restore followed_by(std::string line) {
  return [line](SandboxBackend& good, const SandboxKey& key, const SandboxSpec& spec,
                std::string_view id, const CallControl& control) {
    auto restored = good.restore(key, spec, id, control);
    ExecRequest request;
    request.command = ShellLine{"cd '" + spec.work_dir + "'; " + line};
    restored->exec(request, control);
    return restored;
  };
}

// One sandbox for all that are restored from a snapshot.
Restore one_for_all() {
  const auto made = std::make_shared<std::map<std::string, std::shared_ptr<Sandbox>>>();
  return [made](SandboxBackend& good, const SandboxKey& key, const SandboxSpec& spec,
                std::string_view id, const CallControl& control) {
    // A fork's snapshot is its own, so the conversation tells them apart.
    std::shared_ptr<Sandbox>& found = (*made)[key.thread_id];
    if (!found) found = good.restore(key, spec, id, control);
    return found;
  };
}

}  // namespace

std::vector<Double> snapshot_doubles() {
  std::vector<Double> all;
  const auto add = [&](std::string name, const std::function<void(Faults&)>& break_it) {
    Double one{std::move(name), {Suite::snapshot}, {}};
    break_it(one.faults);
    all.push_back(std::move(one));
  };
  const auto acquire = [](SandboxBackend& good, const SandboxKey& key, const SandboxSpec& spec,
                          std::string_view,
                          const CallControl& control) { return good.acquire(key, spec, control); };

  add("leaves what came later where it was",
      [](Faults& faults) { faults.restore = followed_by("echo new > after"); });
  add("restores links as what they lead to", [](Faults& faults) {
    faults.restore = followed_by("[ ! -L link ] || { cp -L link copy; mv copy link; }");
  });
  add("gives twins one sandbox", [](Faults& faults) { faults.restore = one_for_all(); });
  add("gives twins the same random numbers", [](Faults& faults) {
    faults.exec = [](Call& good, const ExecRequest& request, const CallControl& control) {
      ExecResult result = good.exec(request, control);
      const auto* line = std::get_if<ShellLine>(&request.command);
      if (line != nullptr && line->line.find("urandom") != std::string::npos) result.stdout = "4";
      return result;
    };
  });
  add("takes one while a call runs", [](Faults& faults) {
    faults.snapshot = [](SandboxBackend& good, const SandboxKey& key, std::string_view kind,
                         const CallControl& control) {
      try {
        return good.snapshot(key, kind, control);
      } catch (const SandboxBusy&) {
        return made_up(key, kind);
      }
    };
  });
  add("takes one of nothing", [](Faults& faults) {
    faults.snapshot = [](SandboxBackend& good, const SandboxKey& key, std::string_view kind,
                         const CallControl& control) {
      try {
        return good.snapshot(key, kind, control);
      } catch (const NoSuchSandbox&) {
        return made_up(key, kind);
      }
    };
  });
  add("replaces a busy sandbox", [](Faults& faults) {
    faults.restore = restoring<SandboxBusy>([](SandboxBackend& good, const SandboxKey& key,
                                               const SandboxSpec& spec, std::string_view,
                                               const CallControl& control) {
      good.dispose(key);
      return good.acquire(key, spec, control);
    });
  });
  add("makes an empty one for an unknown snapshot",
      [&](Faults& faults) { faults.restore = restoring<NoSuchSnapshot>(acquire); });
  add("restores in any scope", [](Faults& faults) {
    faults.restore = [](SandboxBackend& good, const SandboxKey& key, const SandboxSpec& spec,
                        std::string_view id, const CallControl& control) {
      SandboxKey own = key;
      own.scope = "conformance";
      return good.restore(own, spec, id, control);
    };
  });
  add("restores with any spec",
      [&](Faults& faults) { faults.restore = restoring<SandboxSnapshotMismatch>(acquire); });
  add("does not count what it began with", [](Faults& faults) {
    faults.exec = [](Call& good, const ExecRequest& request, const CallControl& control) {
      ExecResult result = good.exec(request, control);
      const std::size_t refused = result.stdout.find("head: ");
      if (refused != std::string::npos)
        result.stdout.replace(refused, std::string::npos, "written\n");
      return result;
    };
  });
  add("keeps those of a conversation that is over", [](Faults& faults) {
    faults.dispose_scope = [](SandboxBackend&, std::string_view, std::string_view) { return 1; };
  });
  add("keeps those that are disposed", [](Faults& faults) {
    faults.dispose_snapshot = [](SandboxBackend&, std::string_view) { return true; };
  });
  return all;
}

}  // namespace casemate::conformance_tests
