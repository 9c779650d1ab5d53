// The kernel, which the host shares with the place up to the rung `container`: its settings, its
// words, devices, mounts, rights and the calls that change them.

#include <array>
#include <string>

#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

void kernel_settings_cannot_be_opened(Trial& trial) {
  expect_done(trial, "opening for writing what would change the host's kernel", R"py(
import glob, os
paths = ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
         "/proc/sys/kernel/hotplug", "/proc/sys/kernel/panic", "/proc/sys/vm/panic_on_oom",
         "/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/protected_symlinks", "/proc/kcore",
         "/proc/mtrr", "/proc/1/oom_score_adj", "/sys/kernel/uevent_helper", "/sys/power/state",
         "/sys/kernel/security/apparmor/.load", "/sys/fs/selinux/enforce"]
paths += glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True)
paths += glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)
paths += glob.glob("/sys/module/*/parameters/*")[:200]
for path in paths:
    try:
        os.close(os.open(path, os.O_WRONLY))
        print("opened", path)
    except OSError:
        pass
)py");
}

void the_kernel_tells_nothing(Trial& trial) {
  expect_done(trial, "reading what the kernel says and where it lies", R"py(
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0: print("read the kernel's log")
for path in ("/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem"):
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if os.read(descriptor, 16): print("read", path)
        finally:
            os.close(descriptor)
    except OSError:
        pass
try:
    if any(int(line.split()[0], 16) for line in open("/proc/kallsyms")): print("saw addresses")
except OSError:
    pass
)py");
}

void the_clock_cannot_be_set(Trial& trial) {
  // Neither a time nor a time zone is given, and a step that is none, so that nothing is set; the
  // permission is asked first.
  expect_done(trial, "setting the clock to what it is", R"py(
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
settime, adjust, adjtimex = {"x86_64": (164, 305, 159), "aarch64": (170, 266, 171)}.get(platform.machine(), (0, 0, 0))
if settime and libc.syscall(ctypes.c_long(settime), None, None) == 0: print("may set the clock")
# ADJ_SETOFFSET; the microseconds are negative.
step = ctypes.create_string_buffer((0x100).to_bytes(8, "little") + bytes(72) + b"\xff" * 8, 256)
for name, number, arguments in (("adjtimex", adjtimex, (step,)), ("clock_adjtime", adjust, (ctypes.c_long(0), step))):
    if number and (libc.syscall(ctypes.c_long(number), *arguments) >= 0
                   or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES)):
        print("may step the clock by", name)
)py");
}

void no_devices_but_the_harmless(Trial& trial) {
  expect_done(trial, "looking for devices, and making some", R"py(
import os, stat
harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
for folder, _, names in os.walk("/dev"):
    for name in names:
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISBLK(mode): print("block device", path)
        if stat.S_ISCHR(mode) and name not in harmless and folder != "/dev/pts": print("device", path)
for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFBLK, 7, 0), (stat.S_IFBLK, 8, 0)):
    try:
        os.mknod("made", 0o600 | kind, os.makedev(major, minor))
        os.close(os.open("made", os.O_RDONLY | os.O_NONBLOCK))
        print("made a device of", major, minor)
    except OSError:
        pass
    if os.path.lexists("made"): os.unlink("made")
)py");
}

void nothing_is_mounted_or_remounted(Trial& trial) {
  expect_done(trial, "mounting, remounting, changing the root, and writing to the image", R"py(
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2
os.makedirs("place", exist_ok=True)
if libc.mount(b"none", b"place", b"tmpfs", 0, None) == 0: print("mounted")
if libc.mount(b"/", b"place", None, MS_BIND, None) == 0: print("bound")
if libc.mount(None, b"/usr", None, MS_REMOUNT | MS_BIND, None) == 0: print("remounted")
if libc.umount2(b"place", MNT_DETACH) == 0: print("unmounted")
try:
    os.chroot("place")
    print("changed the root")
except OSError:
    pass
for path in ("/usr/bin", "/usr/lib", "/bin", "/etc"):
    if os.access(path, os.W_OK): print(path, "can be written")
)py");
}

