#include "casemate/backends/in_process/sandbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "casemate/backends/in_process/state.h"
#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/core/resource_match.h"
#include "casemate/sys/socket.h"

namespace casemate::in_process {
namespace {

constexpr std::size_t kCallIdDigits = 12;

bool is_call_id(std::string_view id) {
  return id.size() == kCallIdDigits &&
         id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What an operation needs declared. A call as such needs nothing: it may serve files only.
std::optional<Capability> needed(Operation operation) {
  switch (operation) {
    case Operation::open_call:
      return std::nullopt;
    case Operation::start:
      return Capability::exec;
    case Operation::write_file:
      return Capability::files_in;
    case Operation::stat_file:
    case Operation::read_file:
      return Capability::files_out;
    case Operation::remove:
      return Capability::files_delete;
    case Operation::list_dir:
      return Capability::files_list;
  }
  return std::nullopt;
}

void require(const CapabilitySet& declared, Capability capability) {
  if (declared.contains(capability)) return;
  throw SandboxCapabilityNotSupported(
      fmt::format("{} is refused: this sandbox's backend declares {}", to_string(capability),
                  join_names(declared)),
      "have the spec require it, so that the router finds a backend that declares it");
}

CapabilitySet every_capability() {
  return {Capability::exec,         Capability::run_code,  Capability::host_tools,
          Capability::files_in,     Capability::files_out, Capability::files_list,
          Capability::files_delete, Capability::snapshot,  Capability::attached_identity};
}

}  // namespace

ExecResult finished(std::string stdout_text, int exit_code, std::string stderr_text) {
  ExecResult result;
  result.exit_code = exit_code;
  result.stdout = std::move(stdout_text);
  result.stderr = std::move(stderr_text);
  result.stopped_known = true;
  return result;
}

void check_control(const CallControl& control, std::string_view operation) {
  if (control.stop.stop_requested()) {
    throw SandboxCancelled(fmt::format("{} was cancelled", operation));
  }
  if (control.deadline && std::chrono::steady_clock::now() >= *control.deadline) {
    throw SandboxTimeout(fmt::format("{} had no answer by its deadline", operation),
                         "give the provider more time");
  }
}

std::string scripted_stdout(const InProcessSandboxOptions& options, std::string_view command) {
  for (const auto& [marker, output] : options.outputs) {
    if (command.find(marker) != std::string_view::npos) return output;
  }
  return options.default_stdout;
}

InProcessSandbox::State::State(InProcessSandboxOptions given)
    : options(std::move(given)), capabilities(every_capability()) {
  info.work_dir = SandboxSpec().work_dir;
  for (const auto& [path, seed] : options.seed_files) store.put(path, seed);
  if (!store.contains(info.work_dir)) store.put(info.work_dir, EntryKind::directory);
}

void InProcessSandbox::State::begin(Operation operation, std::string_view path,
                                    const CallControl& control) const {
  check_control(control, to_string(operation));
  if (const std::optional<Capability> capability = needed(operation)) {
    const std::lock_guard lock(mutex);
    require(capabilities, *capability);
  }
  if (options.before) options.before(operation, path);
}

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::open_call:
      return "open_call";
    case Operation::start:
      return "start";
    case Operation::write_file:
      return "write_file";
    case Operation::stat_file:
      return "stat_file";
    case Operation::read_file:
      return "read_file";
    case Operation::remove:
      return "remove";
    case Operation::list_dir:
      return "list_dir";
  }
  return "unknown";
}

