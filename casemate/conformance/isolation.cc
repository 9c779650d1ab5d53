// What a program can see and change of the host. Each probe tries, from inside, what must not work;
// where it does, nothing comes of it: files are opened and not written, calls have arguments that
// cannot take effect.

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

std::string json_object(const std::map<std::string, std::string>& entries) {
  boost::json::object object;
  for (const auto& [name, value] : entries) object[name] = value;
  return serialise_json(object);
}

// -- From os_process: a confined ordinary process -------------------------------------------------

void host_files_are_out_of_sight(Trial& trial) {
  const HostFile file;
  expect_done(trial, "looking for a file of the host's that every user there may read", R"py(
import glob, os
path, mark = os.environ["PROBE_PATH"], os.environ["PROBE_MARK"]
for place in [path] + [root + path for root in glob.glob("/proc/[0-9]*/root")]:
    try:
        if mark in open(place).read(): print("read", place)
    except OSError:
        pass
)py",
              {{"PROBE_PATH", file.path()}, {"PROBE_MARK", file.mark()}});
}

void secrets_of_the_host_are_out_of_sight(Trial& trial) {
  // What stands in one of these places inside is a secret only where it is the host's own.
  expect_done(trial, "looking where hosts keep keys, tokens and the sockets of engines", R"py(
import glob, hashlib, json, os
for path, digest in json.loads(os.environ["PROBE_DIGESTS"]).items():
    try:
        if hashlib.sha256(open(path, "rb").read(1 << 20)).hexdigest() == digest:
            print("the host's", path)
    except OSError:
        pass
for pattern in ("/run/secrets/*", "/var/run/secrets/*", "/etc/kubernetes/*", "/var/lib/kubelet/*",
                "/root/.ssh/*", "/home/*/.ssh/*", "/root/.aws/*", "/home/*/.aws/*",
                "/root/.config/gcloud/*", "/root/.azure/*", "/root/.kube/*", "/root/.docker/*",
                "/run/docker.sock", "/var/run/docker.sock", "/run/containerd/*.sock",
                "/run/podman/*.sock", "/run/crio/*.sock", "/run/dbus/*", "/run/systemd/private"):
    for path in glob.glob(pattern): print("there is", path)
)py",
              {{"PROBE_DIGESTS", json_object(host_digests())}});
}

void host_processes_are_out_of_sight(Trial& trial) {
  expect_done(trial, "looking for this process of the host's", R"py(
import glob, os
wanted = bytes.fromhex(os.environ["PROBE_COMMAND"])
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if open(path, "rb").read() == wanted: print("the host's process is", path)
    except OSError:
        pass
)py",
              {{"PROBE_COMMAND", host_command_in_hex()}});
}

void other_sandboxes_are_out_of_sight(Trial& trial) {
  SandboxSpec other = trial.spec();
  other.kind += "-neighbour";
  const std::string mark = fresh_mark();
  trial.in_sandbox(other, [&](Call& neighbour) {
    ExecRequest waiting;
    waiting.command = Argv{{"sh", "-c", "echo > \"$1\"; exec cat", "sh", mark}};
    waiting.stdin_mode = StdinMode::piped;
    const auto process = neighbour.start(waiting, trial.control());
    // In its command until it becomes `cat`, in its directory for good.
    expect_done(trial, "looking for a file and a process of another sandbox", R"py(
import glob, os
mark = os.environ["PROBE_MARK"]
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if mark in open(path).read(): print("process", path)
    except OSError:
        pass
for folder, _, names in os.walk(os.environ["PROBE_WORK"]):
    if mark in names: print("file in", folder)
)py",
                {{"PROBE_MARK", mark}, {"PROBE_WORK", other.work_dir}});
    process->close_stdin();
    process->wait(trial.control());
  });
}

void the_agent_cannot_be_touched(Trial& trial) {
  expect_done(trial, "reading, tracing and following whatever else runs in the place", R"py(
import ctypes, glob, os
libc = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH = 16, 17
for number in sorted(int(path[6:]) for path in glob.glob("/proc/[0-9]*")):
    if number == os.getpid(): continue
    for what in ("environ", "mem", "maps"):
        try:
            open(f"/proc/{number}/{what}", "rb").read(1)
            print("read", what, "of", number)
        except OSError:
            pass
    for what in ("root", "cwd", "exe"):
        try:
            os.readlink(f"/proc/{number}/{what}")
            print("followed", what, "of", number)
        except OSError:
            pass
    try:
        if os.listdir(f"/proc/{number}/fd"): print("saw descriptors of", number)
    except OSError:
        pass
    if libc.ptrace(ATTACH, number, 0, 0) == 0:
        os.waitpid(number, 0)
        libc.ptrace(DETACH, number, 0, 0)
        print("traced", number)
)py");
}

