#include "casemate/guest/agent/landlock.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

// Own names, from userspace-api/landlock of the kernel: the machine that builds may have older
// headers than the one that runs.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr int kPathBeneath = 1;

constexpr std::uint64_t kExecute = 1 << 0;
constexpr std::uint64_t kWriteFile = 1 << 1;
constexpr std::uint64_t kReadFile = 1 << 2;
constexpr std::uint64_t kReadDirectory = 1 << 3;
// remove_dir, remove_file, make_char, make_dir, make_reg, make_sock, make_fifo, make_block,
// make_sym.
constexpr std::uint64_t kMakeAndRemove = 0x1ff << 4;
constexpr std::uint64_t kMakeDevice = 1 << 6 | 1 << 11;
constexpr std::uint64_t kRefer = 1 << 13;     // ABI 2: rename and link between directories
constexpr std::uint64_t kTruncate = 1 << 14;  // ABI 3
constexpr std::uint64_t kIoctl = 1 << 15;     // ABI 5: of devices
// ABI 6.
constexpr std::uint64_t kScopeAbstractSockets = 1 << 0;
constexpr std::uint64_t kScopeSignals = 1 << 1;

struct RulesetAttributes {
  std::uint64_t handled_files;
  std::uint64_t handled_network;  // ABI 4
  std::uint64_t scoped;           // ABI 6
};
struct __attribute__((packed)) PathRule {
  std::uint64_t allowed;
  std::int32_t parent;
};

std::uint64_t file_rights(long abi) {
  std::uint64_t rights =
      kExecute | kWriteFile | kReadFile | kReadDirectory | kMakeAndRemove | kRefer;
  if (abi >= 3) rights |= kTruncate;
  if (abi >= 5) rights |= kIoctl;
  return rights;
}

}  // namespace

sys::UniqueFd make_landlock(const std::string& work_dir) {
  const long abi = landlock_version();
  if (abi < kLeastLandlock) return {};
  const std::uint64_t handled = file_rights(abi);
  const RulesetAttributes attributes{
      .handled_files = handled,
      .handled_network = 0,
      .scoped = abi >= 6 ? kScopeAbstractSockets | kScopeSignals : 0};
  // An older kernel takes a longer value when what it does not know is 0.
  sys::UniqueFd rules(static_cast<int>(syscall(kCreateRuleset, &attributes, sizeof attributes, 0)));
  if (!rules) sys::throw_errno("making Landlock rules");
  const auto allow = [&](const char* path, std::uint64_t rights) {
    const sys::UniqueFd place = sys::open_at(AT_FDCWD, path, O_PATH);
    const PathRule rule{.allowed = rights & handled, .parent = place.get()};
    if (syscall(kAddRule, rules.get(), kPathBeneath, &rule, 0) < 0) {
      sys::throw_errno(std::string("a Landlock rule for ") + path);
    }
  };
  constexpr std::uint64_t kEverything = ~kMakeDevice & ~kIoctl;
  allow("/", kExecute | kReadFile | kReadDirectory);
  for (const char* path : {work_dir.c_str(), "/home/user", "/tmp", "/dev/shm"}) {
    allow(path, kEverything);
  }
  // What is opened to be written is often to be truncated, where that means nothing too.
  allow("/dev", kWriteFile | kTruncate | kIoctl);
  allow("/proc", kWriteFile | kTruncate);
  return rules;
}

int enter_landlock(int rules) noexcept { return syscall(kRestrictSelf, rules, 0) == 0 ? 0 : errno; }

}  // namespace casemate::guest
