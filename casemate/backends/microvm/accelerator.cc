#include "casemate/backends/microvm/accelerator.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "casemate/sys/unique_fd.h"

namespace casemate::microvm {
namespace {

constexpr char kDevice[] = "/dev/kvm";
// The one that every kernel since 2.6.22 has.
constexpr int kApiVersion = 12;

// A module may be built in, and be there, on a processor that has nothing for it.
bool processor_has_virtualisation() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == "vmx" || word == "svm") return true;
    }
    return false;
  }
  return false;
}

}  // namespace

KvmFindings look_at_kvm() noexcept {
  KvmFindings findings;
  findings.virtualisation = processor_has_virtualisation();
  for (const char* module : {"/sys/module/kvm_intel", "/sys/module/kvm_amd"}) {
    findings.hardware |= access(module, F_OK) == 0 && findings.virtualisation;
  }
  findings.device_exists = access(kDevice, F_OK) == 0;
  if (!findings.device_exists) return findings;
  const sys::UniqueFd device(open(kDevice, O_RDWR | O_CLOEXEC));
  if (!device) {
    findings.open_error = errno;
    return findings;
  }
  findings.api_version = ioctl(device.get(), KVM_GET_API_VERSION, 0);
  struct stat status{};
  findings.closed_to_others =
      geteuid() == 0 && (fstat(device.get(), &status) < 0 || (status.st_mode & 06) != 06);
  return findings;
}

// What no command mends comes first: nobody is to open the device to others for nothing.
KvmState judge(const KvmFindings& findings, const std::string& user) {
  constexpr char kAnotherMachine[] =
      "run on a machine whose processor has virtualisation, enabled in its firmware (in a virtual "
      "machine: nested virtualisation)";
  if (!findings.device_exists) {
    if (!findings.virtualisation) {
      return {.reason = "there is no /dev/kvm, and this processor has no virtualisation",
              .hint = kAnotherMachine};
    }
    return {.reason = "there is no /dev/kvm",
            .hint = "as root: modprobe kvm_intel || modprobe kvm_amd",
            .fix = "modprobe kvm_intel || modprobe kvm_amd"};
  }
  if (!findings.hardware) {
    return {.reason = "/dev/kvm is there without a processor's virtualisation behind it",
            .hint = kAnotherMachine};
  }
  if (findings.open_error == EACCES || findings.open_error == EPERM) {
    return {.reason = "this user may not open /dev/kvm",
            .hint = fmt::format("as root: usermod -aG kvm {}; then log in again",
                                user.empty() ? "the user's name" : user),
            .fix = user.empty() ? "" : "usermod -aG kvm " + user};
  }
  if (findings.open_error != 0) {
    return {.reason = fmt::format("/dev/kvm cannot be opened: {}",
                                  std::generic_category().message(findings.open_error))};
  }
  if (findings.closed_to_others) {
    return {.reason = "/dev/kvm is root's alone, and machines do not run as root",
            .hint = "as root, which lets every user start machines: chmod 0666 /dev/kvm",
            .fix = "chmod 0666 /dev/kvm"};
  }
  if (findings.api_version != kApiVersion) {
    return {.reason = fmt::format("/dev/kvm speaks version {}, not {}", findings.api_version,
                                  kApiVersion)};
  }
  return {.usable = true};
}

}  // namespace casemate::microvm
