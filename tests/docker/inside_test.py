"""Casemate's own sandboxes inside a container of an engine: refused as the engine starts one by itself, and what they
are everywhere with the options that the refusal names."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "tests/cases"))
from harness import PROGRAM, Case  # noqa: E402

CLIENTS = {"docker": ["docker", "--host"], "podman": ["podman", "--remote", "--url"]}
USERS = ("0:0", "1234:1234")
# Where a program may try to write, as ISO-11 has it.
WRITES = """import glob
for folder in ['/', '/tmp', '/var/tmp', '/dev/shm', '/home/user', '/root', '/run', '..', '.', *glob.glob('/home/*')]:
    try: open(folder + '/NAME', 'w').close()
    except OSError: pass
print('wrote')
"""
FIND = "find / -path /proc -prune -o -path /sys -prune -o -name NAME -print 2>/dev/null"


@unittest.skipIf(os.geteuid() != 0, "engines of a test's own are started by root")
class Inside(Case):
    def start_engine(self, kind):
        """The words that lead its client to it."""
        try:
            address = self.enterContext(engine.started(kind, BUILD))
        except engine.Missing as missing:
            self.skipTest(str(missing))
        return [*CLIENTS[kind], address]

    def setUp(self):
        super().setUp()
        self.name = f"casemate-canary-{os.getpid()}-{random.randrange(1 << 60)}"
        self.dir.chmod(0o755)
        self.given = self.dir / "given"
        self.given.mkdir()
        shutil.copy(PROGRAM, self.given)
        (self.given / "program.py").write_text(WRITES.replace("NAME", self.name))

    def in_container(self, client, user, options, script):
        # Removed by the engine's end: told to by `--rm`, podman's client and service both do, and one complains.
        words = [*client, "run", "--network", "none", "--user", user, "--volume", f"{self.given}:/given:ro",
                 "--env", "CASEMATE_STATE_DIR=/tmp/state", *options, engine.IMAGE,
                 "sh", "-c", script]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)

    def doctor(self, client, user, options):
        ended = self.in_container(client, user, options, "/given/casemate doctor --json")
        self.assertEqual(ended.stderr, "", ended)
        return ended.returncode, {record["name"]: record for record in json.loads(ended.stdout)}

    def named_in(self, client, said):
        named = re.search(rf"{client[0]} run((?: --security-opt [\w=]+)+)", said)
        self.assertTrue(named, said)
        return named[1].split()

    def options_missed(self, client, user, options):
        """That the refusal names for this engine."""
        status, found = self.doctor(client, user, options)
        self.assertEqual((status, found["linux"]["status"], found["linux"]["fix"]), (1, "missing", None), found)
        self.assertNotIn("linux: boundary", found)
        return self.named_in(client, found["linux"]["found"])

    def expect_no_rung(self, client, user):
        """No run, and nothing weaker in its place."""
        ended = self.in_container(client, user, [], "/given/casemate backends --json")
        linux = json.loads(ended.stdout)[0]
        self.assertEqual((linux["name"], linux["available"], linux["isolation"]), ("linux", False, "container"))
        ended = self.in_container(client, user, [], "/given/casemate run /given/program.py")
        self.assertEqual((ended.returncode, ended.stdout), (125, ""), ended)
        self.assertIn("casemate: error: SandboxUnavailable: ", ended.stderr)
        self.assertEqual(self.named_in(client, ended.stderr), self.named_in(client, linux["reason"]))

    def expect_works(self, client, user, options):
        """ISO-11: the container is the host."""
        status, found = self.doctor(client, user, options)
        self.assertEqual((status, found["linux"]["status"], found["linux: boundary"]["status"]), (0, "ok", "ok"), found)
        script = f"/given/casemate run /given/program.py || exit; {FIND}; echo searched; touch /tmp/NAME; {FIND}"
        ended = self.in_container(client, user, options, script.replace("NAME", self.name))
        self.assertEqual(ended.stdout.split(), ["wrote", "searched", f"/tmp/{self.name}"], ended)

    def expect_all_that_is_named(self, kind):
        client = self.start_engine(kind)
        for user in USERS:
            with self.subTest(user=user):
                options = self.options_missed(client, user, [])
                self.expect_no_rung(client, user)
                # One of them alone is not enough; who has it is told of those that are left.
                for value in options[1::2]:
                    some = ["--security-opt", value]
                    self.assertEqual({*some, *self.options_missed(client, user, some)}, {*options})
                self.expect_works(client, user, options)

    def test_iso_11_inside_docker(self):
        """ISO-11."""
        self.expect_all_that_is_named("docker")

    def test_iso_11_inside_podman(self):
        """ISO-11."""
        self.expect_all_that_is_named("podman")


if __name__ == "__main__":
    unittest.main()