void no_rights_are_gained(Trial& trial) {
  expect_done(trial, "gaining capabilities, users and namespaces", R"py(
import ctypes, errno, os
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
libc = ctypes.CDLL(None, use_errno=True)
GET_NO_NEW_PRIVS, CAP_AMBIENT, IS_SET = 39, 47, 1
# A kernel without an ambient set names none.
ambient = libc.prctl(CAP_AMBIENT, IS_SET, 0, 0, 0) >= 0 or ctypes.get_errno() != errno.EINVAL
for name in ("CapPrm", "CapEff", "CapInh") + (("CapAmb",) if ambient else ()):
    if int(status[name], 16): print(name, status[name])
if libc.prctl(GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1: print("set-user-id programs still work")
for act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try:
        act()
        print("changed user or groups")
    except OSError:
        pass
NEWUSER, NEWNS = 0x10000000, 0x20000
os.makedirs("place", exist_ok=True)
child = os.fork()
if child == 0:
    alone = libc.unshare(NEWUSER | NEWNS) == 0
    os._exit(1 if alone and libc.mount(b"none", b"place", b"tmpfs", 0, None) == 0 else 0)
if os.waitpid(child, 0)[1]: print("mounted in a user namespace of its own")
)py");
}

void set_user_id_programs_give_nothing(Trial& trial) {
  // glibc tells of the rights that a program starts with, and only if they are no more than its
  // caller's. `--version` does nothing in any of these.
  expect_done(trial, "running the set-user-id programs of the place", R"py(
import glob, os, stat, subprocess
own = f"AT_EUID: {os.geteuid()}"
for path in sorted(set(glob.glob("/usr/bin/*") + glob.glob("/bin/*") + glob.glob("/usr/sbin/*"))):
    if os.path.basename(path) not in ("su", "mount", "umount", "sudo", "pkexec", "fusermount3", "ping"): continue
    try:
        if not os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID): continue
        told = subprocess.run([path, "--version"], env={"LD_SHOW_AUXV": "1"}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=20).stdout
    except OSError:
        continue
    if {" ".join(line.split()) for line in told.splitlines() if "AT_EUID" in line} != {own}:
        print(path, "has more rights than its caller")
)py");
}

void privileged_calls_are_refused(Trial& trial) {
  // Arguments that cannot take effect: no module, no kernel image, a magic number that is none.
  expect_done(trial, "system calls that belong to the host", R"py(
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
calls = {"x86_64": {"init_module": 175, "delete_module": 176, "kexec_load": 246, "finit_module": 313,
                    "bpf": 321, "swapon": 167, "acct": 163, "reboot": 169},
         "aarch64": {"init_module": 105, "delete_module": 106, "kexec_load": 104, "finit_module": 273,
                     "bpf": 280, "swapon": 224, "acct": 89, "reboot": 142},
         }.get(platform.machine(), {})
arguments = {"bpf": (5, 0, 0), "reboot": (1, 2, 3), "swapon": (b"/nonexistent", 0),
             "acct": (b"/nonexistent",), "kexec_load": (0, -1, 0, 0)}
for name, number in calls.items():
    ctypes.set_errno(0)
    given = [ctypes.c_long(each) if isinstance(each, int) else each
             for each in arguments.get(name, (-1, 0, 0))]
    result = libc.syscall(ctypes.c_long(number), *given)
    if result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
        print(name, "was not refused:", errno.errorcode.get(ctypes.get_errno(), "it worked"))
# The root directory of most disks, by its number: a handle needs no path.
handle = ctypes.create_string_buffer((8).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes([2]) + bytes(7))
here = os.open(".", os.O_RDONLY)
if libc.open_by_handle_at(here, handle, os.O_RDONLY) >= 0: print("opened by a handle")
# Into the namespaces that it is in, which changes nothing; in a child, if it should all the same.
setns = {"x86_64": 308, "aarch64": 268}.get(platform.machine())
if setns and os.fork() == 0:
    for kind in ("mnt", "net", "ipc", "uts", "pid", "cgroup"):
        namespace = os.open("/proc/self/ns/" + kind, os.O_RDONLY)
        if libc.syscall(ctypes.c_long(setns), namespace, 0) == 0: print("entered a namespace:", kind, flush=True)
    os._exit(0)
if setns: os.wait()
name = os.uname().nodename.encode()
if libc.sethostname(name, len(name)) == 0: print("set the host name")
)py");
}

}  // namespace

std::span<const Probe> isolation_kernel_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {.id = "kernel-settings-cannot-be-opened",
       .sentence = "nothing that changes the kernel can be written",
       .run = kernel_settings_cannot_be_opened,
       .from = Isolation::os_process},
      {.id = "the-kernel-tells-nothing",
       .sentence = "the kernel's log, memory and addresses are not read",
       .run = the_kernel_tells_nothing,
       .from = Isolation::os_process},
      {.id = "the-clock-cannot-be-set",
       .sentence = "the host's clock cannot be set",
       .run = the_clock_cannot_be_set,
       .from = Isolation::os_process},
      {.id = "no-devices-but-the-harmless",
       .sentence = "there is no device of the host's, and none can be made",
       .run = no_devices_but_the_harmless,
       .from = Isolation::container},
      {.id = "nothing-is-mounted-or-remounted",
       .sentence = "mounts, root and image stay as they are",
       .run = nothing_is_mounted_or_remounted,
       .from = Isolation::container},
      {.id = "no-rights-are-gained",
       .sentence = "no capability, user or namespace is gained",
       .run = no_rights_are_gained,
       .from = Isolation::container},
      {.id = "set-user-id-programs-give-nothing",
       .sentence = "a set-user-id program has the rights of its caller",
       .run = set_user_id_programs_give_nothing,
       .from = Isolation::os_process},
      {.id = "privileged-calls-are-refused",
       .sentence = "system calls that belong to the host are refused",
       .run = privileged_calls_are_refused,
       .from = Isolation::container},
  });
  return kProbes;
}

}  // namespace casemate::conformance
