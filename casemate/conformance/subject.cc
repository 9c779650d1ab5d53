#include "casemate/conformance/subject.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/core/exec.h"
#include "casemate/core/guest_path.h"

namespace casemate::conformance {
namespace {

// More than any probe plants.
constexpr std::uint64_t kLookBytes = 1024 * 1024;

ExecResult shell(Call& call, std::string line, const CallControl& control) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  request.capture_bytes = kLookBytes;
  return call.exec(request, control);
}

void arrange(Call& call, std::string line, const CallControl& control) {
  const ExecResult result = shell(call, line, control);
  if (result.exit_code == 0) return;
  throw SandboxUnavailable(
      fmt::format("a probe could not be arranged: '{}' ended as {} {}: {}", line,
                  to_string(result.outcome), result.exit_code.value_or(-1), result.stderr),
      "probes are arranged by sh, mkdir, printf, ln and cat");
}

// printf's own notation, so that any byte passes through an argument.
std::string octal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("\\{:03o}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

Subject::Subject(std::shared_ptr<SandboxBackend> backend) : backend_(std::move(backend)) {
  if (!backend_) throw InvalidArgument("there is no backend to try", "give one");
}

bool Subject::has(Capability capability) const {
  return backend_->declarations().capabilities.contains(capability);
}

SandboxSpec Subject::spec() const {
  const BackendDeclarations declared = backend_->declarations();
  SandboxSpec spec;
  spec.kind = "conformance";
  spec.requires_capabilities = declared.capabilities;
  if (!declared.egress_modes.empty() && !declared.egress_modes.contains(Egress::closed)) {
    spec.egress = *declared.egress_modes.begin();
  }
  return spec;
}

void Subject::plant_file(Call& call, const std::string& path, std::string_view bytes,
                         const CallControl& control) {
  if (!has(Capability::exec)) {
    call.write_file(path, bytes, call.directory(), control);
    return;
  }
  const std::string directory = path.substr(0, path.rfind('/'));
  arrange(call,
          fmt::format("mkdir -p -- {} && printf '{}' > {}", shell_quote(directory), octal(bytes),
                      shell_quote(path)),
          control);
}

void Subject::plant_symlink(Call& call, const std::string& path, const std::string& target,
                            const CallControl& control) {
  if (!has(Capability::exec)) {
    throw SandboxCapabilityNotSupported(
        "a link cannot be planted in a backend without exec",
        "derive from Subject and say how links come into this backend's sandboxes");
  }
  const std::string directory = path.substr(0, path.rfind('/'));
  arrange(call,
          fmt::format("mkdir -p -- {} && ln -sfn -- {} {}", shell_quote(directory),
                      shell_quote(target), shell_quote(path)),
          control);
}

std::optional<std::string> Subject::look(Call& call, const std::string& path,
                                         const CallControl& control) {
  if (!has(Capability::exec)) {
    try {
      return call.read_file(path, call.directory(), kLookBytes, control);
    } catch (const SandboxFileError& error) {
      if (error.error_number() == ENOENT) return std::nullopt;
      throw;
    }
  }
  // A mark in front tells an empty file from none without the exit code, which is itself on trial.
  ExecResult result =
      shell(call, fmt::format("[ -f {0} ] && printf = && cat -- {0}", shell_quote(path)), control);
  if (!result.stdout.starts_with('=')) return std::nullopt;
  return std::move(result.stdout).substr(1);
}

}  // namespace casemate::conformance
