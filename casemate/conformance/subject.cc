#include "casemate/conformance/subject.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "casemate/conformance/host_marks.h"
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

// printf's own notation, so that any byte passes through an argument.
std::string octal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("\\{:03o}", static_cast<unsigned char>(byte));
  return text;
}

// What stands before the next mark, when a '+' stands behind it.
std::optional<std::string> take_one(std::string_view& rest, std::string_view mark) {
  const std::size_t end = rest.find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  std::string bytes(rest.substr(0, end));
  rest.remove_prefix(end + mark.size());
  const bool found = rest.starts_with('+');
  rest.remove_prefix(rest.empty() ? 0 : 1);
  return found ? std::optional(std::move(bytes)) : std::nullopt;
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
  if (declared.capabilities.contains(Capability::host_tools)) {
    spec.host_tools = HostToolSurface{};
  }
  if (!declared.egress_modes.empty() && !declared.egress_modes.contains(Egress::closed)) {
    spec.egress = *declared.egress_modes.begin();
  }
  return spec;
}

void Subject::plant(Call& call, std::span<const Planted> all, const CallControl& control) {
  std::string directories;
  std::string script;
  for (const Planted& one : all) {
    if (!has(Capability::exec)) {
      if (one.link_to) {
        throw SandboxCapabilityNotSupported(
            "a link cannot be planted in a backend without exec",
            "derive from Subject and say how links come into this backend's sandboxes");
      }
      call.write_file(one.path, one.bytes, call.directory(), control);
      continue;
    }
    directories += " " + shell_quote(one.path.substr(0, one.path.rfind('/')));
    const std::string path = shell_quote(one.path);
    script += one.link_to ? fmt::format("ln -sfn -- {} {}\n", shell_quote(*one.link_to), path)
                          : fmt::format("printf '{}' > {}\n", octal(one.bytes), path);
  }
  if (!has(Capability::exec)) return;
  const ExecResult result =
      shell(call, fmt::format("set -e\nmkdir -p --{}\n{}", directories, script), control);
  if (result.exit_code == 0) return;
  throw SandboxUnavailable(
      fmt::format("a probe could not be arranged: sh ended as {} {}: {}", to_string(result.outcome),
                  result.exit_code.value_or(-1), result.stderr),
      "probes are arranged by sh with printf, mkdir and ln, and looked at by cat");
}

std::vector<std::optional<std::string>> Subject::look(Call& call,
                                                      std::span<const std::string> paths,
                                                      const CallControl& control) {
  std::vector<std::optional<std::string>> found;
  if (!has(Capability::exec)) {
    for (const std::string& path : paths) {
      try {
        found.emplace_back(call.read_file(path, call.directory(), kLookBytes, control));
      } catch (const SandboxFileError& error) {
        if (error.error_number() != ENOENT) throw;
        found.emplace_back();
      }
    }
    return found;
  }
  // Unguessable, so that no content can end a file early.
  const std::string mark = fresh_mark();
  std::string script;
  for (const std::string& path : paths) {
    script += fmt::format("if [ -f {0} ]; then cat -- {0}; printf {1}+; else printf {1}-; fi\n",
                          shell_quote(path), mark);
  }
  const ExecResult result = shell(call, script, control);
  std::string_view rest = result.stdout;
  for (std::size_t i = 0; i < paths.size(); ++i) found.push_back(take_one(rest, mark));
  return found;
}

}  // namespace casemate::conformance
