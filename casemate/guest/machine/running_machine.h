#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/machine/control_line.h"
#include "casemate/guest/machine/hypervisor.h"
#include "casemate/guest/machine/machine_messages.h"
#include "casemate/guest/machine/machine_plan.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A machine up to where its guest's agent listens. For one thread; throws `std::system_error`, in
// which the end of what the console said is named where the machine ended or never answered.
class RunningMachine {
 public:
  // `groups` are the files by which the hypervisor joins its control groups.
  RunningMachine(const MachinePlan& plan, const SandboxIds& ids,
                 std::vector<sys::UniqueFd> groups = {});
  // Ends it.
  ~RunningMachine();
  RunningMachine(const RunningMachine&) = delete;
  RunningMachine& operator=(const RunningMachine&) = delete;

  // Ready for `begin`: restored from the plan's saved machine, or, where there is none yet, started
  // afresh and saved for the next.
  void get_ready();
  // Says what it is for. Where a saved machine does not answer the machine is started afresh; one
  // that cannot be restored by anybody is removed.
  void begin(MachineStart& start);

  int stream() const { return stream_.get(); }
  // Readable when the hypervisor has ended.
  int process() const { return hypervisor_.process.get(); }
  // Readable when the console has said something, which `hear_console` takes, or was closed.
  int console() const { return console_.get(); }
  // False when it is closed.
  bool hear_console();

 private:
  void start(const std::vector<std::string>& more);
  void end() noexcept;
  void start_afresh();
  bool restore();
  void save();
  void drop_saved_if_at_fault(const std::system_error& error) noexcept;
  bool ended_by_itself() noexcept;
  MachineStarted hand_over(const MachineStart& start);
  void receive(void* data, std::size_t size, const char* what);
  [[noreturn]] void fail(int error, const std::string& what);

  const MachinePlan& plan_;
  const SandboxIds& ids_;
  const std::vector<sys::UniqueFd> groups_;
  Hypervisor hypervisor_;
  sys::UniqueFd stream_;
  sys::UniqueFd console_;
  std::optional<ControlLine> control_;
  // The last that the console said.
  std::string said_;
  bool restored_ = false;
};

}  // namespace casemate::guest
