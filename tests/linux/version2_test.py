"""The linux backend with control groups of version 2, made and counted by a kernel that has them all.

This machine's own may be of version 1. So the kernel of scripts/machine_kernel is started in an
emulated machine, with this machine's python3 and the program linux_sandbox_test in its memory, and
runs there as root what of that depends on groups.
"""

import glob
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cases"))
from images_test import libraries_of  # noqa: E402
from machine_image import make_machine_root  # noqa: E402
from microvm_test import KERNEL, missing  # noqa: E402

BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))
SUITE = "linux_sandbox_test"
TIME = 900  # seconds; a bound on a hang, not a budget

# But for those that take a processor's second for more than an emulated one does in it, or very long.
TESTS = "LinuxLimits.*:ReadyCalls.*:LinuxLifecycle.*Kill*"
NOT_HERE = ("LinuxLimits.AForkBombOnASliverOfAProcessorStillEndsWithItsOutput",
            "LinuxLimits.ProcessorSecondsAreTheCallsAndWaitingCostsNone",
            "LinuxLimits.TheTimeoutIsKeptAndWhatWasPrintedToo",
            "ReadyCalls.AreHadBySoManySandboxesAtATime", "ReadyCalls.AreOneCallersEach",
            "ReadyCalls.OfASandboxThatIsGoneLeaveTheirPlaceToAnother")

# The first process. What the kernel unpacked cannot be left by pivot_root, a mount on it can.
INIT = """#!/usr/bin/python3 -S
import ctypes, os, subprocess, traceback
libc = ctypes.CDLL(None, use_errno=True)
MS_BIND, MS_MOVE = 0x1000, 0x2000
def mount(kind, target, source=None, flags=0):
    os.makedirs(target, exist_ok=True)
    if libc.mount((source or kind).encode(), target.encode(), kind.encode() or None, flags, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
try:
    mount("", "/new", "/", MS_BIND)
    os.chdir("/new")
    mount("", "/", "/new", MS_MOVE)
    os.chroot(".")
    mount("devtmpfs", "/dev")
    console = os.open("/dev/console", os.O_RDWR)
    for stream in range(3):
        os.dup2(console, stream)
    for kind, target in (("proc", "/proc"), ("sysfs", "/sys"), ("cgroup2", "/sys/fs/cgroup"),
                         ("tmpfs", "/tmp"), ("tmpfs", "/run"), ("tmpfs", "/dev/shm")):
        mount(kind, target)
    print("controllers:", open("/sys/fs/cgroup/cgroup.controllers").read(), flush=True)
    words = open("/suite/arguments").read().split()
    environment = {"PATH": "/usr/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    ended = subprocess.run(["/suite/program", *words], env=environment)
    print("status:", ended.returncode, flush=True)
except BaseException:
    traceback.print_exc()
libc.sync()
libc.reboot(0x4321fedc)  # power off
"""


def write_initramfs(root, path):
    """The tree as the kernel unpacks it ("newc", buffer-format.rst of the kernel's documentation)."""
    with open(path, "wb") as file:
        def put(name, mode, content=b""):
            fields = (put.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
            put.inode += 1
            head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
            file.write(head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4))

        put.inode = 1
        for directory, below, files in os.walk(root):
            for name in sorted(below + files):
                entry = Path(directory, name)
                mode = entry.lstat().st_mode
                content = (os.readlink(entry).encode() if stat.S_ISLNK(mode) else
                           entry.read_bytes() if stat.S_ISREG(mode) else b"")
                put(str(entry.relative_to(root)), mode, content)
        put("TRAILER!!!", 0)


class Version2(unittest.TestCase):
    def setUp(self):
        why = missing()
        if why:
            self.skipTest(why)
        self.dir = Path(tempfile.mkdtemp(prefix="casemate-version2-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def run_there(self, *arguments):
        """What the program prints in the machine."""
        root = self.dir / "root"
        make_machine_root(root)
        program = BUILD / "test_programs" / SUITE
        for library in libraries_of(program):
            target = root / (library if library.startswith("/usr/") else f"/usr{library}")[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(library, target)
        (root / "suite").mkdir()
        shutil.copy(program, root / "suite/program")
        (root / "suite/arguments").write_text(" ".join(arguments))
        (root / "init").write_text(INIT)
        (root / "init").chmod(0o755)
        write_initramfs(root, self.dir / "initramfs")
        argv = ["qemu-system-x86_64", "-machine", "microvm,acpi=on", "-accel", "tcg,tb-size=256", "-cpu", "max",
                "-m", "2048M", "-smp", "2", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-sandbox", "on", "-serial", "stdio", "-kernel", glob.glob(str(KERNEL / "boot/vmlinuz-*"))[0],
                "-initrd", str(self.dir / "initramfs"), "-append",
                # An emulated machine has no clock to measure the processor's counter by.
                "quiet loglevel=3 panic=-1 reboot=t console=ttyS0 tsc_early_khz=1000000 cgroup_no_v1=all"]
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=TIME)
        return ended.stdout.decode(errors="replace").replace("\r", "")

    def test_what_depends_on_groups(self):
        printed = self.run_there("--gtest_color=no", f"--gtest_filter={TESTS}-{':'.join(NOT_HERE)}")
        controllers = printed.partition("controllers:")[2].partition("\n")[0].split()
        self.assertLessEqual({"cpu", "memory", "pids"}, set(controllers), printed)
        self.assertIn("\nstatus: 0\n", printed)
        # Each that ran was in need of groups or could have them.
        self.assertNotIn("control groups", printed)
        self.assertGreater(printed.count("[       OK ]"), 20, printed)


if __name__ == "__main__":
    unittest.main()
