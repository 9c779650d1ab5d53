// `casemate rm`: ends sandboxes.

#include <fmt/format.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/kept_sandboxes.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/base/utf8.h"
#include "casemate/core/backend.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--scope", "S", Repeat::refused, "none", "end every sandbox of this scope", "--scope reports"},
    {"--thread", "T", Repeat::refused, "every thread of the scope",
     "with --scope: only those of this thread", "--scope cli --thread 42"},
    {"--all", "", Repeat::refused, "off", "end every sandbox of this user", "--all"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

using Backends = std::vector<std::shared_ptr<SandboxBackend>>;

int remove_where(const Backends& backends, const std::function<bool(const SandboxRecord&)>& wanted,
                 NotLookedAt& missed) {
  int ended = 0;
  for (const auto& backend : backends) {
    for (const SandboxRecord& sandbox : list_of(*backend, missed)) {
      if (wanted(sandbox) && backend->dispose_id(sandbox.id)) ++ended;
    }
  }
  return ended;
}

int remove_scope(const Backends& backends, const std::string& scope, const std::string& thread,
                 NotLookedAt& missed) {
  if (thread.empty()) {
    return remove_where(
        backends, [&](const SandboxRecord& sandbox) { return sandbox.key.scope == scope; }, missed);
  }
  int ended = 0;
  for (const auto& backend : backends) {
    ended += backend->dispose_scope(scope, thread);
    // That ends what it can and does not tell what it could not look at.
    list_of(*backend, missed);
  }
  return ended;
}

// Those that are there go, whichever of the others is not.
int remove_ids(const Backends& backends, const std::vector<std::string>& ids,
               std::vector<std::string>& unknown, NotLookedAt& missed) {
  int ended = 0;
  for (const std::string& id : ids) {
    bool lived = false;
    for (const auto& backend : backends) lived = lived || backend->dispose_id(id);
    if (lived) {
      ++ended;
    } else {
      unknown.push_back(escape_for_display(id));
    }
  }
  // Whether it is of a sandbox that could not be looked at.
  if (!unknown.empty()) {
    for (const auto& backend : backends) list_of(*backend, missed);
  }
  return ended;
}

struct RemoveOptions {
  std::vector<std::string> ids;
  bool scope_given = false;
  std::string scope;
  std::string thread;
};

RemoveOptions read_remove_options(const ParsedLine& line) {
  RemoveOptions options;
  options.ids = line.operands;
  options.ids.insert(options.ids.end(), line.trailing.begin(), line.trailing.end());
  // Who is named by a word is meant, and not whom casemate.toml names: ids put all of its defaults
  // aside, --all those of --scope and --thread, and these one of --all.
  const bool ids = !options.ids.empty();
  const bool one_scope = line.typed("--scope") || line.typed("--thread");
  const bool all = line.typed("--all") || (line.has("--all") && !ids && !one_scope);
  const auto names = [&](std::string_view option) {
    return line.typed(option) || (line.has(option) && !ids && !line.typed("--all"));
  };
  options.scope_given = names("--scope");
  if (names("--thread") && !options.scope_given) {
    throw InvalidArgument("--thread needs --scope",
                          "give both; that of `casemate run` and `casemate exec` is cli where none "
                          "was given: --scope cli");
  }
  const int ways = int{ids} + int{options.scope_given} + int{all};
  if (ways != 1) {
    throw InvalidArgument(
        ways == 0 ? "nothing to remove is named" : "more than one way to choose is given",
        "name ids (`casemate ls` lists them), or --scope S [--thread T], or --all");
  }
  if (options.scope_given) options.scope = line.value_or("--scope", "");
  if (names("--thread")) options.thread = line.value_or("--thread", "");
  for (const char* name : {"--scope", "--thread"}) {
    if (names(name) && line.value_or(name, "").empty()) {
      throw InvalidArgument(fmt::format("{} is empty", name), "a part of the key is never empty");
    }
  }
  return options;
}

}  // namespace

constexpr VerbSpec kRemoveVerb = {
    .name = "rm",
    .synopsis = "rm ID... | --scope S [--thread T] | --all",
    .summary = "end sandboxes, busy or not, and all that is in them",
    .notes =
        "Prints `removed N`. A scope or thread without a sandbox removes 0. What the line names is "
        "meant,\n"
        "whatever casemate.toml has for the others.\n"
        "\n"
        "Exit status: 0; 125 (NoSuchSandbox) when an ID is of no living sandbox: the others that "
        "were\n"
        "named have ended all the same; 125 also when those of a backend could not be looked at.",
    .options = kOptions,
    .operands = ValueForm::text,
    .offered_operands = {},
};

int remove(const ParsedLine& line, const Config& config) {
  RemoveOptions options;
  read_line(line, [&](const ParsedLine& given) { options = read_remove_options(given); });
  const Backends backends = make_backends(config, make_log(line));
  std::vector<std::string> unknown;
  NotLookedAt missed;
  int ended = 0;
  if (!options.ids.empty()) {
    ended = remove_ids(backends, options.ids, unknown, missed);
  } else if (options.scope_given) {
    ended = remove_scope(backends, options.scope, options.thread, missed);
  } else {
    ended = remove_where(backends, [](const SandboxRecord&) { return true; }, missed);
  }
  write_all(1, fmt::format("removed {}\n", ended));
  if (unknown.empty()) return missed.report();
  std::string names;
  for (const std::string& id : unknown) names += (names.empty() ? "" : ", ") + id;
  const std::string what = fmt::format("no sandbox has the id {}", names);
  if (!missed.empty()) throw missed.refusal(what + " elsewhere");
  throw NoSuchSandbox(what, "`casemate ls` lists those that there are");
}

}  // namespace casemate::app
