#include "casemate/kinds/codeact/over_files.h"

#include <optional>
#include <span>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/core/limits.h"
#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/over_exec_guest.h"
#include "casemate/kinds/codeact/request_checks.h"

namespace casemate::codeact {
namespace {

constexpr std::string_view kProgram = "program.py";

GuestRunLayout layout_of(const Call& call) { return guest_run_layout(call.directory(), kProgram); }

class ProgramOverFiles final : public Process {
 public:
  ProgramOverFiles(Call& call, HostToolRun& run, const CodeactWiring& wiring,
                   const CodeactRequest& request, std::string_view interpreter,
                   std::vector<std::string>& notes)
      : call_(call),
        run_(run),
        wiring_(wiring),
        request_(request),
        interpreter_(interpreter),
        notes_(notes) {}

  ExecResult wait(const CallControl& control) override {
    if (!result_) result_ = run_to_its_end(control);
    return *result_;
  }

  // It has none, and by the time anybody could send a signal it has ended.
  void write_stdin(std::span<const char>, const CallControl&) override {}
  void close_stdin() override {}
  void signal(int) override {}

 private:
  ExecResult run_to_its_end(const CallControl& control) {
    OverExecOptions options;
    options.timeout = request_.timeout.value_or(std::chrono::seconds(kMaxTimeoutSeconds));
    options.interpreter = interpreter_;
    options.arguments = request_.arguments;
    options.environment = request_.environment;
    options.environment.try_emplace("PYTHONDONTWRITEBYTECODE", "1");
    options.capture_bytes = wiring_.capture_bytes;
    options.log = wiring_.owner.log;
    OverExecResult ended =
        host_tool_calls_over_exec(ExecAndFiles(call_), run_, layout_of(call_), options, control);
    for (std::string& note : ended.notes) notes_.push_back(std::move(note) + ".");
    tell(OutputStream::out, ended.result.stdout);
    tell(OutputStream::err, ended.result.stderr);
    return std::move(ended.result);
  }

  void tell(OutputStream stream, const std::string& bytes) const {
    if (request_.on_output && !bytes.empty()) request_.on_output(stream, bytes);
  }

  Call& call_;
  HostToolRun& run_;
  const CodeactWiring& wiring_;
  const CodeactRequest& request_;
  const std::string interpreter_;
  std::vector<std::string>& notes_;
  std::optional<ExecResult> result_;
};

void write(Call& call, const std::string& path, const std::string& text,
           const CallControl& control) {
  call.write_file(path, text, call.directory(), control);
}

}  // namespace

void stage_over_files(Call& call, const HostToolRegistry& registry, const CodeactRequest& request,
                      const CallControl& control) {
  if (request.stdin_descriptor >= 0) {
    throw SandboxCapabilityNotSupported(
        "standard input cannot be forwarded where host tool calls travel as files",
        "share a file in its place, or use a backend with a channel");
  }
  const GuestRunLayout layout = layout_of(call);
  write(call, layout.module(),
        over_exec_module({.names = registry.names(), .max_calls = registry.surface().max_calls}),
        control);
  write(call, layout.program(), request.code, control);
}

std::unique_ptr<Process> program_over_files(Call& call, HostToolRun& run,
                                            const CodeactWiring& wiring,
                                            const CodeactRequest& request,
                                            std::string_view interpreter,
                                            std::vector<std::string>& notes) {
  return std::make_unique<ProgramOverFiles>(call, run, wiring, request, interpreter, notes);
}

}  // namespace casemate::codeact
