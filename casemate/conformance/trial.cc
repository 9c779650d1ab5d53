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

void with_call(SandboxBackend& backend, const SandboxKey& key, const SandboxSpec& spec,
               const CallControl& control, const std::function<void(Sandbox&, Call&)>& act) {
  const std::shared_ptr<Sandbox> sandbox = backend.acquire(key, spec, control);
  const std::unique_ptr<Call> call = sandbox->open_call({}, control);
  struct Closed {
    ~Closed() {
      if (!call.close()) backend.dispose_id(id);
    }
    Call& call;
    SandboxBackend& backend;
    std::string id;
  };
  const Closed closed{*call, backend, sandbox->info().id};
  act(*sandbox, *call);
}

Trial::Trial(Parts parts)
    : parts_(std::move(parts)),
      work_(parts_.call.directory() + "/work"),
      outside_(work_ + "-outside") {}

bool Trial::declares(Capability capability) const {
  return parts_.subject.backend().declarations().capabilities.contains(capability);
}

bool Trial::enforces(Egress mode) const {
  return parts_.subject.backend().declarations().egress_modes.contains(mode);
}

void Trial::in_sandbox(const SandboxSpec& spec, const std::function<void(Call&)>& act) {
  with_call(parts_.subject.backend(), parts_.key, spec, parts_.control,
            [&](Sandbox&, Call& call) { act(call); });
}

std::string Trial::id_of_one_that_is_disposed(const SandboxSpec& spec) {
  SandboxBackend& backend = parts_.subject.backend();
  const std::string id = backend.acquire(parts_.key, spec, parts_.control)->info().id;
  if (!backend.dispose_id(id)) {
    throw Unmet("disposing of a live sandbox by its id", "that it ended", "that there was none");
  }
  return id;
}

void Trial::plant(const std::vector<Planted>& all) { parts_.subject.plant(call(), all, control()); }

std::optional<std::string> Trial::look(const std::string& path) {
  return parts_.subject.look(call(), {&path, 1}, control()).at(0);
}

void Trial::lay_out() { lay_out_with({}); }

void Trial::lay_out_with(const std::vector<Planted>& more) {
  std::vector<Planted> all{
      {.path = outside_ + "/secret.txt", .bytes = std::string(kSecret)},
      {.path = outside_ + "/sub/leaf.txt", .bytes = std::string(kLeaf)},
      {.path = work_ + "/real/inside.txt", .bytes = std::string(kInside)},
      {.path = work_ + "/plain.txt", .bytes = std::string(kInside)},
      {.path = work_ + "/link-dir", .link_to = outside_},
      {.path = work_ + "/link-file", .link_to = outside_ + "/secret.txt"},
  };
  all.insert(all.end(), more.begin(), more.end());
  plant(all);
}

void Trial::expect_files(std::string_view step, const std::string& directory,
                         const std::vector<std::string>& names,
                         const std::vector<std::optional<std::string>>& expected) {
  std::vector<std::string> paths;
  paths.reserve(names.size());
  for (const std::string& name : names) paths.push_back(directory + "/" + name);
  const auto seen = parts_.subject.look(call(), paths, control());
  for (std::size_t i = 0; i < names.size(); ++i) {
    expect_equal(fmt::format("{}: {}", step, names[i]), seen.at(i), expected.at(i));
  }
}

void Trial::expect_there(std::string_view step, const std::vector<std::string>& names) {
  expect_files(step, work_, names, {names.size(), std::string(kInside)});
}

void Trial::expect_gone(std::string_view step, const std::vector<std::string>& names) {
  expect_files(step, work_, names, {names.size(), std::nullopt});
}

void Trial::expect_outside_untouched(std::string_view step,
                                     const std::vector<std::string>& absent_names) {
  std::vector<std::string> names{"secret.txt", "sub/leaf.txt"};
  names.insert(names.end(), absent_names.begin(), absent_names.end());
  std::vector<std::optional<std::string>> expected{std::string(kSecret), std::string(kLeaf)};
  expected.resize(names.size());
  expect_files(fmt::format("{}, outside", step), outside_, names, expected);
}

void Trial::write(std::string_view path, std::string_view bytes) { write(path, bytes, work_); }
void Trial::write(std::string_view path, std::string_view bytes, const std::string& directory) {
  call().write_file(path, bytes, directory, control());
}

std::string Trial::read(std::string_view path) { return read(path, work_); }
std::string Trial::read(std::string_view path, const std::string& directory) {
  return call().read_file(path, directory, kReadCap, control());
}

std::optional<SandboxEntry> Trial::stat(std::string_view path) { return stat(path, work_); }
std::optional<SandboxEntry> Trial::stat(std::string_view path, const std::string& directory) {
  return call().stat_file(path, directory, control());
}

void Trial::remove(std::string_view path, Recursive recursive) {
  call().remove(path, work_, recursive, control());
}

std::vector<SandboxEntry> Trial::list(std::string_view path) { return list(path, work_); }
std::vector<SandboxEntry> Trial::list(std::string_view path, const std::string& directory) {
  return call().list_dir(path, directory, control());
}

ExecResult Trial::run(std::vector<std::string> argv) {
  ExecRequest request;
  request.command = Argv{std::move(argv)};
  return call().exec(request, control());
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
