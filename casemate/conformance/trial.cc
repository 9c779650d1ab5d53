#include "casemate/conformance/trial.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "casemate/base/utf8.h"

namespace casemate::conformance {
namespace {

// The contract's cap for reads of probes.
constexpr std::uint64_t kReadCap = 1024 * 1024;

std::string error_name(int error_number) {
  const char* name = strerrorname_np(error_number);
  return name != nullptr ? name : fmt::format("errno {}", error_number);
}

std::string refusal_text(std::string_view code, std::optional<int> error_number) {
  return error_number ? fmt::format("{} with {}", code, error_name(*error_number))
                      : std::string(code);
}

std::optional<int> errno_of(const SandboxError& refusal) {
  const auto* error = dynamic_cast<const SandboxFileError*>(&refusal);
  return error != nullptr ? std::optional(error->error_number()) : std::nullopt;
}

}  // namespace

Unmet::Unmet(std::string step, std::string expected, std::string seen)
    : step_(std::move(step)), expected_(std::move(expected)), seen_(std::move(seen)) {}

Trial::Trial(Subject& subject, Sandbox& sandbox, Call& call, CallControl control,
             std::chrono::nanoseconds program_bound)
    : subject_(subject),
      sandbox_(sandbox),
      call_(call),
      control_(std::move(control)),
      program_bound_(program_bound),
      work_(call.directory() + "/work"),
      outside_(work_ + "-outside") {}

bool Trial::declares(Capability capability) const {
  return subject_.backend().declarations().capabilities.contains(capability);
}

void Trial::plant(const std::string& path, std::string_view bytes) {
  subject_.plant_file(call_, path, bytes, control_);
}

void Trial::link(const std::string& path, const std::string& target) {
  subject_.plant_symlink(call_, path, target, control_);
}

std::optional<std::string> Trial::look(const std::string& path) {
  return subject_.look(call_, path, control_);
}

void Trial::lay_out() {
  plant(outside_ + "/secret.txt", kSecret);
  plant(outside_ + "/sub/leaf.txt", kLeaf);
  plant(work_ + "/real/inside.txt", kInside);
  plant(work_ + "/plain.txt", kInside);
  link(work_ + "/link-dir", outside_);
  link(work_ + "/link-file", outside_ + "/secret.txt");
}

void Trial::expect_outside_untouched(std::string_view step,
                                     const std::vector<std::string>& absent_names) {
  using Bytes = std::optional<std::string>;
  const std::string after = fmt::format("{}: the secret beside the working directory", step);
  expect_equal(after, look(outside_ + "/secret.txt"), Bytes(kSecret));
  expect_equal(fmt::format("{}: the leaf below the outside", step),
               look(outside_ + "/sub/leaf.txt"), Bytes(kLeaf));
  for (const std::string& name : absent_names) {
    expect_equal(fmt::format("{}: '{}' outside", step, name), look(outside_ + "/" + name), Bytes());
  }
}

void Trial::write(std::string_view path, std::string_view bytes) { write(path, bytes, work_); }
void Trial::write(std::string_view path, std::string_view bytes, const std::string& directory) {
  call_.write_file(path, bytes, directory, control_);
}

std::string Trial::read(std::string_view path) { return read(path, work_); }
std::string Trial::read(std::string_view path, const std::string& directory) {
  return call_.read_file(path, directory, kReadCap, control_);
}

std::optional<SandboxEntry> Trial::stat(std::string_view path) { return stat(path, work_); }
std::optional<SandboxEntry> Trial::stat(std::string_view path, const std::string& directory) {
  return call_.stat_file(path, directory, control_);
}

void Trial::remove(std::string_view path, Recursive recursive) {
  call_.remove(path, work_, recursive, control_);
}

std::vector<SandboxEntry> Trial::list(std::string_view path) { return list(path, work_); }
std::vector<SandboxEntry> Trial::list(std::string_view path, const std::string& directory) {
  return call_.list_dir(path, directory, control_);
}

ExecResult Trial::run(std::vector<std::string> argv) {
  ExecRequest request;
  request.command = Argv{std::move(argv)};
  return call_.exec(request, control_);
}

std::string shown(std::string_view bytes) { return fmt::format("'{}'", escape_for_display(bytes)); }

std::string shown(const std::optional<std::string>& bytes) {
  return bytes ? shown(*bytes) : "no such file";
}

std::string shown(const std::optional<SandboxEntry>& entry) {
  if (!entry) return "no entry";
  return fmt::format(
      "{} {} {}", shown(entry->path), to_string(entry->kind),
      entry->size_bytes ? fmt::format("of {} bytes", *entry->size_bytes) : "without a size");
}

std::string shown(const std::vector<SandboxEntry>& entries) {
  std::string text;
  for (const SandboxEntry& entry : entries) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", shown(std::optional(entry)));
  }
  return text.empty() ? "nothing listed" : text;
}

std::string shown(const ExecResult& result) {
  std::string text(to_string(result.outcome));
  if (result.exit_code) text += fmt::format(" {}", *result.exit_code);
  if (result.signal) text += fmt::format(" by {}", *result.signal);
  return fmt::format("{}, standard output {}, standard error {}", text, shown(result.stdout),
                     shown(result.stderr));
}

std::string shown(std::chrono::nanoseconds time) {
  return fmt::format("{:.3f} s", std::chrono::duration<double>(time).count());
}

std::string shown(const SandboxError& refusal) {
  return fmt::format("{}: {}", refusal_text(refusal.code(), errno_of(refusal)),
                     escape_for_display(refusal.message()));
}

void expect_refused_as(std::string_view step, std::string_view code,
                       std::optional<int> error_number, const std::function<std::string()>& act) {
  std::string seen;
  try {
    seen = act();
  } catch (const SandboxError& refusal) {
    if (refusal.code() == code && (!error_number || errno_of(refusal) == error_number)) return;
    seen = shown(refusal);
  }
  throw Unmet(std::string(step), refusal_text(code, error_number), seen);
}

}  // namespace casemate::conformance
