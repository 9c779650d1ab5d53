#include "casemate/guest/agent_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent_process.h"
#include "casemate/guest/exec_request.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

[[noreturn]] void throw_closed() {
  throw SandboxUnavailable("the call is closed", "open a new one");
}

// Where programs that ask find the proxy, in all the spellings that are in use.
void add_proxy(std::uint16_t port, std::map<std::string, std::string>& environment) {
  const std::string address = fmt::format("127.0.0.1:{}", port);
  for (const auto& [upper, lower, value] :
       {std::tuple("HTTP_PROXY", "http_proxy", "http://" + address),
        std::tuple("HTTPS_PROXY", "https_proxy", "http://" + address),
        std::tuple("ALL_PROXY", "all_proxy", "socks5h://" + address),
        std::tuple("NO_PROXY", "no_proxy", std::string("localhost,127.0.0.1,::1"))}) {
    environment[upper] = value;
    environment[lower] = value;
  }
}

}  // namespace

AgentCall::AgentCall(AskedCall asked, std::shared_ptr<const AgentSandboxParts> parts,
                     const CallControl& control)
    : id_(asked.request.id),
      directory_(parts->info.work_dir + "/" + id_),
      environment_(parts->environment),
      parts_(std::move(parts)),
      accounting_(std::move(asked.accounting)),
      egress_(std::move(asked.egress)),
      control_(std::move(asked.control)),
      ready_(std::move(asked.exec)) {
  if (asked.files) idle_files_.push_back(std::move(asked.files));
  try {
    take_answer(asked.request, control);
  } catch (...) {
    end_asked({.request = std::move(asked.request),
               .accounting = accounting_,
               .egress = std::move(egress_),
               .control = std::move(control_),
               .exec = std::move(ready_),
               .files = nullptr});
    if (accounting_) accounting_->closed(false);
    throw;
  }
}

void AgentCall::take_answer(const OpenCall& request, const CallControl& control) {
  const Frame answer = control_->receive(control);
  try {
    if (is(answer, FrameType::failed)) {
      const Failure failure = decode_failure(answer.payload);
      write_log(parts_->log, LogLevel::warning,
                fmt::format("sandbox {}: opening a call failed: {}", parts_->info.id,
                            escape_for_display(failure.text)));
      if (failure.error == EEXIST) {
        throw InvalidArgument(fmt::format("call {} is open", id_),
                              "leave the id empty for a new one");
      }
      // What a guest says to a version that it does not speak, and to nothing else.
      if (failure.error == EPROTO) throw_another_build(parts_->info.id);
      throw SandboxUnavailable(fmt::format("the sandbox could not open call {}: {}", id_,
                                           std::generic_category().message(failure.error)),
                               no_resources_hint(failure.error));
    }
    if (!is(answer, FrameType::call_opened)) throw ProtocolError("no answer to open_call");
    const CallOpened opened = decode_call_opened(answer.payload);
    if (opened.version != kProtocolVersion) throw ProtocolError("another version of the protocol");
    if (request.host_tools == opened.host_tools.empty()) {
      throw ProtocolError(request.host_tools ? "the host tool socket was not bound"
                                             : "a host tool socket was bound that nobody sent");
    }
    host_tool_address_ = opened.host_tools;
    if (request.egress != (opened.proxy_port != 0)) {
      throw ProtocolError(request.egress ? "the way out of the call was not opened"
                                         : "a way out was opened that nobody asked for");
    }
    if (egress_) {
      egress_->serve();
      add_proxy(opened.proxy_port, environment_);
    }
  } catch (const ProtocolError& error) {
    throw_guest_lied(error.what());
  }
}

AgentCall::~AgentCall() { close(); }

// Host and guest each get one end of a new connection; the guest's travels over the control stream.
sys::UniqueFd AgentCall::attach(AttachKind kind, const CallControl& control,
                                const sys::UniqueFd& mark) {
  const std::lock_guard lock(control_mutex_);
  if (!control_ || closes_after_) throw_closed();
  if (kind == AttachKind::exec && ready_) {
    // If it has ended, no program has to know of that.
    sys::UniqueFd ready = std::move(ready_);
    if (is_silent(ready.get())) return ready;
  }
  // What waits there would count among the processes of one that stays.
  if (kind == AttachKind::resident) ready_.reset();
  auto [near, far] = make_connection();
  std::vector<int> descriptors{far.get()};
  if (mark) descriptors.push_back(mark.get());
  try {
    control_->put(FrameType::attach, encode(kind), descriptors);
    control_->flush(control);
  } catch (...) {
    control_.reset();  // half a frame may have gone
    throw;
  }
  return std::move(near);
}

