"""The microvm backend: what a virtual machine adds to what every sandbox is. Always emulated: no test
asks for a processor's virtualisation, and none decides by it."""

import glob
import json
import os
import shutil
import signal
import tempfile
import time
import unittest
from pathlib import Path

from harness import Case, NEEDS_GROUPS, NEEDS_ROOT, PATIENCE, PROGRAM, ROOT, processes
from machine_image import make_machine_root

KERNEL = ROOT / "build/machine_kernel"


def missing():
    if shutil.which("qemu-system-x86_64", path="/usr/bin:/bin") is None:
        return "there is no qemu-system-x86_64 (scripts/bootstrap engines)"
    if shutil.which("mksquashfs", path="/usr/bin:/bin") is None:
        return "there is no mksquashfs (scripts/bootstrap engines)"
    if not glob.glob(str(KERNEL / "boot/vmlinuz-*")):
        return "there is no kernel for virtual machines (scripts/machine_kernel)"
    return ""


# What two machines restored from one must not share.
WHO = """
import json, os, random, socket, time, uuid
print(json.dumps({
    'random': os.urandom(16).hex(),
    'uuid': str(uuid.uuid4()),
    'boot': open('/proc/sys/kernel/random/boot_id').read(),
    'machine': open('/etc/machine-id').read(),
    'time': time.time(),
    'kernel': os.uname().release,
    'memory': next(int(l.split()[1]) for l in open('/proc/meminfo') if l.startswith('MemTotal')),
    'devices': sorted(os.listdir('/dev')),
    'network': [l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l],
}))
"""


