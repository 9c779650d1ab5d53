#include "apps/casemate/doctor_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "apps/casemate/refusal.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/conformance/evidence.h"
#include "casemate/core/errors.h"
#include "casemate/core/vocabulary.h"
#include "casemate/local/diagnosis.h"
#include "casemate/local/subordinate_ids.h"

namespace casemate::app {

namespace {

using Status = Finding::Status;

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
  conformance::Evidence evidence() {
    const auto call = sandbox_->open_call({}, {});
    return conformance::gather_evidence(*sandbox_, call.get(), {});
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
  const std::string rung(to_string(*declared.isolation));
  const conformance::Evidence evidence = trial.evidence();
  const auto lacking = conformance::lacking_evidence(*declared.isolation, evidence);
  if (!lacking.empty()) {
    return {name, Status::missing,
            fmt::format("it claims {}, and what is not seen of it is: {}", rung,
                        fmt::join(lacking, "; ")),
            ""};
  }
  const auto weaker = conformance::lacking_hardening(evidence);
  if (!weaker.empty()) {
    return {name, Status::weaker,
            fmt::format("{}: all that the rung demands is seen, and not: {}", rung,
                        fmt::join(weaker, "; ")),
            ""};
  }
  return {name, Status::ok,
          fmt::format("{}: a program sees namespaces of its own of every kind, no capability, a "
                      "system call filter, no network interface but loopback{}",
                      rung, evidence.outside ? "; this host sees namespaces of its own, too" : ""),
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
  const local::Remedy remedy = local::install_package("python3");
  return {name, Status::missing,
          fmt::format("/usr/bin/python3 does not run in a sandbox: {}; {}",
                      escape_for_display(result.stderr.substr(0, 200)), remedy.hint),
          remedy.command};
}

bool gains_no_rights() { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1; }

}  // namespace

std::string_view to_string(Finding::Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::weaker:
      return "weaker";
    case Status::missing:
      return "missing";
    case Status::absent:
      break;
  }
  return "absent";
}

// An engine that is there and does not even say what it is is told by its path: somebody asked for
// it. One that works and has no use for this user may be left alone.
bool is_broken(SandboxBackend& backend, const BackendProbe& probe) {
  if (probe.available) return false;
  if (probe.engine.starts_with('/')) return true;
  // A probe tells why, and not whose that is.
  try {
    Trial{backend};
    return false;
  } catch (const SandboxError& error) {
    return dynamic_cast<const local::StateRemedy*>(&error) != nullptr &&
           probe.reason.starts_with(error.message());
  }
}

std::vector<Finding> examine(SandboxBackend& backend) {
  const BackendDeclarations declared = backend.declarations();
  const BackendProbe probe = backend.probe();
  if (!probe.available) {
    return {{declared.name, Status::missing, options_named_here(probe.reason), probe.fix,
             is_broken(backend, probe)}};
  }
  try {
    Trial trial(backend);
    std::vector<Finding> findings{
        {declared.name, Status::ok,
         fmt::format("started a sandbox and ran a program in it in {:.0f} ms; {}",
                     trial.milliseconds(), probe.engine),
         "", false, probe.one_user_id}};
    if (declared.isolation && *declared.isolation >= Isolation::container) {
      findings.push_back(boundary(trial, declared));
    }
    findings.push_back(limits(trial, declared));
    findings.push_back(interpreter(trial, declared));
    return findings;
  } catch (const SandboxImageNotSupported&) {
    // It has none of its own, and what runs in one is the image's.
    return {{declared.name, Status::ok,
             fmt::format("works ({}); a run has to name an image", probe.engine), ""}};
  } catch (const SandboxError& error) {
    return {{declared.name, Status::missing,
             error.hint().empty() ? error.message()
                                  : error.message() + "; " + options_named_here(error.hint()),
             ""}};
  }
}

Finding examine_user_ids(std::span<const Finding> findings) {
  const auto seen = std::ranges::find_if(
      findings, [](const Finding& finding) { return !finding.one_user_id.empty(); });
  const auto remedy = local::remedy_for_one_id();
  if (seen == findings.end() && !remedy) {
    return {"user ids", Status::ok, "enough for sandboxes to have some of their own", ""};
  }
  std::string found = "a sandbox's own processes and its programs have one user id between them";
  if (seen != findings.end()) found += " (" + escape_for_display(seen->one_user_id) + ")";
  if (remedy) {
    found += "; " + remedy->hint;
  } else if (gains_no_rights()) {
    found +=
        "; this process may gain no rights (NoNewPrivs in /proc/self/status), which newuidmap "
        "needs: start Casemate without that (a systemd unit: NoNewPrivileges=no)";
  }
  return {"user ids", Status::weaker, std::move(found), remedy ? remedy->command : ""};
}

std::vector<Finding> examine_all(std::span<const std::shared_ptr<SandboxBackend>> backends) {
  std::vector<std::vector<Finding>> found;
  for (const auto& backend : backends) found.push_back(examine(*backend));
  const bool one_works = std::ranges::any_of(
      found, [](const auto& findings) { return findings.front().status == Status::ok; });
  std::vector<Finding> all;
  for (auto& findings : found) {
    Finding& first = findings.front();
    if (one_works && first.status == Status::missing && !first.broken) {
      first.status = Status::absent;
    }
    std::ranges::move(findings, std::back_inserter(all));
  }
  return all;
}

}  // namespace casemate::app
