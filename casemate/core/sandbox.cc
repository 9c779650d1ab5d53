#include "casemate/core/sandbox.h"

#include <string>
#include <type_traits>
#include <utility>

#include "casemate/core/errors.h"

namespace casemate {
namespace {

void close_or_throw(Call& call) {
  const std::string id = call.id();
  if (call.close()) return;
  throw SandboxUnavailable("the end of call " + id + " in the sandbox could not be shown",
                           "dispose the sandbox");
}

// Opens a scope for one request. What the request throws passes through; the call is closed either
// way, by its destructor if need be.
template <typename Request>
auto in_a_call(Sandbox& sandbox, const CallControl& control, Request request) {
  const std::unique_ptr<Call> call = sandbox.open_call({}, control);
  if constexpr (std::is_void_v<decltype(request(*call))>) {
    request(*call);
    close_or_throw(*call);
  } else {
    auto answer = request(*call);
    close_or_throw(*call);
    return answer;
  }
}

}  // namespace

ExecResult Call::exec(const ExecRequest& request, const CallControl& control) {
  return start(request, control)->wait(control);
}

ExecResult Sandbox::run_code(std::string_view /*code*/,
                             std::optional<std::chrono::nanoseconds> /*timeout*/,
                             const CallControl& /*control*/) {
  throw SandboxCapabilityNotSupported(
      "run_code is refused: this backend has no runtime without processes",
      "run the code as a program with exec");
}

ExecResult Sandbox::exec(const ExecRequest& request, const CallControl& control) {
  CallProfile profile;
  profile.starts_program = request.lifetime == Lifetime::call;
  profile.ends_with_program = profile.starts_program;
  const std::unique_ptr<Call> call = open_call(profile, control);
  ExecResult result = call->exec(request, control);
  // What the program started in the background ends with the scope, not with the program.
  result.stopped_known = call->close() && result.stopped_known;
  return result;
}

void Sandbox::write_file(std::string_view path, std::span<const char> content,
                         std::string_view working_directory, const CallControl& control) {
  in_a_call(*this, control,
            [&](Call& call) { call.write_file(path, content, working_directory, control); });
}

std::optional<SandboxEntry> Sandbox::stat_file(std::string_view path,
                                               std::string_view working_directory,
                                               const CallControl& control) {
  return in_a_call(*this, control,
                   [&](Call& call) { return call.stat_file(path, working_directory, control); });
}

std::string Sandbox::read_file(std::string_view path, std::string_view working_directory,
                               std::uint64_t max_bytes, const CallControl& control) {
  return in_a_call(*this, control, [&](Call& call) {
    return call.read_file(path, working_directory, max_bytes, control);
  });
}

void Sandbox::remove(std::string_view path, std::string_view working_directory, Recursive recursive,
                     const CallControl& control) {
  in_a_call(*this, control,
            [&](Call& call) { call.remove(path, working_directory, recursive, control); });
}

std::vector<SandboxEntry> Sandbox::list_dir(std::string_view path,
                                            std::string_view working_directory,
                                            const CallControl& control) {
  return in_a_call(*this, control,
                   [&](Call& call) { return call.list_dir(path, working_directory, control); });
}

}  // namespace casemate
