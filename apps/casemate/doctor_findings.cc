#include "apps/casemate/doctor_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <memory>
#include <optional>
#include <utility>

#include "apps/casemate/refusal.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/vocabulary.h"

namespace casemate::app {

namespace {

using Status = Finding::Status;

constexpr std::array<const char*, 7> kNamespaces = {"cgroup", "ipc",  "mnt", "net",
                                                    "pid",    "user", "uts"};

// What the lines that begin with a word hold behind it.
std::vector<std::string> values_of(std::string_view text, std::string_view word) {
  std::vector<std::string> values;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(word)) continue;
    line.remove_prefix(word.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    values.emplace_back(line);
  }
  return values;
}

// Ends with its sandbox.
class Trial {
 public:
  explicit Trial(SandboxBackend& backend)
      : backend_(backend), key_{"casemate doctor", random_hex(8), "default"} {
    SandboxSpec spec;
    spec.kind = "doctor";
    const auto start = std::chrono::steady_clock::now();
    sandbox_ = backend_.acquire(key_, spec, {});
    const ExecResult first = shell("echo works");
    took_ = std::chrono::steady_clock::now() - start;
    if (first.stdout != "works\n") {
      throw SandboxUnavailable(fmt::format("a shell in a sandbox answered \"{}{}\"",
                                           escape_for_display(first.stdout),
                                           escape_for_display(first.stderr)));
    }
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    sandbox_.reset();
    backend_.dispose(key_);
  }

  ExecResult shell(std::string line) {
    ExecRequest request;
    request.command = ShellLine{std::move(line)};
    request.timeout = std::chrono::seconds(30);
    return sandbox_->exec(request, {});
  }
  SandboxInfo info() const { return sandbox_->info(); }
  double milliseconds() const { return std::chrono::duration<double, std::milli>(took_).count(); }

 private:
  SandboxBackend& backend_;
  SandboxKey key_;
  std::shared_ptr<Sandbox> sandbox_;
  std::chrono::steady_clock::duration took_{};
};

Finding boundary(Trial& trial, const BackendDeclarations& declared) {
  const std::string name = declared.name + ": boundary";
  const std::string rung(to_string(trial.info().isolation));
  const auto lacking = lacking_evidence(trial.shell(kShowBoundary).stdout, own_namespaces());
  if (lacking.empty()) {
    return {name, Status::ok,
            fmt::format("{}: a program sees namespaces of its own of every kind, no capability, a "
                        "system call filter, no network interface but loopback",
                        rung),
            ""};
  }
  return {
      name, Status::missing,
      fmt::format("it claims {}, and a program does not see: {}", rung, fmt::join(lacking, ", ")),
      ""};
}

Finding limits(const Trial& trial, const BackendDeclarations& declared) {
  const std::string name = declared.name + ": limits";
  if (trial.info().limits_not_held.empty()) {
    return {name, Status::ok, "the defaults of every limit are held", ""};
  }
  return {name, Status::weaker,
          fmt::format("cannot be held here: {}; a run that states one is refused",
                      join_names(trial.info().limits_not_held)),
          ""};
}

Finding interpreter(Trial& trial, const BackendDeclarations& declared) {
  const std::string name = declared.name + ": python3";
  const ExecResult result = trial.shell("/usr/bin/python3 -c 'import sys; print(sys.version)'");
  const std::string version = result.stdout.substr(0, result.stdout.find_first_of(" \n"));
  if (result.exit_code == 0) return {name, Status::ok, "/usr/bin/python3 " + version, ""};
  return {name, Status::missing,
          "/usr/bin/python3 does not run in a sandbox: " +
              escape_for_display(result.stderr.substr(0, 200)) +
              "; as root: apt-get install python3",
          "apt-get install python3"};
}

}  // namespace

std::string_view to_string(Finding::Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::weaker:
      return "weaker";
    case Status::missing:
      break;
  }
  return "missing";
}

const char kShowBoundary[] =
    "cat /proc/self/status; for kind in cgroup ipc mnt net pid user uts; do "
    "echo \"namespace $(readlink /proc/self/ns/$kind)\"; done; "
    "sed -n 's/^ *\\([^ :]*\\):.*/interface \\1/p' /proc/net/dev";

std::vector<std::string> lacking_evidence(std::string_view seen,
                                          const std::map<std::string, std::string>& ours) {
  std::vector<std::string> lacking;
  const auto is = [&](std::string_view word, std::string_view value) {
    return values_of(seen, word) == std::vector<std::string>{std::string(value)};
  };
  const std::vector<std::string> namespaces = values_of(seen, "namespace");
  for (const auto& [kind, own] : ours) {
    const bool another = std::ranges::any_of(
        namespaces, [&](const auto& name) { return name.starts_with(kind + ":[") && name != own; });
    if (!another) lacking.push_back("a " + kind + " namespace of its own");
  }
  for (const char* set : {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"}) {
    if (!is(set, "0000000000000000")) lacking.push_back(std::string("no capability in ") + set);
  }
  if (!is("NoNewPrivs:", "1")) lacking.emplace_back("no_new_privs");
  if (!is("Seccomp:", "2")) lacking.emplace_back("a system call filter");
  if (!is("interface", "lo")) lacking.emplace_back("loopback as its only network interface");
  return lacking;
}

std::map<std::string, std::string> own_namespaces() {
  std::map<std::string, std::string> found;
  for (const char* kind : kNamespaces) {
    char target[PATH_MAX];
    const ssize_t length =
        readlink(fmt::format("/proc/self/ns/{}", kind).c_str(), target, sizeof target);
    found[kind] = length < 0 ? "" : std::string(target, static_cast<std::size_t>(length));
  }
  return found;
}

std::vector<Finding> examine(SandboxBackend& backend) {
  const BackendDeclarations declared = backend.declarations();
  const BackendProbe probe = backend.probe();
  if (!probe.available) {
    return {{declared.name, Status::missing, options_named_here(probe.reason), probe.fix}};
  }
  try {
    Trial trial(backend);
    std::vector<Finding> findings{
        {declared.name, Status::ok,
         fmt::format("started a sandbox and ran a program in it in {:.0f} ms; {}",
                     trial.milliseconds(), probe.engine),
         ""}};
    if (declared.isolation && *declared.isolation >= Isolation::container) {
      findings.push_back(boundary(trial, declared));
    }
    findings.push_back(limits(trial, declared));
    findings.push_back(interpreter(trial, declared));
    return findings;
  } catch (const SandboxError& error) {
    return {{declared.name, Status::missing,
             error.hint().empty() ? error.message()
                                  : error.message() + "; " + options_named_here(error.hint()),
             ""}};
  }
}

}  // namespace casemate::app
