"""Public clients of MCP, of both eras and over both transports, each made to do the same: run a program, follow
its progress, read what landed, cancel a program, be refused."""

import hashlib
import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from mcp_clients import BUILD, CLIENTS, NODE, PATIENCE, require_clients, served, state_root

HERE = Path(__file__).resolve().parent
DIGEST = hashlib.sha256(bytes(range(256)) * 300).hexdigest()


def processes_with(word):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_clients()
        if not (BUILD / "casemate").is_file():
            raise unittest.SkipTest("this build has no casemate")
        # Node looks for packages above the script: the scripts stand beside them.
        for script in ("walk.mjs", "sdk_handshake.mjs", "sdk_stateless.mjs"):
            (CLIENTS / script).write_text((HERE / script).read_text())

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="casemate-test-")
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.options = ["--min-isolation", "container", "--out-dir", str(self.directory / "out")]

    def walk(self, client, version):
        """Over stdio and over HTTP with a token."""
        token = "0123456789abcdefghijklmnop"
        (self.directory / "tokens").write_text(token)
        with self.subTest(transport="stdio"), state_root() as state:
            # By a word of the command: what a client gives a server of its own environment is its own choice.
            command = ["/usr/bin/env", f"CASEMATE_STATE_DIR={state}", str(BUILD / "casemate"), "mcp", *self.options]
            self.check(client, version, ["--command", json.dumps(command)])
        with self.subTest(transport="http"):
            with served(["casemate", "mcp"], *self.options, "--token-file", self.directory / "tokens") as (url, _):
                self.check(client, version, ["--url", url, "--token", token])

    def check(self, client, version, where):
        marker = f"9{os.getpid()}.{time.monotonic_ns()}"
        run = subprocess.run([*client, *where, "--marker", marker], capture_output=True, text=True, timeout=120,
                             check=False)
        self.assertEqual(run.returncode, 0, run.stderr[-4000:])
        seen = json.loads(run.stdout.strip().splitlines()[-1])
        self.assertEqual(seen["tools"], ["execute_code"])
        self.assertFalse(seen["isError"])
        self.assertIn("step one", seen["text"])
        self.assertIn(f"digest {DIGEST}", seen["text"])
        self.assertGreaterEqual(seen["progress"], 2)
        self.assertEqual(seen["digest"], DIGEST)
        self.assertEqual(seen["cancelled"], "rejected")
        self.assertTrue(seen["refused"])
        self.assertIn("scope", seen["refusal"])
        self.assertIn(seen["version"], (version, None))
        # The client has ended, and its call was answered with a refusal long after it was cancelled.
        end = time.monotonic() + PATIENCE
        while (left := processes_with(marker)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(left, [])

    def test_typescript_of_the_handshake_era(self):
        self.walk([NODE, CLIENTS / "sdk_handshake.mjs"], "2025-11-25")

    def test_typescript_of_the_stateless_era(self):
        self.walk([NODE, CLIENTS / "sdk_stateless.mjs"], "2026-07-28")

    def test_the_newest_typescript_in_the_manner_of_the_handshake_era(self):
        self.walk([NODE, CLIENTS / "sdk_stateless.mjs", "--era", "legacy"], "2025-11-25")

    def test_python_of_the_handshake_era(self):
        self.walk([CLIENTS / "python-handshake/bin/python", HERE / "sdk_walk.py", "--era", "handshake"], "2025-11-25")

    def test_python_of_the_stateless_era(self):
        self.walk([CLIENTS / "python-stateless/bin/python", HERE / "sdk_walk.py", "--era", "stateless"], "2026-07-28")


if __name__ == "__main__":
    unittest.main()