std::unique_ptr<Process> AgentCall::start(const ExecRequest& request, const CallControl& control) {
  const std::string payload = encode_request(request, directory_ + "/work", environment_);
  if (control.stop.stop_requested()) return AgentProcess::never_started();
  const bool stays = request.lifetime == Lifetime::sandbox;
  if (stays && (egress_ || !host_tool_address_.empty())) {
    throw InvalidArgument(
        fmt::format("a program that stays with the sandbox is refused in a call with {}",
                    egress_ ? "egress" : "host tools"),
        "start it in a call without: it would outlive whoever answers it");
  }
  if (std::optional<Held> held = take_held()) {
    if (is_asked_for(*held, request)) {
      if (auto process = start_held(*held, request, control)) {
        if (ends_with_program_) close_after_program();
        return process;
      }
    }
    give_up(std::move(*held), control);
  }
  const sys::UniqueFd mark = stays && accounting_ ? accounting_->mark_busy() : sys::UniqueFd();
  auto process = std::make_unique<AgentProcess>(
      attach(stays ? AttachKind::resident : AttachKind::exec, control, mark), FrameType::exec,
      payload, request, parts_, accounting_, closed_);
  process->await_start(control);
  if (ends_with_program_ && !stays) close_after_program();
  if (parts_->ready) parts_->ready->prepare(*parts_, control);
  return process;
}

// Null when it had ended, or ended before anything of the program began: then a fresh one is as
// good, and nothing runs twice.
std::unique_ptr<AgentProcess> AgentCall::start_held(Held& held, const ExecRequest& request,
                                                    const CallControl& control) {
  Release release{.source = *held.source};
  if (request.timeout) release.timeout_ns = static_cast<std::uint64_t>(request.timeout->count());
  auto process =
      std::make_unique<AgentProcess>(std::move(held.connection), FrameType::release,
                                     encode(release), request, parts_, accounting_, closed_);
  return process->await_release(control) ? std::move(process) : nullptr;
}

// It says nothing until it is released, so anything that can be read is its end.
bool AgentCall::still_holds() {
  const std::scoped_lock lock(control_mutex_, held_mutex_);
  return control_ && held_ && is_silent(control_->descriptor()) &&
         is_silent(held_->connection.get());
}

bool AgentCall::still_waits() {
  const std::lock_guard lock(control_mutex_);
  return control_ && ready_ && is_silent(control_->descriptor()) && is_silent(ready_.get());
}

void AgentCall::take_into_use(const CallControl& control) {
  if (accounting_) accounting_->take_into_use(control);
}

void AgentCall::hold(const ExpectedProgram& program, const std::vector<std::string>& imports,
                     const CallControl& control) {
  ExecRequest request;
  request.command = Argv{{program.interpreter, directory_ + "/" + program.path}};
  request.environment = program.environment;
  const Hold message{
      .exec = decode_exec(encode_request(request, directory_ + "/work", environment_)),
      .path = directory_ + "/" + program.path,
      .imports = imports};
  Connection sender(attach(AttachKind::exec, control), parts_->timing.silence);
  sender.put(FrameType::hold, encode(message));
  sender.flush(control);
  const Frame answer = sender.receive(control);
  if (!is(answer, FrameType::held)) {
    throw SandboxUnavailable(fmt::format("{} could not be held", program.interpreter));
  }
  const std::lock_guard lock(held_mutex_);
  held_ = Held{.program = program, .connection = sender.take(), .source = {}};
}

std::optional<AgentCall::Held> AgentCall::take_held() {
  const std::lock_guard lock(held_mutex_);
  return std::exchange(held_, std::nullopt);
}

bool AgentCall::is_asked_for(const Held& held, const ExecRequest& request) const {
  const auto* argv = std::get_if<Argv>(&request.command);
  return held.source && argv != nullptr && argv->words.size() == 2 &&
         argv->words[0] == held.program.interpreter &&
         argv->words[1] == directory_ + "/" + held.program.path &&
         request.environment == held.program.environment && request.directory.empty() &&
         request.stdin_mode == StdinMode::empty && request.lifetime == Lifetime::call;
}

// Whether it is the file of the program that is held, which takes it from `start`.
bool AgentCall::keep_source(std::string_view path, std::span<const char> content,
                            std::string_view working_directory) {
  const std::lock_guard lock(held_mutex_);
  if (!held_ || path != held_->program.path || working_directory != directory_ ||
      content.size() > kMaxHeldSource) {
    return false;
  }
  held_->source.emplace(content.data(), content.size());
  return true;
}

// A held program's directory shall be to everybody as if nothing had been held: whoever comes to it
// otherwise than was expected finds what was written there, and nothing else.
void AgentCall::leave_held_alone(const FilePath& file, const CallControl& control) {
  std::optional<Held> held;
  {
    const std::lock_guard lock(held_mutex_);
    if (!held_) return;
    const std::string& path = held_->program.path;
    const std::string parent = directory_ + "/" + path.substr(0, path.rfind('/'));
    const std::string whole = file.directory + "/" + file.path;
    if (!whole.starts_with(parent) && !parent.starts_with(whole)) return;
    held = std::exchange(held_, std::nullopt);
  }
  give_up(std::move(*held), control);
}

void AgentCall::give_up(Held held, const CallControl& control) {
  held.connection.reset();  // ends it
  const std::string parent = held.program.path.substr(0, held.program.path.rfind('/'));
  remove(parent, directory_, Recursive::yes, control);
  if (held.source) write_file(held.program.path, *held.source, directory_, control);
}

