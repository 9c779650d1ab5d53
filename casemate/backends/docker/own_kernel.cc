// Whether sandboxes of the runtime that was named have a kernel of their own, by what can be seen
// of one: never by what it is called.

#include "casemate/backends/docker/own_kernel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "casemate/backends/docker/docker_backend_impl.h"
#include "casemate/backends/docker/guest_volume.h"
#include "casemate/backends/docker/labels.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/file.h"

namespace casemate {

using namespace docker;

namespace {

// A start, and with a runtime that brings a kernel that takes a while.
constexpr std::chrono::seconds kPatience{60};

// Whether a process of this machine, as far as it shows them, was started with that word.
bool is_seen_here(const std::string& word) {
  for (const std::string& name : sys::list_directory_at(AT_FDCWD, "/proc")) {
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto words =
        sys::read_file_if_there(AT_FDCWD, ("/proc/" + name + "/cmdline").c_str(), 64 * 1024);
    // By itself: what started the sandbox may have it within a longer one.
    if (words && ('\0' + *words).find('\0' + word + '\0') != std::string::npos) return true;
  }
  return false;
}

// That this process would see a sandbox's processes if this kernel ran them.
bool sees_first_process(const Sandbox& sandbox) {
  const auto first = sandbox.first_process();
  return first && is_process_of_container(*first, sandbox.info().id);
}

}  // namespace

std::string docker::kernel_of_this_machine() {
  utsname names{};
  if (uname(&names) < 0) return "";
  return std::string(names.release) + " " + names.version;
}

bool docker::is_process_of_container(int process, std::string_view id) noexcept try {
  for (const char* file : {"cmdline", "cgroup"}) {
    const auto text = sys::read_file_if_there(
        AT_FDCWD, fmt::format("/proc/{}/{}", process, file).c_str(), 64 * 1024);
    if (text && text->find(id) != text->npos) return true;
  }
  return false;
} catch (const std::exception&) {
  return false;
}

bool DockerBackend::Impl::has_own_kernel() noexcept {
  if (options_.runtime.empty() || engine_.address().kind != EngineAddress::Kind::unix_socket) {
    return false;
  }
  const std::lock_guard lock(evidence_mutex_);
  // While it is looked at, by this very thread, nothing is claimed.
  if (own_kernel_) return *own_kernel_;
  own_kernel_ = false;
  // Of what to make one is not known.
  if (options_.image.empty()) return false;
  const SandboxKey key{"casemate evidence", random_hex(8), "docker"};
  try {
    own_kernel_ = see_own_kernel(key);
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::warning,
              fmt::format("docker: whether the runtime {} brings a kernel of its own could not be "
                          "seen, so that it counts as none: {}",
                          escape_for_display(options_.runtime), escape_for_display(error.what())));
  }
  dispose_labelled({{std::string(kScopeLabel), label_value(key.scope)},
                    {std::string(kThreadLabel), label_value(key.thread_id)}});
  return *own_kernel_;
}

bool DockerBackend::Impl::see_own_kernel(const SandboxKey& key) {
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + kPatience;
  SandboxSpec spec;
  spec.kind = "evidence";
  const auto sandbox = acquire(key, spec, control);
  const auto call = sandbox->open_call({}, control);
  const std::string marker = "casemate-evidence-" + random_hex(8);
  ExecRequest request;
  request.command = Argv{{std::string(kGuestEntry), "facts", marker}};
  request.stdin_mode = StdinMode::piped;
  std::unique_ptr<Process> process;
  std::string kernel;
  bool is_here = true;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    kernel.append(bytes.begin(), bytes.end());
    if (!kernel.ends_with('\n')) return;
    // It lives until its input ends, so that what is not seen is not there.
    is_here = is_seen_here(marker);
    process->close_stdin();
  };
  process = call->start(request, control);
  const ExecResult result = process->wait(control);
  if (result.exit_code != 0 || !kernel.ends_with('\n')) return false;
  kernel.pop_back();
  const std::string here = kernel_of_this_machine();
  return !here.empty() && kernel != here && sees_first_process(*sandbox) && !is_here;
}

}  // namespace casemate
