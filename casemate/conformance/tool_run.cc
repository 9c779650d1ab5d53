#include "casemate/conformance/tool_run.h"

#include <utility>

#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/over_exec_guest.h"

namespace casemate::conformance {
namespace {

constexpr std::string_view kFilesCaller = "from casemate_tools import call, HostToolError\n";

// Of a program over files, which a probe does not wait for longer than this.
constexpr std::chrono::seconds kFilesBound{30};

HostToolTransport transport_of(Trial& trial) {
  const HostToolTransport transport = trial.declarations().host_tool_transport;
  if (transport == HostToolTransport::none) {
    throw Unmet("how calls of host tools travel", "channel or files, since host_tools is declared",
                "no transport is declared");
  }
  return transport;
}

}  // namespace

// Mirrors casemate/host_tools/channel_frame.h.
const std::string_view kChannelCaller = R"py(
import json, os, socket, struct

class HostToolError(Exception):
    pass

def call(name, /, **arguments):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["CASEMATE_HOST_TOOLS"])
        name = name.encode()
        body = struct.pack("<IH", 7, len(name)) + name + json.dumps(arguments).encode()
        connection.sendall(struct.pack("<I", len(body)) + body)
        stream = connection.makefile("rb")
        size, = struct.unpack("<I", stream.read(4))
        answer = stream.read(size)
    if answer[:4] != struct.pack("<I", 7):
        raise SystemExit("an answer to somebody else")
    if answer[4]:
        raise HostToolError(answer[5:].decode())
    return json.loads(answer[5:])
)py";

ToolRun::ToolRun(Trial& trial, std::shared_ptr<HostToolRegistry> registry)
    : trial_(trial), registry_(std::move(registry)) {
  if (transport_of(trial) == HostToolTransport::files) {
    run_ = std::make_unique<HostToolRun>(registry_, HostToolRunOptions{});
    call_ = trial_.sandbox().open_call({}, trial_.control());
    return;
  }
  session_ = std::make_unique<HostToolSession>(registry_, HostToolRunOptions{});
  call_ = trial_.sandbox().open_call({.host_tool_socket = session_->socket()}, trial_.control());
  session_->serve();
}

ToolRun::~ToolRun() {
  if (session_) session_->close();
  if (run_) run_->close();
  // A sandbox in which its end cannot be shown is disposed with the trial's own call.
  if (call_) call_->close();
}

std::string_view ToolRun::caller() const { return session_ ? kChannelCaller : kFilesCaller; }

HostToolCounters ToolRun::counters() const {
  return session_ ? session_->counters() : run_->counters();
}

ExecResult ToolRun::run(std::string_view program, const CallControl& control) {
  const std::string text = std::string(caller()) + std::string(program);
  if (run_) return run_over_files(text, control);
  ExecRequest request;
  request.command = Argv{{"python3", "-u", "-c", text}};
  request.environment = session_->environment(call_->host_tool_address());
  return call_->exec(request, control);
}

ExecResult ToolRun::run_over_files(std::string_view program, const CallControl& control) {
  const GuestRunLayout layout = guest_run_layout(call_->directory());
  const std::vector<std::string> names = registry_->names();
  const std::string module = over_exec_module(
      {.names = names, .max_calls = registry_->surface().max_calls, .call_timeout = kFilesBound});
  call_->write_file(layout.program(), program, layout.run_directory(), control);
  call_->write_file(layout.module(), module, layout.run_directory(), control);
  OverExecOptions options;
  options.timeout = kFilesBound;
  options.poll_interval = std::chrono::milliseconds(50);
  return host_tool_calls_over_exec(ExecAndFiles(*call_), *run_, layout, options, control).result;
}

}  // namespace casemate::conformance
