#include "casemate/guest/agent/inheritance.h"

#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "casemate/sys/rlimits.h"

namespace casemate::guest {
namespace {

struct FixedLimit {
  int resource;
  std::uint64_t soft;
  std::uint64_t hard;
};

constexpr std::uint64_t kNone = RLIM_INFINITY;
constexpr std::uint64_t kKiB = 1024;

// ioprio_set(2). Not from linux/ioprio.h: that of some kernels is no C++.
constexpr int kIoPriorityOfProcess = 1;  // IOPRIO_WHO_PROCESS
constexpr int kNoIoPriority = 0;         // IOPRIO_CLASS_NONE: as the processor's is

// Unlimited is what control groups, the quota and the call's own clock bound. The others are what
// Linux gives a machine's first process, or less where that depends on the machine. RLIMIT_NOFILE
// and RLIMIT_NPROC are each program's own.
constexpr FixedLimit kLimits[] = {
    {RLIMIT_CPU, kNone, kNone},
    {RLIMIT_AS, kNone, kNone},
    {RLIMIT_DATA, kNone, kNone},
    {RLIMIT_RSS, kNone, kNone},
    {RLIMIT_FSIZE, kNone, kNone},
    {RLIMIT_LOCKS, kNone, kNone},
    {RLIMIT_RTTIME, kNone, kNone},
    {RLIMIT_NPROC, kNone, kNone},
    {RLIMIT_STACK, 8192 * kKiB, kNone},
    {RLIMIT_MEMLOCK, 8192 * kKiB, 8192 * kKiB},
    {RLIMIT_MSGQUEUE, 800 * kKiB, 800 * kKiB},
    {RLIMIT_SIGPENDING, 4096, 4096},
    {RLIMIT_NICE, 0, 0},
    {RLIMIT_RTPRIO, 0, 0},
    {RLIMIT_CORE, 0, 0},
};

}  // namespace

void drop_inherited_bounds() noexcept {
  for (const FixedLimit& limit : kLimits) {
    sys::set_limit_as_near(limit.resource, limit.soft, limit.hard);
  }
  // A sandbox takes two descriptors here and each lease one in its agent.
  const std::uint64_t files = sys::most_of(RLIMIT_NOFILE);
  sys::set_limit_as_near(RLIMIT_NOFILE, files, files);
  personality(PER_LINUX);
  // A group of the version 1 controller takes no real-time process.
  const sched_param ordinary{};
  sched_setscheduler(0, SCHED_OTHER, &ordinary);
  syscall(SYS_ioprio_set, kIoPriorityOfProcess, 0, kNoIoPriority);
}

}  // namespace casemate::guest
