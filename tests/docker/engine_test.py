"""The engines of tests end with the program that started them, and leave alone what others made."""

import json
import os
import select
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = os.environ.get("CASEMATE_BUILD_DIR", str(ROOT / "build/release"))

# Stands in for a test program: engine.py is its child and in its process group.
PROGRAM = """\
import signal, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
signal.pause()
"""


def processes_naming(text):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # it ended meanwhile
    return found


class Engine(unittest.TestCase):
    def start(self, *words):
        """Returns the program, where its child says something, and what that said first."""
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, sys.executable, *map(str, words)],
                                   stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(lambda: program.poll() is None and os.killpg(program.pid, signal.SIGKILL))
        said = program.stdout.readline().split(maxsplit=1)
        if said and said[0] == "missing":
            self.skipTest(said[1])
        self.assertEqual(said[:1], ["ready"], said)
        return program, said[1].strip()

    def await_end(self, program):
        """Of all that holds its output, which is the child."""
        os.killpg(program.pid, signal.SIGKILL)
        ready, _, _ = select.select([program.stdout], [], [], engine.PATIENCE)
        self.assertTrue(ready, "its child does not end")
        self.assertEqual(program.stdout.read(), "")

    def test_an_engine_ends_with_the_process_group_of_its_test_program(self):
        program, address = self.start(HERE / "engine.py", "podman", BUILD)
        path = address.removeprefix("unix://")
        root = Path(path).parent
        self.addCleanup(self.clear, root)
        groups = Path("/sys/fs/cgroup")
        hierarchy = groups / "pids" if (groups / "pids").exists() else groups
        foreign = hierarchy / "libpod_parent/libpod-of-another-service"
        foreign.mkdir(parents=True, exist_ok=True)
        self.addCleanup(lambda: foreign.exists() and foreign.rmdir())
        body = {"Image": engine.IMAGE, "Cmd": ["/bin/sleep", "600"], "HostConfig": {"NetworkMode": "none"}}
        status, said = self.ask(path, "/v1.41/containers/create", body)
        self.assertEqual(status, 201, said)
        container = json.loads(said)["Id"]
        self.assertEqual(self.ask(path, f"/v1.41/containers/{container}/start")[0], 204)
        self.await_end(program)
        self.assertFalse(root.exists())
        self.assertEqual(processes_naming(str(root)), [])
        self.assertFalse((groups / f"libpod_parent/libpod-{container}").exists())
        self.assertEqual(list(groups.glob(f"*/libpod_parent/libpod-{container}")), [])
        self.assertTrue(foreign.exists(), "another service's group was removed")

    def test_what_an_engines_programs_left_running_ends_with_it(self):
        program, address = self.start(HERE / "engine.py", "podman", BUILD)
        root = Path(address.removeprefix("unix://")).parent
        self.addCleanup(self.clear, root)
        def pausing(*words):
            process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", *words], start_new_session=True)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process

        # As Docker's shims are left, which were started in its name and outlive it, and what Podman clears up with.
        left = [pausing("--root", f"{root}/exec/runtime"), pausing("--runroot", f"{root}/exec")]
        client = pausing(address)
        self.await_end(program)
        for process in left:
            self.assertEqual(process.wait(engine.PATIENCE), -signal.SIGKILL)
        self.assertIsNone(client.poll(), "a program that asks the engine is its own")

    def test_an_engines_relay_ends_with_the_process_group_of_its_test_program(self):
        program, said = self.start(HERE / "tls_relay.py", "/nowhere/engine.sock")
        folder = Path(said.split()[1])
        self.assertTrue(folder.exists())
        self.await_end(program)
        self.assertFalse(folder.exists())

    @staticmethod
    def ask(path, target, body=None):
        return engine.ask(path, "POST", target, json.dumps(body), "application/json")

    @staticmethod
    def clear(root):
        """What a failed test leaves."""
        if root.exists():
            for pid in processes_naming(str(root)):
                os.kill(pid, signal.SIGKILL)
            engine.remove(root)


if __name__ == "__main__":
    unittest.main()