void AgentCall::drop_idle_files() noexcept {
  std::vector<std::unique_ptr<Connection>> files;
  const std::lock_guard lock(files_mutex_);
  files.swap(idle_files_);
}

// In a forked child of the host the call is its parent's, who may still want it.
bool AgentCall::close() noexcept {
  if (!owner_.is_current()) return false;
  drop_idle_files();
  take_held();
  const bool known = end_call();
  if (parts_->ready) parts_->ready->ask(*parts_);
  return known;
}

bool AgentCall::end_call() noexcept {
  const std::lock_guard lock(control_mutex_);
  if (!control_) return known_;
  *closed_ = true;
  ready_.reset();
  CallControl patience;
  patience.deadline = sys::deadline_after(parts_->timing.close_patience);
  try {
    known_ = end(patience);
  } catch (const std::exception& error) {
    write_log(parts_->log, LogLevel::warning,
              std::string("closing a call failed: ") + error.what());
    known_ = false;
  }
  control_.reset();
  end_egress();
  if (accounting_) accounting_->closed(known_);
  return known_;
}

std::vector<EgressRecord> AgentCall::end_egress() noexcept try {
  if (!egress_ || !owner_.is_current()) return {};
  egress_->close();
  return egress_->records();
} catch (const std::exception& error) {
  write_log(parts_->log, LogLevel::warning,
            std::string("the record of a call's egress is lost: ") + error.what());
  return {};
}

void AgentCall::end_with_sandbox() noexcept {
  if (!owner_.is_current()) return;
  take_held();
  const std::lock_guard lock(control_mutex_);
  *closed_ = true;
  ready_.reset();
  control_.reset();
  known_ = true;
}

// So that the guest does its part while this side does its own. The way out of a call has a process
// that ends with nothing. What cannot be sent without waiting goes with the closing itself.
void AgentCall::close_after_program() noexcept {
  drop_idle_files();
  const std::lock_guard lock(control_mutex_);
  if (!control_ || egress_) return;
  try {
    control_->put(FrameType::close_after);
    closes_after_ = true;
  } catch (const std::exception&) {
    // The guest has gone, which `close` finds.
  }
}

bool AgentCall::end(const CallControl& control) {
  try {
    control_->put(FrameType::close_call);
    control_->flush(control);
  } catch (const SandboxUnavailable&) {
    // It may have done so already, and said so.
    if (!closes_after_) throw;
  }
  if (accounting_) accounting_->closing();
  const Frame answer = control_->receive(control);
  if (!is(answer, FrameType::call_closed)) throw ProtocolError("no answer to close_call");
  return decode_call_closed(answer.payload).known;
}

AgentSandbox::AgentSandbox(AgentSandboxParts parts)
    : parts_(std::make_shared<const AgentSandboxParts>(std::move(parts))) {}

SandboxInfo AgentSandbox::info() const { return parts_->info; }

std::optional<int> AgentSandbox::first_process() const {
  return parts_->first_process ? parts_->first_process() : std::nullopt;
}

std::unique_ptr<Call> AgentSandbox::open_call(const CallProfile& profile,
                                              const CallControl& control) {
  CallProfile named = profile;
  if (named.id.empty()) named.id = random_hex(6);
  const std::string& id = named.id;
  if (!is_call_id(id)) {
    throw InvalidArgument(fmt::format(
        "the call id '{}' is refused: it is not 12 lower-case hex digits", escape_for_display(id)));
  }
  if (control.stop.stop_requested()) {
    throw SandboxCancelled("the call was cancelled by its caller");
  }
  if (parts_->held && profile.expects && profile.id.empty() && profile.host_tool_socket < 0) {
    if (std::unique_ptr<Call> call = parts_->held(*profile.expects, control)) return call;
  }
  const bool is_any = profile.id.empty() && profile.host_tool_socket < 0;
  std::unique_ptr<AgentCall> call;
  if (is_any && parts_->ready) call = take_ready(control);
  if (!call) {
    call = std::make_unique<AgentCall>(ask_for_call(named, *parts_, CallUse::now, control), parts_,
                                       control);
  }
  if (profile.ends_with_program) call->end_with_program();
  return call;
}

// The one that was opened ahead, if it is still as good as a new one: nothing began in it.
std::unique_ptr<AgentCall> AgentSandbox::take_ready(const CallControl& control) try {
  std::optional<AskedCall> asked = parts_->ready->take(control);
  if (!asked) return nullptr;
  auto call = std::make_unique<AgentCall>(*std::move(asked), parts_, control);
  return call->still_waits() ? std::move(call) : nullptr;
} catch (const SandboxUnavailable& refusal) {
  write_log(parts_->log, LogLevel::debug,
            fmt::format("sandbox {}: a call that was opened ahead is lost: {}", parts_->info.id,
                        refusal.message()));
  return nullptr;
}

}  // namespace casemate::guest