class MachineCase(Case):
    """One store for all of a class: the image is packed once, and a machine saved once."""

    @classmethod
    def setUpClass(cls):
        why = missing()
        if why:
            raise unittest.SkipTest(why)
        cls.shared = Path(tempfile.mkdtemp(prefix="casemate-machines-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.root = cls.shared / "root"
        make_machine_root(cls.root)

    def setUp(self):
        super().setUp()
        self.machines = self.state.with_name("state-microvm")
        # In this order at the end: what a test keeps is its own to end.
        self.addCleanup(self.nothing_is_left)
        self.addCleanup(self.verb, "rm", "--all")

    def environment(self, extra=None):
        return super().environment({"CASEMATE_IMAGE_DIR": str(self.shared / "store"),
                                    "CASEMATE_MICROVM_ACCELERATOR": "tcg",
                                    "CASEMATE_MICROVM_KERNEL": str(KERNEL), **(extra or {})})

    def verb(self, *words, **how):
        return self.run_argv([str(PROGRAM), *map(str, words)], **how)

    def machine(self, program, *options, **how):
        return self.run_json(program, "--backend", "microvm", "--min-isolation", "hardened_container",
                             "--image", f"dir:{self.root}", *options, **how)

    def hypervisors(self):
        """Those of this test's store, by what they have open."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if not words[0].endswith(b"qemu-system-x86_64"):
                    continue
                mounts = (entry / "mountinfo").read_text()
            except OSError:
                continue  # it ended while we looked
            # Its last part: of a file system that is mounted below, a mount names what is in it.
            if self.shared.name in mounts:
                found.append(int(entry.name))
        return found

    def nothing_is_left(self):
        until = time.monotonic() + PATIENCE
        while True:
            left = [str(path) for folder in ("new", "sandboxes", "trash")
                    for path in (self.machines / folder).glob("*")]
            left += self.hypervisors()
            if not left:
                return
            self.assertLess(time.monotonic(), until, f"left: {left}")
            time.sleep(0.01)


@NEEDS_ROOT
class Machines(MachineCase):
    def test_a_program_runs_in_a_machine_of_its_own_kernel_and_says_so(self):
        result = self.machine("import os; print('hello'); print(os.uname().release)")
        self.assertEqual((result.status, result.json["status"]), (0, "exited"), result)
        release = [p.name[len("vmlinuz-"):] for p in (KERNEL / "boot").glob("vmlinuz-*")]
        self.assertEqual(result.json["stdout"].split(), ["hello", *release], result)
        self.assertEqual(result.json["sandbox"]["backend"], "microvm")
        self.assertEqual(result.json["sandbox"]["isolation"], "hardened_container")
        self.assertEqual(result.json["limits_not_held"], [])

    def test_two_restored_from_one_share_nothing_that_should_differ(self):
        first, second = (json.loads(self.machine(WHO).json["stdout"]) for _ in range(2))
        for name in ("random", "uuid", "boot", "machine"):
            self.assertNotEqual(first[name], second[name], name)
        self.assertLess(abs(time.time() - second["time"]), 60)
        self.assertGreater(second["time"], first["time"])
        self.assertEqual(first["network"], ["lo"])
        saved = list((self.shared / "store/machines").glob("*"))
        self.assertEqual(len(saved), 1, saved)

    def test_files_go_in_and_come_out(self):
        given = self.write("given.bin", bytes(range(256)) * 4000)
        result = self.machine("open('back.bin', 'wb').write(open('given.bin', 'rb').read()[::-1])",
                              "--file", given, "--output", "back.bin", "--out-dir", self.out)
        self.assertEqual(result.status, 0, result)
        self.assertEqual((self.out / "back.bin").read_bytes(), given.read_bytes()[::-1])

    def test_outcomes_are_the_programs_own(self):
        self.assertEqual(self.machine("import sys; sys.exit(7)").status, 7)
        late = self.machine("import time; time.sleep(1000)", "--timeout", "1")
        self.assertEqual((late.status, late.json["status"], late.json["limit"]), (124, "timed_out", "time"), late)
        full = self.machine("open('f', 'wb').write(bytes(64 << 20))", "--disk", "16M")
        self.assertEqual(full.status, 1, full)
        self.assertEqual(full.json["limit"], "disk", full)
        self.assertIn("No space left on device", full.json["stderr"])

    def test_memory_is_bounded_by_the_machine(self):
        result = self.machine("x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1",
                              "--memory", "64M", "--disk", "16M")
        self.assertIn(result.json["status"], ("signaled", "out_of_memory"), result)

    def test_a_host_tool_answers_in_a_machine(self):
        result = self.machine("import casemate_tools; print(casemate_tools.call('double', n=21))",
                              "--host-tool", "double=python3 -c 'import json,sys; print(json.load(sys.stdin)[\"n\"]*2)'")
        self.assertEqual((result.status, result.json["stdout"]), (0, "42\n"), result)

    def test_a_kept_machine_is_found_again_and_a_killed_one_is_not(self):
        first = self.machine("open('/home/user/kept', 'w').write('here\\n')", "--keep", "--thread", "t")
        self.assertEqual(first.status, 0, first)
        result = self.verb("exec", "--thread", "t", "--", "sh", "-c", "read word < ~/kept; echo $word")
        self.assertEqual((result.status, result.text), (0, "here\n"), result)
        listed = self.verb("ls", "--json").json
        self.assertEqual([(r["backend"], r["isolation"]) for r in listed], [("microvm", "hardened_container")])
        hypervisors = self.hypervisors()
        self.assertEqual(len(hypervisors), 1)
        os.kill(hypervisors[0], signal.SIGKILL)
        self.wait_until(lambda: not self.verb("ls", "--json").json, "its end is noticed")
        again = self.verb("exec", "--thread", "t", "--", "true")
        self.assertRefused(again, "NoSuchSandbox")

    def test_a_look_at_what_works_here_saves_no_machine(self):
        store = self.dir / "store"
        for directory in (store, store / "boot"):
            directory.mkdir(mode=0o700)
        # Of another build, and of another that is in use too, as the last look found them.
        used, looked = 1_000_000_000, {}
        for name, days in (("old.kernel", 15), ("other.kernel", 13)):
            (store / "boot" / name).write_text("kernel")
            os.utime(store / "boot" / name, (used, used))
            looked[name] = [used, days * 86400]
        (store / "boot/.idle.json").write_text(json.dumps(
            {"boot": "another", "running": 0, "wall": int(time.time()), "things": looked}))
        result = self.verb("doctor", env={"CASEMATE_IMAGE_DIR": str(store)}, limit=300)
        self.assertRegex(result.text, r"microvm.*qemu microvm", result)
        booted = sorted(path.name for path in (store / "boot").iterdir() if not path.name.startswith("."))
        self.assertEqual([name[64:] for name in booted if len(name) > 64], [".initrd", ".kernel"], "no machine was started")
        self.assertEqual([name for name in booted if len(name) <= 64], ["other.kernel"])
        self.assertFalse((store / "machines").exists())

    def test_nothing_is_left_beside_what_is_kept(self):
        self.machine("pass")
        kept = {folder: sorted(p.name for p in (self.shared / "store" / folder).iterdir() if p.name != ".idle.json")
                for folder in ("boot", "packed", "machines")}
        self.assertEqual([name.rpartition(".")[2] for name in kept["boot"]], ["initrd", "kernel"], kept)
        (packed,), (saved,) = kept["packed"], kept["machines"]
        self.assertRegex(packed, r"^directory-[0-9a-f]{64}\.squashfs$")
        self.assertEqual(saved.split("-")[1], packed[len("directory-"):-len(".squashfs")])

    def test_a_killed_run_takes_its_machine_with_it(self):
        argv = self.argv("--backend", "microvm", "--min-isolation", "hardened_container", "--image",
                         f"dir:{self.root}", program="import time; print('up', flush=True); time.sleep(1000)")
        process = self.start(argv)
        self.assertEqual(self.signal_once_it_prints(process, signal.SIGKILL), b"up\n")
        process.wait()
        self.nothing_is_left()

    def test_an_ordinary_user_without_further_ids_has_machines_too(self):
        user = 4321
        self.shared.chmod(0o755)
        home = self.dir / "home"
        home.mkdir()
        self.dir.chmod(0o755)
        os.chown(home, user, user)
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        for path in (PROGRAM, KERNEL):
            if self.run_argv([*become, "test", "-r", str(path)]).status != 0:
                self.skipTest(f"{path} is out of another user's reach")
        argv = self.argv("--backend", "microvm", "--min-isolation", "hardened_container", "--image",
                         f"dir:{self.root}", program="import os; print(os.getuid(), os.uname().release)")
        result = self.run_argv([*become, *argv], env={"CASEMATE_IMAGE_DIR": str(home / "store"),
                                                      "CASEMATE_STATE_DIR": str(home / "state")})
        self.assertEqual(result.status, 0, result)
        self.assertRegex(result.text, r"^1000 \d+\.\d+\.\d+")

    def test_a_hypervisor_has_nothing_of_this_machine(self):
        self.machine("pass", "--keep", "--thread", "t")
        (pid,) = self.hypervisors()
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        self.assertNotIn("0", status["Uid"].split())
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        for name in ("mnt", "net", "ipc", "uts", "user", "cgroup"):
            self.assertNotEqual(os.readlink(f"/proc/{pid}/ns/{name}"), os.readlink(f"/proc/self/ns/{name}"), name)
        self.assertEqual(Path(f"/proc/{pid}/environ").read_bytes(), b"")
        inside = Path(f"/proc/{pid}/root")
        self.assertEqual(sorted(p.name for p in (inside / "dev").iterdir()), ["null", "random", "urandom", "zero"])
        self.assertEqual(sorted(p.name for p in (inside / "machine").iterdir()), ["image", "initrd", "kernel"])
        self.assertEqual(sorted(p.name for p in inside.iterdir() if p.name not in
                                ("bin", "sbin", "lib", "lib32", "lib64", "libx32")),
                         ["dev", "machine", "proc", "usr"])


    @NEEDS_GROUPS
    def test_a_hypervisor_is_bounded_by_control_groups_of_this_machine(self):
        sandbox = self.machine("pass", "--keep", "--thread", "t").json["sandbox"]["id"]
        (pid,) = self.hypervisors()
        memory, cpu = group_of(pid, "memory"), group_of(pid, "cpu")
        for group in (memory, cpu):
            self.assertEqual((group.name, group.parent.name), ("calls", sandbox))
        bytes_held = int(first_text(memory, "memory.limit_in_bytes", "memory.max"))
        quota = int(first_text(cpu, "cpu.cfs_quota_us", "cpu.max").split()[0])
        # Its machine's memory, and at most half a GiB for itself.
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        machine = int(words[words.index("-m") + 1].rstrip("M")) << 20
        self.assertLess(machine, bytes_held)
        self.assertLessEqual(bytes_held, machine + (512 << 20))
        self.assertEqual(quota, int(words[words.index("-smp") + 1]) * 100000)
        self.assertNotEqual(group_of(parent_of(pid), "memory"), memory, "who keeps it is not counted with it")
        (listed,) = self.verb("ls", "--json").json
        self.assertGreater(listed["memory_bytes"], 20 << 20)
        self.verb("rm", "--all")
        for group in (memory, cpu):
            self.assertFalse(group.parent.exists(), group)


def first_text(directory, *names):
    return next((directory / name).read_text() for name in names if (directory / name).exists())


def group_of(pid, controller):
    """Its directory, of either version."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return Path("/sys/fs/cgroup") / controllers / path.lstrip("/")
        if not controllers and (directory := Path("/sys/fs/cgroup") / path.lstrip("/")).exists():
            return directory
    return None


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@NEEDS_ROOT
class Ends(MachineCase):
    def kept(self):
        """A machine that is kept; its hypervisor."""
        result = self.machine("pass", "--keep", "--thread", "t")
        self.assertEqual(result.status, 0, result)
        (hypervisor,) = self.hypervisors()
        return hypervisor

    def test_a_hung_machine_is_an_outcome_and_can_be_removed(self):
        os.kill(self.kept(), signal.SIGSTOP)
        late = self.verb("exec", "--thread", "t", "--timeout", "1", "--", "true", limit=60)
        self.assertRefused(late, "SandboxTimeout")
        self.assertEqual(self.verb("rm", "--all").text, "removed 1\n")
        self.nothing_is_left()

    def test_a_killed_keeper_takes_its_machines_with_it(self):
        hypervisor = self.kept()
        keeper = parent_of(parent_of(hypervisor))
        self.assertEqual(Path(f"/proc/{keeper}/comm").read_text(), "casemate-keeper\n")
        os.kill(keeper, signal.SIGKILL)
        # As long as it is about to end its control groups stay, for the next to sweep.
        self.wait_until(lambda: all(process.pid != hypervisor for process in processes()), "its machine ends")
        self.assertEqual(self.verb("ls", "--json").json, [])
        self.nothing_is_left()

    def test_a_full_disk_where_machines_are_saved_costs_time_only(self):
        store = self.dir / "small"
        store.mkdir()
        argv = self.argv("--backend", "microvm", "--min-isolation", "hardened_container", "--image",
                         f"dir:{self.root}", program="print('it runs')")
        script = f"mount -t tmpfs -o size=64m,mode=700 small {store} && \"$@\" && ls {store}/machines && df {store}"
        result = self.run_argv(["unshare", "--mount", "sh", "-c", script, "sh", *argv],
                               env={"CASEMATE_IMAGE_DIR": str(store)})
        lines = result.text.splitlines()
        # Nothing of what could not be saved stays.
        self.assertEqual((result.status, lines[0], lines[1].split()[0]), (0, "it runs", "Filesystem"), result)

    def test_a_saved_machine_that_was_cut_short_is_made_anew(self):
        self.assertEqual(self.machine("pass").status, 0)
        (saved,) = (self.shared / "store/machines").glob("*")
        whole = saved.stat().st_size
        os.truncate(saved, whole // 2)
        result = self.machine("print('it runs')")
        self.assertEqual((result.status, result.json["stdout"]), (0, "it runs\n"), result)
        (saved,) = (self.shared / "store/machines").glob("*")
        self.assertGreater(saved.stat().st_size, whole // 2)

    def test_a_saved_machine_that_loads_and_does_not_run_is_made_anew(self):
        self.assertEqual(self.machine("pass").status, 0)
        (saved,) = (self.shared / "store/machines").glob("*")
        # Open until the end: what nobody has any more may have its number again.
        with open(saved, "r+b") as file:
            damaged = os.fstat(file.fileno())
            # Half of what is in its memory, past what the hypervisor reads to load it.
            file.seek(damaged.st_size // 4)
            for _ in range(damaged.st_size // 2 // 4096):
                page = bytearray(file.read(4096))
                page[16:] = bytes(len(page) - 16)
                file.seek(-len(page), os.SEEK_CUR)
                file.write(page)
            file.flush()
            result = self.machine("print('it runs')")
            self.assertEqual((result.status, result.json["stdout"]), (0, "it runs\n"), result)
            (saved,) = (self.shared / "store/machines").glob("*")
            self.assertNotEqual(saved.stat().st_ino, damaged.st_ino)


@NEEDS_ROOT
class Speed(MachineCase):
    def test_how_soon_fresh_restored_and_warm_machines_are_there(self):
        """Medians of interleaved runs, printed."""
        fresh_only = self.write("fresh.toml", "[backends.microvm]\nsave_machines = false\n")
        self.assertEqual(self.machine("pass").status, 0)
        fresh, restored = [], []
        for _ in range(3):
            for times, extra in ((fresh, ("--config", fresh_only)), (restored, ())):
                result = self.machine("pass", *extra)
                self.assertEqual(result.status, 0, result)
                times.append(result.json["timing_ms"]["acquire"])
        self.machine("pass", "--keep", "--thread", "t")
        warm = []
        for _ in range(5):
            started = time.monotonic()
            self.assertEqual(self.verb("exec", "--thread", "t", "--", "true").status, 0)
            warm.append(1000 * (time.monotonic() - started))
        fresh, restored, warm = (sorted(times)[len(times) // 2] for times in (fresh, restored, warm))
        print(f"fresh {fresh:.0f} ms, restored {restored:.0f} ms (x {fresh / restored:.1f}), "
              f"a command in a warm one {warm:.0f} ms")

    def test_the_bench_has_a_row_for_a_restored_machine_and_one_for_a_warm_one(self):
        result = self.verb("bench", "--json", "--work", "cold_true", "--work", "warm_true", "--rounds", "2",
                           env={"CASEMATE_BENCH_MACHINE_IMAGE": f"dir:{self.root}"}, limit=300)
        rows = {row["work"]: row for row in result.json if row["subject"] == "casemate microvm, emulated"}
        self.assertEqual([row["runs"] for row in rows.values()], [2, 2], rows)


@NEEDS_ROOT
class Conformance(MachineCase):
    def test_all_probes_pass_in_machines_restored_from_one(self):
        result = self.verb("conformance", "--backend", "microvm", "--image", f"dir:{self.root}", limit=500)
        self.assertRegex(result.text.splitlines()[-1], r"^microvm: \d+ passed, 0 failed, \d+ skipped$", result.text)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(len(list((self.shared / "store/machines").glob("*"))), 1)


class Refusals(MachineCase):
    def test_under_emulation_it_does_not_pass_for_a_micro_machine(self):
        result = self.run_program("pass", "--backend", "microvm", "--min-isolation", "microvm",
                                  "--image", f"dir:{self.root}")
        self.assertRefused(result, "SandboxBackendNotPermitted", "hardened_container", "microvm",
                           "virtualisation", "--min-isolation")

    def test_the_image_of_this_machine_is_refused(self):
        result = self.run_program("pass", "--backend", "microvm", "--min-isolation", "hardened_container")
        self.assertRefused(result, "SandboxImageNotSupported", "host")

    def test_what_is_missing_is_named_with_what_brings_it(self):
        elsewhere = self.dir / "bin"
        elsewhere.mkdir()
        shutil.copy("/bin/true", elsewhere / "qemu-system-x86_64")
        for extra, words in ((({"CASEMATE_MICROVM_KERNEL": "/nowhere"}), ("kernel", "dpkg-deb -x")),
                             (({"PATH": "/nowhere"}), ("qemu", "apt-get install")),
                             (({"PATH": str(elsewhere)}), (str(elsewhere), "/usr"))):
            result = self.run_program("pass", "--backend", "microvm", "--min-isolation", "hardened_container",
                                      "--image", f"dir:{self.root}", env=extra)
            self.assertRefused(result, "SandboxUnavailable", *words)

    def test_a_link_to_a_hypervisor_serves(self):
        links = self.dir / "bin"
        links.mkdir()
        (links / "qemu-system-x86_64").symlink_to("/usr/bin/qemu-system-x86_64")
        result = self.run_argv([str(PROGRAM), "backends", "--json"], env={"PATH": f"{links}:/usr/bin:/bin"})
        self.assertTrue({each["name"]: each["available"] for each in result.json}["microvm"], result)


if __name__ == "__main__":
    unittest.main()