void nothing_is_inherited(Trial& trial) {
  expect_done(trial, "looking for descriptors and variables of the host's", R"py(
import json, os
for name in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue  # the listing's own
    if int(name) > 2: print("descriptor", name, "is", target)
for name, value in json.loads(os.environ["PROBE_VARIABLES"]).items():
    if os.environ.get(name) == value: print("inherited", name)
)py",
              {{"PROBE_VARIABLES", json_object(host_environment())}});
}

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

// -- From container: namespaces and a root of its own
// ----------------------------------------------

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
import ctypes, os
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
    if int(status[name], 16): print(name, status[name])
if status["NoNewPrivs"] != "1": print("set-user-id programs still work")
for act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try:
        act()
        print("changed user or groups")
    except OSError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS = 0x10000000, 0x20000
os.makedirs("place", exist_ok=True)
child = os.fork()
if child == 0:
    alone = libc.unshare(NEWUSER | NEWNS) == 0
    os._exit(1 if alone and libc.mount(b"none", b"place", b"tmpfs", 0, None) == 0 else 0)
if os.waitpid(child, 0)[1]: print("mounted in a user namespace of its own")
)py");
}

void only_loopback_is_there(Trial& trial) {
  const AbstractListener listener;
  expect_done(trial, "looking for interfaces, raw sockets and the host's abstract sockets", R"py(
import os, socket
for line in open("/proc/net/dev").read().splitlines()[2:]:
    name = line.split(":")[0].strip()
    if name != "lo": print("interface", name)
try:
    socket.socket(socket.AF_UNIX).connect("\0" + os.environ["PROBE_NAME"])
    print("reached an abstract socket of the host's")
except OSError:
    pass
for family, protocol in ((socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_PACKET, 0)):
    try:
        socket.socket(family, socket.SOCK_RAW, protocol)
        print("raw socket", family)
    except OSError:
        pass
)py",
              {{"PROBE_NAME", listener.name()}});
}

void privileged_calls_are_refused(Trial& trial) {
  // Arguments that cannot take effect: no module, no kernel image, a magic number that is none.
  expect_done(trial, "system calls that belong to the host", R"py(
import ctypes, errno, os, platform, time
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
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    print("set the clock")
except OSError:
    pass
name = os.uname().nodename.encode()
if libc.sethostname(name, len(name)) == 0: print("set the host name")
)py");
}

template <Isolation From>
std::string weaker_than(const BackendDeclarations& declared) {
  if (declared.isolation && meets_floor(*declared.isolation, From)) return {};
  return fmt::format("it is of rungs from {} upwards", to_string(From));
}

}  // namespace

std::span<const Probe> isolation_probes() {
  constexpr auto kProcess = weaker_than<Isolation::os_process>;
  constexpr auto kContainer = weaker_than<Isolation::container>;
  static constexpr auto kProbes = std::to_array<Probe>({
      {"host-files-are-out-of-sight",
       "files of the host's are not seen",
       host_files_are_out_of_sight,
       {},
       kProcess},
      {"secrets-of-the-host-are-out-of-sight",
       "no key, token or engine of the host's is seen",
       secrets_of_the_host_are_out_of_sight,
       {},
       kProcess},
      {"host-processes-are-out-of-sight",
       "processes of the host's are not seen",
       host_processes_are_out_of_sight,
       {},
       kProcess},
      {"other-sandboxes-are-out-of-sight",
       "nothing of another sandbox is seen",
       other_sandboxes_are_out_of_sight,
       {},
       kProcess},
      {"the-agent-cannot-be-touched",
       "what serves the program can be neither read nor traced",
       the_agent_cannot_be_touched,
       {},
       kProcess},
      {"nothing-is-inherited",
       "no descriptor and no variable of the host's is inherited",
       nothing_is_inherited,
       {},
       kProcess},
      {"kernel-settings-cannot-be-opened",
       "nothing that changes the kernel can be written",
       kernel_settings_cannot_be_opened,
       {},
       kProcess},
      {"the-kernel-tells-nothing",
       "the kernel's log, memory and addresses are not read",
       the_kernel_tells_nothing,
       {},
       kProcess},
      {"no-devices-but-the-harmless",
       "there is no device of the host's, and none can be made",
       no_devices_but_the_harmless,
       {},
       kContainer},
      {"nothing-is-mounted-or-remounted",
       "mounts, root and image stay as they are",
       nothing_is_mounted_or_remounted,
       {},
       kContainer},
      {"no-rights-are-gained",
       "no capability, user or namespace is gained",
       no_rights_are_gained,
       {},
       kContainer},
      {"only-loopback-is-there",
       "there is no interface but loopback, and that is not the host's",
       only_loopback_is_there,
       {},
       kContainer},
      {"privileged-calls-are-refused",
       "system calls that belong to the host are refused",
       privileged_calls_are_refused,
       {},
       kContainer},
  });
  return kProbes;
}

}  // namespace casemate::conformance
