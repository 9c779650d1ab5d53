#pragma once

#include <optional>
#include <string>

namespace casemate::microvm {

// What runs a guest's instructions: the processor, behind a boundary of its own, or a program.
enum class Accelerator { kvm, tcg };

// What was found about the former here.
struct KvmState {
  bool usable = false;
  // Why not; empty where it is usable.
  std::string reason{};
  // What would help, for a person, and as a command that needs nothing filled in; empty where there
  // is none.
  std::string hint{};
  std::string fix{};
};

// What decides, so that a test can hold it.
struct KvmFindings {
  bool device_exists = false;
  // The processor has an extension for hypervisors (vmx, svm).
  bool virtualisation = false;
  // 0, or the errno of opening it for reading and writing.
  int open_error = 0;
  // A hypervisor that root starts runs as a user of no rights and in none of root's groups, and the
  // device is not that one's to open.
  bool closed_to_others = false;
  // What KVM_GET_API_VERSION gave.
  int api_version = 0;
  // It has, and this kernel the module for it. Without either the device may be there and be
  // something else: then ordinary kernels do not start.
  bool hardware = false;
};

KvmFindings look_at_kvm() noexcept;
// `user` is the name of this one, empty where it has none.
KvmState judge(const KvmFindings& findings, const std::string& user);

}  // namespace casemate::microvm
