#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "casemate/backends/microvm/accelerator.h"
#include "casemate/backends/microvm/kernel.h"
#include "casemate/backends/microvm/machine_arguments.h"
#include "casemate/backends/microvm/microvm_backend.h"
#include "casemate/local/engine.h"

namespace casemate::microvm {

// What a machine is made of on this machine, or what of it is missing.
struct Findings {
  // Absolute path of the hypervisor; empty: there is none.
  std::string qemu;
  // Where there is none: one outside /usr, of which alone a hypervisor sees programs and libraries.
  std::string hidden_qemu;
  // Changes when that file does.
  std::string qemu_identity;
  std::optional<Kernel> kernel;
  bool has_mksquashfs = false;
  KvmState kvm;
  Accelerator accelerator = Accelerator::tcg;
  // Who may read the list of packages anew.
  bool by_root = false;
};

// The first thing that is missing, for a person, and what brings it, as a `local::Remedy`; empty
// when nothing is.
struct Missing {
  std::string what;
  std::string hint;
  std::string fix;
};
Missing missing_of(const Findings& findings, const std::string& kernel_directory);

class MicrovmEngine final : public local::Engine {
 public:
  explicit MicrovmEngine(MicrovmBackendOptions options);

  std::string name() const override { return std::string(kMicrovmBackendName); }
  BackendDeclarations declare(const local::ControlGroupLayout& layout) const override;
  std::string text() const override;
  void check_available() const override;
  std::string build() const override;
  std::vector<std::string> keeper_arguments() const override;
  bool shares_kernel() const override { return false; }
  // The steps of a start have bounds of their own, one of five minutes.
  std::chrono::seconds keeper_silence() const override { return std::chrono::minutes(15); }
  bool holds_limits_inside() const override { return true; }
  // The machine's memory and processors, and what the hypervisor takes for itself.
  Resources bounds_as_a_whole(const Resources& resources) const override;
  void prepare(int directory, const local::ImageChoice& image, const SandboxSpec& spec,
               const CallControl& control) override;
  // An empty one: a machine that came up with it has shown all that is its own.
  std::string probe_image() const noexcept override;
  // The hypervisor: what listens is the process that keeps it.
  std::optional<int> first_process(int agent) const noexcept override;

 private:
  struct BootFiles {
    std::string kernel;
    std::string initrd;
    std::string digest;
  };
  BootFiles boot_files();
  MachineShape shape_for(const Resources& resources) const;
  // The absolute directory that images are kept in. Throws `SandboxUnavailable` where there is no
  // place for it.
  std::string store() const;
  // Found out when it is needed first: a program that never makes a machine does not pay for it.
  const KvmState& kvm() const;
  Accelerator accelerator() const;
  const Findings& findings() const;

  const MicrovmBackendOptions options_;
  mutable std::once_flag kvm_looked_;
  mutable KvmState kvm_;
  mutable std::once_flag looked_;
  mutable Findings findings_;
  std::mutex mutex_;
  std::optional<BootFiles> boot_;
};

}  // namespace casemate::microvm