InProcessSandbox::InProcessSandbox(InProcessSandboxOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

InProcessSandbox::~InProcessSandbox() = default;

void InProcessSandbox::serve(const BackendDeclarations& declared, std::string id,
                             const SandboxSpec& spec, bool reused) {
  if (!state_->store.contains(spec.work_dir)) {
    state_->store.put(spec.work_dir, EntryKind::directory);
  }
  const std::lock_guard lock(state_->mutex);
  state_->capabilities = declared.capabilities;
  state_->host_tool_transport = declared.host_tool_transport;
  state_->info = {.id = std::move(id),
                  .backend = declared.name,
                  .isolation = declared.isolation.value_or(Isolation::process),
                  .reused = reused,
                  .image = spec.image_id.value_or(spec.image.value_or("host")),
                  .egress = spec.egress,
                  .work_dir = spec.work_dir,
                  .limits_not_held = limits_not_held(spec.resources, declared)};
}

SandboxInfo InProcessSandbox::info() const {
  const std::lock_guard lock(state_->mutex);
  return state_->info;
}

std::unique_ptr<Call> InProcessSandbox::open_call(const CallProfile& profile,
                                                  const CallControl& control) {
  const std::string id = profile.id.empty() ? random_hex(kCallIdDigits / 2) : profile.id;
  if (!is_call_id(id)) {
    throw InvalidArgument("a call's id is 12 lower-case hex digits",
                          "leave it empty for a new one");
  }
  state_->begin(Operation::open_call, id, control);
  const std::lock_guard lock(state_->mutex);
  const bool in_use = std::ranges::any_of(
      state_->calls, [&](const CallRecord& call) { return call.id == id && !call.closed; });
  if (in_use) {
    throw InvalidArgument(fmt::format("call {} is open", id), "leave the id empty for a new one");
  }
  std::string host_tool_address;
  if (profile.host_tool_socket >= 0) {
    require(state_->capabilities, Capability::host_tools);
    if (state_->host_tool_transport != HostToolTransport::channel) {
      throw SandboxCapabilityNotSupported(
          "this sandbox's backend declares no channel for host tools");
    }
    // Reached by whoever knows it: there is no boundary here.
    host_tool_address = sys::bind_to_fresh_name(profile.host_tool_socket);
  }
  const std::string directory = fmt::format("{}/{}", state_->info.work_dir, id);
  state_->store.put(directory + "/work", EntryKind::directory);
  state_->calls.push_back({.id = id, .directory = directory});
  return make_call(state_, state_->calls.size() - 1, id, directory, host_tool_address);
}

ExecResult InProcessSandbox::run_code(std::string_view code,
                                      std::optional<std::chrono::nanoseconds> timeout,
                                      const CallControl& control) {
  check_control(control, "run_code");
  {
    const std::lock_guard lock(state_->mutex);
    require(state_->capabilities, Capability::run_code);
    state_->programs.push_back({.code = std::string(code), .timeout = timeout});
  }
  if (state_->options.raises) std::rethrow_exception(state_->options.raises);
  return deliver(finished(scripted_stdout(state_->options, code)), {});
}

void InProcessSandbox::write_file(std::string_view path, std::span<const char> content,
                                  std::string_view working_directory, const CallControl& control) {
  state_->begin(Operation::write_file, path, control);
  state_->store.write_file(path, content, working_directory);
}

std::optional<SandboxEntry> InProcessSandbox::stat_file(std::string_view path,
                                                        std::string_view working_directory,
                                                        const CallControl& control) {
  state_->begin(Operation::stat_file, path, control);
  return state_->store.stat_file(path, working_directory);
}

std::string InProcessSandbox::read_file(std::string_view path, std::string_view working_directory,
                                        std::uint64_t max_bytes, const CallControl& control) {
  state_->begin(Operation::read_file, path, control);
  return state_->store.read_file(path, working_directory, max_bytes);
}

void InProcessSandbox::remove(std::string_view path, std::string_view working_directory,
                              Recursive recursive, const CallControl& control) {
  state_->begin(Operation::remove, path, control);
  state_->store.remove(path, working_directory, recursive);
}

std::vector<SandboxEntry> InProcessSandbox::list_dir(std::string_view path,
                                                     std::string_view working_directory,
                                                     const CallControl& control) {
  state_->begin(Operation::list_dir, path, control);
  return state_->store.list_dir(path, working_directory);
}

Store& InProcessSandbox::store() { return state_->store; }

std::vector<CommandRecord> InProcessSandbox::commands() const {
  const std::lock_guard lock(state_->mutex);
  return state_->commands;
}

std::vector<ProgramRecord> InProcessSandbox::programs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->programs;
}

std::vector<CallRecord> InProcessSandbox::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls;
}

std::vector<int> InProcessSandbox::signals() const {
  const std::lock_guard lock(state_->mutex);
  return state_->signals;
}

}  // namespace casemate::in_process
