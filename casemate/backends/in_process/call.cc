#include <fmt/format.h>

#include <utility>
#include <variant>

#include "casemate/backends/in_process/state.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"

namespace casemate::in_process {
namespace {

std::string command_text(const ExecRequest& request) {
  if (const auto* shell = std::get_if<ShellLine>(&request.command)) return shell->line;
  const Argv& argv = std::get<Argv>(request.command);
  if (argv.words.empty()) {
    throw InvalidArgument("a program was started without a name", "give argv at least one word");
  }
  return shell_join(argv.words);
}

class ScriptedCall final : public Call {
 public:
  ScriptedCall(std::shared_ptr<InProcessSandbox::State> state, std::size_t record, std::string id,
               std::string directory, std::string host_tool_address)
      : state_(std::move(state)),
        record_(record),
        host_tool_address_(std::move(host_tool_address)),
        scope_(std::make_shared<CallScope>()) {
    scope_->id = std::move(id);
    scope_->directory = std::move(directory);
  }

  ~ScriptedCall() override { end(); }

  const std::string& id() const override { return scope_->id; }
  const std::string& directory() const override { return scope_->directory; }
  std::string host_tool_address() const override { return host_tool_address_; }

  std::unique_ptr<Process> start(const ExecRequest& request, const CallControl& control) override {
    const std::string command = command_text(request);
    check_lifetime(request);
    if (request.lifetime == Lifetime::sandbox && !host_tool_address_.empty()) {
      throw InvalidArgument(
          "a program that stays with the sandbox is refused in a call with host tools",
          "start it in a call without: it would outlive whoever answers them");
    }
    begin(Operation::start, command, control);
    const std::string directory =
        state_->store.program_directory(request.directory, scope_->directory + "/work");
    {
      const std::lock_guard lock(state_->mutex);
      state_->commands.push_back({.command = command,
                                  .directory = directory,
                                  .timeout = request.timeout,
                                  .environment = request.environment,
                                  .call_id = scope_->id,
                                  .lifetime = request.lifetime});
    }
    if (state_->options.raises) std::rethrow_exception(state_->options.raises);
    return make_process(state_, scope_, request, command, directory);
  }

  bool close() noexcept override { return end(); }

  void write_file(std::string_view path, std::span<const char> content,
                  std::string_view working_directory, const CallControl& control) override {
    begin(Operation::write_file, path, control);
    state_->store.write_file(path, content, working_directory);
  }

  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view working_directory,
                                        const CallControl& control) override {
    begin(Operation::stat_file, path, control);
    return state_->store.stat_file(path, working_directory);
  }

  std::string read_file(std::string_view path, std::string_view working_directory,
                        std::uint64_t max_bytes, const CallControl& control) override {
    begin(Operation::read_file, path, control);
    return state_->store.read_file(path, working_directory, max_bytes);
  }

  void remove(std::string_view path, std::string_view working_directory, Recursive recursive,
              const CallControl& control) override {
    begin(Operation::remove, path, control);
    state_->store.remove(path, working_directory, recursive);
  }

  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view working_directory,
                                     const CallControl& control) override {
    begin(Operation::list_dir, path, control);
    return state_->store.list_dir(path, working_directory);
  }

 private:
  void begin(Operation operation, std::string_view path, const CallControl& control) const {
    if (!scope_->open) {
      throw SandboxUnavailable(fmt::format("call {} is closed", scope_->id), "open another call");
    }
    state_->begin(operation, path, control);
  }

  bool end() noexcept {
    if (scope_->open.exchange(false)) {
      state_->store.erase(scope_->directory);
      const std::lock_guard lock(state_->mutex);
      state_->calls[record_].closed = true;
    }
    return state_->options.close_is_known;
  }

  const std::shared_ptr<InProcessSandbox::State> state_;
  const std::size_t record_;
  const std::string host_tool_address_;
  const std::shared_ptr<CallScope> scope_;
};

}  // namespace

std::unique_ptr<Call> make_call(std::shared_ptr<InProcessSandbox::State> state, std::size_t record,
                                std::string id, std::string directory,
                                std::string host_tool_address) {
  return std::make_unique<ScriptedCall>(std::move(state), record, std::move(id),
                                        std::move(directory), std::move(host_tool_address));
}

}  // namespace casemate::in_process
