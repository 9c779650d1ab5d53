"""Runs the real program on the real kernel, each test with a state root and directories of its own.

What a test leaves behind is looked for from outside, where a program cannot lie: by the inode of its
process-id namespace, by our cgroups of its sandbox, and in the state root.
"""

import collections
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release")) / "casemate"
# A sanitizer reserves terabytes of addresses and reads /proc before the program begins.
SANITIZED = PROGRAM.exists() and b"__asan_init" in PROGRAM.read_bytes()
SOAK = bool(os.environ.get("CASEMATE_SOAK"))
CAP = 10 * 1024 * 1024  # of a stream in the JSON object

# What an ordinary user cannot have or set up; everything else of the cases is the same for everybody.
NEEDS_ROOT = unittest.skipIf(os.geteuid() != 0, "only root can set this up")


def may_make_groups():
    """Root may; another user where the group of this process was given to it."""
    if os.geteuid() == 0:
        return True
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return os.access(f"/sys/fs/cgroup/memory{path}", os.W_OK)
    return os.access(f"/sys/fs/cgroup{path}", os.W_OK) and Path(f"/sys/fs/cgroup{path}/memory.max").exists()


NEEDS_GROUPS = unittest.skipUnless(may_make_groups(), "this user may make no control groups")

# Seconds; a bound on a hang, not a budget.
PATIENCE = 60

# A program prints this first, so that the host can look for what is left of it: where it runs, since when.
NAMESPACE = "os.readlink('/proc/self/ns/pid') + ' ' + open('/proc/self/stat').read().rpartition(')')[2].split()[19]"
PRINT_NAMESPACE = f"import os; print({NAMESPACE}, flush=True)\n"


class Result:
    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.seconds = status, out, seconds
        self.err = err.decode("utf-8")  # what we say is always valid

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.out.decode("utf-8"))

    def __repr__(self):
        return f"exit {self.status} in {self.seconds:.2f} s\nout: {self.out[:2000]!r}\nerr: {self.err[:2000]!r}"


Process = collections.namedtuple("Process", "pid group start")


def processes(namespace=None):
    """All, or those in a process-id namespace ("pid:[4026531836]"), but those of which nothing is left but what
    their parent may ask for: there are machines whose process 1 never does."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if namespace is None or os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                # A first thread that has ended waits for the others.
                if fields[0] not in "ZX" or int(fields[17]) > 1:
                    found.append(Process(int(pid), int(fields[2]), int(fields[19])))
        except OSError:
            continue  # it ended while we looked
    return found


def processes_in(said):
    """Pids in the process-id namespace of the program that said so (PRINT_NAMESPACE). The kernel uses the number
    of one that has ended again: then all in it are younger than that program was, the first of them too."""
    namespace, began = said.split()
    found = processes(namespace)
    return [process.pid for process in found] if any(process.start <= int(began) for process in found) else []


def cgroups_of(sandbox_id):
    roots = [Path("/sys/fs/cgroup")] + list(Path("/sys/fs/cgroup").glob("*"))
    return [str(path) for root in roots for path in root.glob(f"casemate/*{sandbox_id}*")]


class Case(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="casemate-case-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.state = self.dir / "state"
        self.out = self.dir / "out"
        self.addCleanup(self.nothing_is_left_in_the_state_root)

    def write(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def argv(self, *options, program=None):
        """Options, then the program's source written to a file (bytes or text), or nothing."""
        words = [str(PROGRAM), "run", *map(str, options)]
        return words if program is None else words + [str(self.write("program.py", program))]

    def environment(self, extra=None):
        environment = {"PATH": "/usr/bin:/bin", "CASEMATE_STATE_DIR": str(self.state)}
        environment.update(extra or {})
        return environment

    def start(self, argv, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        environment = self.environment(options.pop("env", None))
        process = subprocess.Popen(argv, env=environment, **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """A test that failed half-way leaves no process of its own."""
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def finish(self, process, started, limit=100):
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"did not end in {limit} s: {process.communicate()}")
        return Result(process.returncode, out or b"", err or b"", time.monotonic() - started)

    def run_argv(self, argv, limit=100, **options):
        started = time.monotonic()
        return self.finish(self.start(argv, **options), started, limit)

    def run_program(self, program, *options, **how):
        """`casemate run OPTIONS program`."""
        return self.run_argv(self.argv(*options, program=program), **how)

    def run_json(self, program, *options, **how):
        result = self.run_program(program, "--json", *options, **how)
        self.assertEqual(result.out.count(b"\n"), 1, result)
        return result

    def assertRefused(self, result, code, *words):
        """Exit 125 after one line with this code that holds all the words."""
        self.assertEqual(result.status, 125, result)
        errors = [line for line in result.err.splitlines() if line.startswith("casemate: error: ")]
        self.assertEqual(len(errors), 1, result)
        self.assertTrue(errors[0].startswith(f"casemate: error: {code}: "), result)
        for word in words:
            self.assertIn(word, errors[0], result)

    def assertNothingLanded(self):
        self.assertEqual(list(self.out.rglob("*")) if self.out.exists() else [], [])

    def assertNothingStarted(self):
        """No sandbox was asked for: its lock would stay, locks are never removed."""
        made = [str(path) for path in self.state.rglob("*") if not path.is_dir()]
        self.assertEqual(made, [], "a refusal started something")

    def assertNothingRuns(self, said):
        self.assertRegex(said, r"^pid:\[\d+\] \d+$")
        self.assertEqual(processes_in(said), [])

    def wait_until(self, holds, what):
        until = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), until, f"did not come: {what}")
            time.sleep(0.005)

    def nothing_is_left_in_the_state_root(self):
        """Sandboxes end with the run; the keeper, who removes them, may be a moment behind."""
        def left():
            return [str(path) for folder in ("new", "sandboxes", "trash") for path in (self.state / folder).glob("*")]
        until = time.monotonic() + PATIENCE
        while found := left():
            self.assertLess(time.monotonic(), until, f"left in the state root: {found}")
            time.sleep(0.005)

    def signal_once_it_prints(self, process, number):
        """Waits for the program's first line and sends the signal; returns the line."""
        line = process.stdout.readline()
        process.send_signal(number)
        return line


__all__ = ["CAP", "Case", "NAMESPACE", "NEEDS_GROUPS", "NEEDS_ROOT", "PATIENCE", "PRINT_NAMESPACE", "PROGRAM", "ROOT",
           "Result", "SOAK", "cgroups_of", "may_make_groups", "processes", "processes_in", "signal"]
