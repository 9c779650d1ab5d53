#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/sandbox.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/connection.h"
#include "casemate/guest/protocol.h"
#include "casemate/guest/ready_call.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

class AgentProcess;

// One control connection and what is attached by it. See `Call`.
class AgentCall final : public Call {
 public:
  // Reads the guest's answer; throws as `Sandbox::open_call`.
  AgentCall(AskedCall asked, std::shared_ptr<const AgentSandboxParts> parts,
            const CallControl& control);
  ~AgentCall() override;

  const std::string& id() const override { return id_; }
  const std::string& directory() const override { return directory_; }
  std::string host_tool_address() const override { return host_tool_address_; }
  std::unique_ptr<Process> start(const ExecRequest& request, const CallControl& control) override;
  std::vector<EgressRecord> end_egress() noexcept override;
  bool close() noexcept override;
  void end_with_sandbox() noexcept override;

  // Starts `program` up to where it reads its file, for `start` to let go on when it is asked for
  // just that. Returns when it is there. Throws as `start`, and `SandboxUnavailable` when it does
  // not get there.
  // `imports` are modules that a Python interpreter imports before it waits (`is_import_name`).
  void hold(const ExpectedProgram& program, const std::vector<std::string>& imports,
            const CallControl& control);
  // Whether its program still waits, a moment ago: neither it nor the call was ended by anybody.
  bool still_holds();
  // The same of a call in which nothing was started and whose first exec was attached with it.
  bool still_waits();
  // Everything that the sandbox keeps, in pieces as they come, which are a guest's and mean nothing
  // here. No program may run meanwhile. Throws `SandboxFileError` for what cannot be kept,
  // `SandboxUnavailable` also when there is more than `max_bytes`, and what `put` throws.
  void archive(std::uint64_t max_bytes, const std::function<void(std::string_view)>& put,
               const CallControl& control);
  // The same into a sandbox that keeps nothing yet. `next` gives the next at most `kMaxData` bytes,
  // none at the end. Throws `SandboxFileError` for what could not be put back, `SandboxUnavailable`
  // for bytes that are no archive, and what `next` throws.
  void unpack(const std::function<std::string()>& next, const CallControl& control);

  // Somebody uses the call from now on. Throws as `CallAccounting::take_into_use`.
  void take_into_use(const CallControl& control);
  // `CallProfile::ends_with_program`.
  void end_with_program() noexcept { ends_with_program_ = true; }

  void write_file(std::string_view path, std::span<const char> content,
                  std::string_view working_directory, const CallControl& control) override;
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view working_directory,
                                        const CallControl& control) override;
  std::string read_file(std::string_view path, std::string_view working_directory,
                        std::uint64_t max_bytes, const CallControl& control) override;
  void remove(std::string_view path, std::string_view working_directory, Recursive recursive,
              const CallControl& control) override;
  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view working_directory,
                                     const CallControl& control) override;

 private:
  // A program started ahead, and its file once that was written.
  struct Held {
    ExpectedProgram program;
    sys::UniqueFd connection;
    std::optional<std::string> source;
  };

  void take_answer(const OpenCall& request, const CallControl& control);
  std::optional<Held> take_held();
  std::unique_ptr<AgentProcess> start_held(Held& held, const ExecRequest& request,
                                           const CallControl& control);
  bool keep_source(std::string_view path, std::span<const char> content,
                   std::string_view working_directory);
  bool is_asked_for(const Held& held, const ExecRequest& request) const;
  void leave_held_alone(const FilePath& file, const CallControl& control);
  void give_up(Held held, const CallControl& control);
  sys::UniqueFd attach(AttachKind kind, const CallControl& control, const sys::UniqueFd& mark = {});
  template <typename Talk>
  auto with_files(const CallControl& control, Talk talk);
  [[noreturn]] void fail(const Failure& failure, const FilePath& file, std::string_view verb);
  void close_after_program() noexcept;
  void drop_idle_files() noexcept;
  bool end_call() noexcept;
  bool end(const CallControl& control);

  std::string id_;
  std::string directory_;
  std::string host_tool_address_;
  // Of every program: the image's, and where the proxy is.
  std::map<std::string, std::string> environment_;
  std::shared_ptr<const AgentSandboxParts> parts_;
  std::shared_ptr<CallAccounting> accounting_;
  // None in a call without a way out.
  std::unique_ptr<CallEgress> egress_;
  sys::OwnerProcess owner_;

  std::mutex
      control_mutex_;  // attach and close; never held while a program or a file is waited for
  std::unique_ptr<Connection> control_;
  // To an exec that was attached when the call was opened, for the first program.
  sys::UniqueFd ready_;
  bool known_ = false;
  bool ends_with_program_ = false;
  // The guest was told so.
  bool closes_after_ = false;
  // For those who wait for a program of the call when it is closed under them.
  std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);

  std::mutex held_mutex_;  // only what is held
  std::optional<Held> held_;

  std::mutex files_mutex_;  // only the list
  std::vector<std::unique_ptr<Connection>> idle_files_;
};

}  // namespace casemate::guest
