#pragma once

// One probe in progress: what it may touch, and how it says what it saw.

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/conformance/subject.h"
#include "casemate/core/control.h"
#include "casemate/core/errors.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/sandbox_entry.h"

namespace casemate::conformance {

// Something was not as it has to be. Ends the probe. Texts are one line of valid UTF-8 each: what a
// guest or a provider said goes through `shown`.
class Unmet : public std::exception {
 public:
  Unmet(std::string step, std::string expected, std::string seen);
  const char* what() const noexcept override { return seen_.c_str(); }
  // What was being done.
  const std::string& step() const { return step_; }
  const std::string& expected() const { return expected_; }
  const std::string& seen() const { return seen_; }

 private:
  std::string step_;
  std::string expected_;
  std::string seen_;
};

// Runs `act` in a fresh call of the sandbox of that key and kind. A sandbox in which the end of the
// call cannot be shown is disposed.
void with_call(SandboxBackend& backend, const SandboxKey& key, const SandboxSpec& spec,
               const CallControl& control, const std::function<void(Sandbox&, Call&)>& act);

// What a probe has: a fresh call of a sandbox, with nothing in its work directory. Each probe gets
// its own, so that none depends on what another left.
class Trial {
 public:
  struct Parts {
    Subject& subject;
    Sandbox& sandbox;
    Call& call;
    const SandboxKey& key;
    CallControl control;
    std::chrono::nanoseconds program_bound;
  };
  explicit Trial(Parts parts);

  // The subject's, and the key that the run's own sandbox has.
  SandboxBackend& backend() { return parts_.subject.backend(); }
  const SandboxKey& key() const { return parts_.key; }
  Sandbox& sandbox() { return parts_.sandbox; }
  Call& call() { return parts_.call; }
  const CallControl& control() const { return parts_.control; }
  // For programs that have to run into a bound.
  std::chrono::nanoseconds program_bound() const { return parts_.program_bound; }
  // The subject's.
  BackendDeclarations declarations() const { return parts_.subject.backend().declarations(); }
  bool declares(Capability capability) const;
  bool enforces(Egress mode) const;
  // The subject's.
  SandboxSpec spec() const { return parts_.subject.spec(); }
  std::optional<EgressTargets> egress_targets() const { return parts_.subject.egress_targets(); }

  // Runs `act` in a call of another sandbox under the run's key, which its kind tells apart.
  void in_sandbox(const SandboxSpec& spec, const std::function<void(Call&)>& act);

  // Makes a sandbox under the run's key, if there is none, and disposes of it by its id, which it
  // returns.
  std::string id_of_one_that_is_disposed(const SandboxSpec& spec);

  // The working directory of the file operations on trial.
  const std::string& work() const { return work_; }
  // A sibling whose name begins with the working directory's, the place where nothing may be
  // reached.
  const std::string& outside() const { return outside_; }

  // -- Arranging and looking, behind the back of what is on trial (see Subject) -------------------
  void plant(const std::vector<Planted>& all);
  std::optional<std::string> look(const std::string& path);
  // That these files of `work` hold `kInside`, or are not there.
  void expect_there(std::string_view step, const std::vector<std::string>& names);
  void expect_gone(std::string_view step, const std::vector<std::string>& names);
  // `outside` with `secret.txt` and `sub/leaf.txt`; in `work` the files `real/inside.txt` and
  // `plain.txt` and the links `link-dir` to `outside` and `link-file` to its secret.
  void lay_out();
  // The same, and these.
  void lay_out_with(const std::vector<Planted>& more);
  // That all of `outside` is as `lay_out` left it, and nothing of these names is there.
  void expect_outside_untouched(std::string_view step,
                                const std::vector<std::string>& absent_names = {});

  // -- The operations on trial, in `work` unless told otherwise -----------------------------------
  void write(std::string_view path, std::string_view bytes);
  void write(std::string_view path, std::string_view bytes, const std::string& directory);
  std::string read(std::string_view path);
  std::string read(std::string_view path, const std::string& directory);
  std::optional<SandboxEntry> stat(std::string_view path);
  std::optional<SandboxEntry> stat(std::string_view path, const std::string& directory);
  void remove(std::string_view path, Recursive recursive);
  std::vector<SandboxEntry> list(std::string_view path);
  std::vector<SandboxEntry> list(std::string_view path, const std::string& directory);
  ExecResult run(std::vector<std::string> argv);

 private:
  Parts parts_;
  std::string work_;
  void expect_files(std::string_view step, const std::string& directory,
                    const std::vector<std::string>& names,
                    const std::vector<std::optional<std::string>>& expected);

  std::string outside_;
};

inline constexpr std::string_view kSecret = "a secret of somebody else\n";
inline constexpr std::string_view kLeaf = "a leaf of somebody else\n";
inline constexpr std::string_view kInside = "bytes of its own\n";

// -- Expectations: each throws `Unmet` ------------------------------------------------------------

// As text on one line, quoted and escaped where it is bytes of a guest.
std::string shown(std::string_view bytes);
inline std::string shown(const std::string& bytes) { return shown(std::string_view(bytes)); }
std::string shown(const std::optional<std::string>& bytes);
std::string shown(const std::optional<SandboxEntry>& entry);
std::string shown(const std::vector<SandboxEntry>& entries);
std::string shown(const ExecResult& result);
std::string shown(std::chrono::nanoseconds time);
// Code, errno where it has one, and message.
std::string shown(const SandboxError& refusal);

template <typename Value>
void expect_equal(std::string_view step, const Value& seen, const Value& expected) {
  if (!(seen == expected)) throw Unmet(std::string(step), shown(expected), shown(seen));
}

// That `act` throws the refusal with that code (and that errno). What it returns is described in
// the failure.
void expect_refused_as(std::string_view step, std::string_view code,
                       std::optional<int> error_number, const std::function<std::string()>& act);

template <std::invocable Act>
void expect_refused(std::string_view step, std::string_view code, std::optional<int> error_number,
                    const Act& act) {
  expect_refused_as(step, code, error_number, [&]() -> std::string {
    if constexpr (std::is_void_v<std::invoke_result_t<Act>>) {
      act();
      return "it was done";
    } else {
      return shown(act());
    }
  });
}

// A path that leads out, through a link, or names the directory itself.
template <std::invocable Act>
void expect_path_refused(std::string_view step, const Act& act) {
  expect_refused(step, "SandboxPathRefused", std::nullopt, act);
}

template <std::invocable Act>
void expect_file_error(std::string_view step, int error_number, const Act& act) {
  expect_refused(step, "SandboxFileError", error_number, act);
}

}  // namespace casemate::conformance
