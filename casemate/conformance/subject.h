#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/backend.h"
#include "casemate/core/control.h"
#include "casemate/core/host_pattern.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"

namespace casemate::conformance {

// A file or a link to be put where a probe needs it. The path is absolute and lies below the call's
// directory; directories above are made.
struct Planted {
  std::string path{};
  std::string bytes{};
  // Present for a link: where it leads, absolute.
  std::optional<std::string> link_to{};
};

// Where the egress suite goes.
struct EgressTargets {
  // Answers with a status of 200 to 299 and is what `allow` lets through.
  std::string allowed_url{};
  // Would answer too, and is not.
  std::string denied_url{};
  std::vector<HostPattern> allow{};
};

// A backend on trial, and how things are arranged inside its sandboxes.
//
// What a probe needs to be there (files, links) is put there, and what came of an operation is
// looked at, behind the back of the methods on trial: by a program inside, where the backend has
// exec, else by its file methods. A provider that knows a better way overrides these. Not
// thread-safe.
class Subject {
 public:
  explicit Subject(std::shared_ptr<SandboxBackend> backend);
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  SandboxBackend& backend() const { return *backend_; }

  // What the sandbox of a suite is asked with. Default: kind "conformance", all that is declared,
  // egress `closed` or, where that is not enforced, what is.
  virtual SandboxSpec spec() const;

  // Puts them there, in this order, over what is there.
  virtual void plant(Call& call, std::span<const Planted> all, const CallControl& control);
  // The bytes of the file at each absolute path, links followed; absent when there is none.
  virtual std::vector<std::optional<std::string>> look(Call& call,
                                                       std::span<const std::string> paths,
                                                       const CallControl& control);

  // Absent: two web servers of the probe's own on the host's loopback, told apart by their port. A
  // provider whose way out does not begin on this host names others.
  virtual std::optional<EgressTargets> egress_targets() { return std::nullopt; }

 private:
  bool has(Capability capability) const;

  std::shared_ptr<SandboxBackend> backend_;
};

}  // namespace casemate::conformance
