"""A machine of a test's own, made of namespaces: it may lack something, and what is done to it nobody else notices."""

import ctypes
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

from harness import PROGRAM

CLONE_NEWUSER = 0x10000000
LIBC = ctypes.CDLL(None, use_errno=True)


def enter_user_namespace():
    """In a child, before exec: becomes root of a user namespace in which every id is mapped."""
    reading, writing = os.pipe()
    outside = os.fork()
    if outside == 0:
        os.read(reading, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{os.getppid()}/{name}").write_text("0 0 4294967295")
        os._exit(0)
    if LIBC.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(writing, b"g")
    os.waitpid(outside, 0)
    os.close(reading)
    os.close(writing)


class Machine:
    """A shell of root in namespaces of its own, from which an ordinary user is started."""

    def __init__(self, test, *unshare, own_users=False, under=()):
        self.test = test
        self.user = random.randrange(2_100_000_000, 2_140_000_000)
        self.dir = Path(test.dir) / "machine"
        self.dir.mkdir()
        test.dir.chmod(0o755)
        self.program = self.dir / "casemate"
        shutil.copy(PROGRAM, self.program)
        # For each backend's state, whose names begin alike.
        self.theirs = self.dir / "theirs"
        self.theirs.mkdir()
        os.chown(self.theirs, self.user, self.user)
        self.shell = subprocess.Popen([*under, "/usr/bin/unshare", "--mount", *unshare, "sh"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                                      env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                                      preexec_fn=enter_user_namespace if own_users else None)
        test.addCleanup(self.end)

    def end(self):
        self.shell.stdin.close()
        try:
            self.shell.wait(30)
        except subprocess.TimeoutExpired:
            self.shell.kill()
            self.shell.wait()
        for pipe in (self.shell.stdout, self.shell.stderr):
            pipe.close()

    def root(self, line):
        """Runs a line as root of this machine; it must succeed."""
        status, out, err = self.run(line)
        self.test.assertEqual(status, 0, f"{line}: {out} {err}")
        return out

    def run(self, line):
        out, err = self.dir / "out", self.dir / "err"
        self.shell.stdin.write(f"({line}) >{out} 2>{err} </dev/null; echo $?\n".encode())
        self.shell.stdin.flush()
        answer = self.shell.stdout.readline()
        self.test.assertTrue(answer, self.shell.stderr.read().decode() if self.shell.poll() is not None else line)
        return int(answer), out.read_text(), err.read_text()

    def become(self, *words):
        state = f"CASEMATE_STATE_DIR={self.theirs}/state"
        return " ".join(["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "env",
                         state, *map(str, words)])

    def casemate(self, *words):
        return self.run(self.become(self.program, *words))

    def doctor(self, *before):
        """(exit status, {name: record})"""
        status, out, err = self.run(self.become(*before, self.program, "doctor", "--json"))
        self.test.assertEqual(err, "")
        return status, {record["name"]: record for record in json.loads(out)}

    def expect_mended(self, *words):
        """Something is missing, which holds all the words; the command printed for it mends it."""
        status, found = self.doctor()
        self.test.assertEqual(status, 1, found)
        linux = found["linux"]
        self.test.assertEqual(linux["status"], "missing", found)
        for word in words:
            self.test.assertIn(word, linux["found"])
        self.expect_refused_everywhere(linux["found"])
        self.test.assertTrue(linux["fix"], linux)
        self.root(linux["fix"])
        status, found = self.doctor()
        self.test.assertEqual((status, found["linux"]["status"]), (0, "ok"), found)
        self.test.assertEqual(found["linux: boundary"]["status"], "ok", found)

    def expect_refused_everywhere(self, reason):
        """No run, and no weaker rung: `backends` and a run say the same."""
        status, out, _ = self.casemate("backends", "--json")
        self.test.assertEqual(status, 0)
        record = json.loads(out)[0]
        self.test.assertEqual((record["available"], record["isolation"], record["reason"]), (False, "container", reason))
        (self.dir / "program.py").write_text("print('ran')")
        status, out, err = self.casemate("run", self.dir / "program.py")
        self.test.assertEqual((status, out), (125, ""))
        self.test.assertIn("casemate: error: SandboxUnavailable: ", err)
        self.test.assertIn(reason[:60], err)
