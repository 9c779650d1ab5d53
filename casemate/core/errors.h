#pragma once

// Every refusal the library makes. One base; the class name is the stable code. What guest code
// *did* is never among them: that is an `ExecResult`.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/base/utf8.h"

namespace casemate {

// Base of all refusals. `message` says what was refused, the value, and what would be accepted;
// `hint` says what to do, and may be empty. Both are valid UTF-8 and may be shown to the operator;
// only `Tool::invoke`'s table decides what a model sees.
class SandboxError : public std::runtime_error {
 public:
  // What is not UTF-8 in them becomes U+FFFD: callers quote kinds, paths and names of any bytes.
  explicit SandboxError(const std::string& message, std::string hint = {})
      : std::runtime_error(replace_invalid_utf8(message)),
        hint_(is_valid_utf8(hint) ? std::move(hint) : replace_invalid_utf8(hint)) {}

  // The contract's name of the refusal, for example "SandboxBusy". Never changes between releases.
  virtual std::string_view code() const noexcept = 0;
  std::string message() const { return what(); }
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

// A string literal as a template argument, so that a refusal's class carries its code.
template <std::size_t N>
struct RefusalCode {
  char text[N];  // includes the terminator

  // Implicit on purpose: `Refusal<"Name">` is the notation.
  constexpr RefusalCode(const char (&literal)[N]) { std::copy_n(literal, N, text); }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

// One class a refusal: `Refusal<"Name">` is a distinct type that a caller can catch.
template <RefusalCode Code, typename Base = SandboxError>
class Refusal : public Base {
 public:
  using Base::Base;
  std::string_view code() const noexcept override { return Code.view(); }
};

// A refusal with something more for whoever looks: `catch (const R&)` sees the refusal,
// `dynamic_cast<const Load*>(&failure)` what came with it.
template <typename R, typename Load>
class Carrying final : public R, public Load {
 public:
  Carrying(const R& refusal, Load load) : R(refusal), Load(std::move(load)) {}
};

// -- Construction and choice ---------------------------------------------------------------------

// A value is malformed at construction (the reference's ValueError and TypeError).
using InvalidArgument = Refusal<"InvalidArgument">;
// A configuration file cannot be read, or says what nothing here understands. The message begins
// with FILE:LINE where there is a line.
using ConfigInvalid = Refusal<"ConfigInvalid">;
// No backend is registered, or none has the selected name.
using NoSandboxBackend = Refusal<"NoSandboxBackend">;
// The backend's rung is below the floor, unset or unknown.
using SandboxBackendNotPermitted = Refusal<"SandboxBackendNotPermitted">;
// The spec requires a capability the backend does not declare.
using SandboxCapabilityNotSupported = Refusal<"SandboxCapabilityNotSupported">;
// The spec requires an OS family the backend does not declare.
using SandboxOsFamilyNotSupported = Refusal<"SandboxOsFamilyNotSupported">;
// The host denies a capability the spec requires.
using SandboxCapabilityDenied = Refusal<"SandboxCapabilityDenied">;
// The host denies an identity the spec acts under.
using SandboxIdentityDenied = Refusal<"SandboxIdentityDenied">;
// The backend does not enforce the egress mode the spec asks for.
using SandboxEgressNotEnforced = Refusal<"SandboxEgressNotEnforced">;
// The spec's transfer limits exceed the backend's, or the declaration is malformed.
using SandboxTransferLimitsNotPermitted = Refusal<"SandboxTransferLimitsNotPermitted">;
// A resource limit that the caller stated cannot be held by the backend.
using SandboxLimitNotEnforceable = Refusal<"SandboxLimitNotEnforceable">;
// The image's form is not among those the backend takes.
using SandboxImageNotSupported = Refusal<"SandboxImageNotSupported">;
// The image is missing something, for example an interpreter.
using SandboxImageInvalid = Refusal<"SandboxImageInvalid">;

// A host tool answers no questions about where its data comes from and goes, and must.
using HostToolNotDeclared = Refusal<"HostToolNotDeclared", InvalidArgument>;
// A host tool acts under an identity that the host does not allow.
using HostToolIdentityNotAllowed = Refusal<"HostToolIdentityNotAllowed", InvalidArgument>;

// -- While a sandbox is used ---------------------------------------------------------------------

// The provider failed or cannot be reached. Detail is for the log, not for a model.
using SandboxUnavailable = Refusal<"SandboxUnavailable">;
// The *provider* did not answer by the deadline. Never about the program.
using SandboxTimeout = Refusal<"SandboxTimeout">;
// `CallControl::stop` was requested outside an exec.
using SandboxCancelled = Refusal<"SandboxCancelled">;
// The sandbox of this key is in use with another fingerprint.
using SandboxBusy = Refusal<"SandboxBusy">;
// No sandbox has this id or key.
using NoSuchSandbox = Refusal<"NoSuchSandbox">;
// No snapshot has this id here, or none of this scope.
using NoSuchSnapshot = Refusal<"NoSuchSnapshot">;
// The snapshot was taken of another kind of sandbox, or of one that was made with something else.
using SandboxSnapshotMismatch = Refusal<"SandboxSnapshotMismatch">;
// A guest path leads outside the working directory, through a link, or names the directory itself.
using SandboxPathRefused = Refusal<"SandboxPathRefused">;

// A file operation failed with an errno (reading a link is ELOOP): the guest's for `GuestFiles`,
// the host's for file stores and sinks.
class SandboxFileError : public Refusal<"SandboxFileError"> {
 public:
  SandboxFileError(const std::string& message, int error_number, std::string hint = {})
      : Refusal(message, std::move(hint)), error_number_(error_number) {}
  int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};

// -- Outputs: the family that collecting throws ---------------------------------------------------

class SandboxOutputError : public SandboxError {
 public:
  using SandboxError::SandboxError;
};

// A required output was not written.
using SandboxOutputMissing = Refusal<"SandboxOutputMissing", SandboxOutputError>;
// An output's path leads through a link or outside the working directory.
using SandboxOutputNotConfined = Refusal<"SandboxOutputNotConfined", SandboxOutputError>;
// An output is not a regular file.
using SandboxOutputNotRegular = Refusal<"SandboxOutputNotRegular", SandboxOutputError>;
// The backend does not vouch for an output's size.
using SandboxOutputSizeUnknown = Refusal<"SandboxOutputSizeUnknown", SandboxOutputError>;
// stat or read of an output failed.
using SandboxOutputUnreachable = Refusal<"SandboxOutputUnreachable", SandboxOutputError>;
// An output lands and no sink was given.
using SandboxOutputSinkRequired = Refusal<"SandboxOutputSinkRequired", SandboxOutputError>;
// A byte or file count is over its cap.
using SandboxTransferCapExceeded = Refusal<"SandboxTransferCapExceeded", SandboxOutputError>;
// A landing name leads outside the sink's root, or through a link below it.
using SandboxLandingNotConfined = Refusal<"SandboxLandingNotConfined", SandboxOutputError>;
// The sink's destination exists and it was not told to overwrite.
using SandboxLandingExists = Refusal<"SandboxLandingExists", SandboxOutputError>;
// A name breaks one of the rules of `validate_artifact_name`.
using SandboxArtifactNameInvalid = Refusal<"SandboxArtifactNameInvalid", SandboxOutputError>;
// Two landing names are one file, or would be one on a case-insensitive destination.
using SandboxArtifactNameCollision = Refusal<"SandboxArtifactNameCollision", SandboxOutputError>;

}  // namespace casemate
