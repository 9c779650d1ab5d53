"""ISO-13 on a file system that a program serves (FUSE), as networks and archives are mounted: one that works, and
one that hangs."""

import os
import select
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from harness import NEEDS_ROOT, PATIENCE, PROGRAM, Case
from images_test import Image, make_root, tar_of, tar_file

SERVER = shutil.which("bindfs")


@NEEDS_ROOT
@unittest.skipIf(SERVER is None, "no bindfs here (Debian: apt install bindfs)")
@unittest.skipIf(not os.access("/dev/fuse", os.R_OK | os.W_OK), "no /dev/fuse here")
class Fuse(Case):
    def setUp(self):
        super().setUp()
        self.store = self.dir / "images"
        (self.dir / "real").mkdir()
        self.seen = self.dir / "seen"
        self.seen.mkdir()
        # Mounted where nobody else sees it, and gone with its last process.
        self.server = self.start(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                                  'echo own && exec "$0" -f -o entry_timeout=0,attr_timeout=0 "$1" "$2"', SERVER,
                                  self.dir / "real", self.seen])
        self.assertEqual(self.server.stdout.readline(), b"own\n")
        self.addCleanup(self.server.send_signal, signal.SIGCONT)
        self.inside = ["nsenter", f"--mount=/proc/{self.server.pid}/ns/mnt"]
        self.wait_until_mounted()

    def wait_until_mounted(self):
        with open(f"/proc/{self.server.pid}/mountinfo", "rb") as mounts:
            changed = select.poll()
            changed.register(mounts, select.POLLPRI)
            while f" {self.seen} ".encode() not in mounts.read():
                self.assertTrue(changed.poll(PATIENCE * 1000), self.server.poll())
                mounts.seek(0)

    def environment(self, extra=None):
        return super().environment({"CASEMATE_IMAGE_DIR": str(self.store), **(extra or {})})

    def run_inside(self, *argv, cwd=None, **how):
        if cwd is not None:  # of that name in there
            argv = ("sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv)
        return self.run_argv([*self.inside, *map(str, argv)], **how)

    def hang(self):
        """From now on nothing that asks the file system gets an answer."""
        self.server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.server.pid, os.WSTOPPED | os.WNOWAIT)


class ItWorks(Fuse):
    def test_iso_13_everything_of_a_run_may_lie_there(self):
        """ISO-13: the caller's directory and home, the program, files in and out, the state."""
        real = self.dir / "real"
        (real / "home").mkdir()
        (real / "in").write_text("given")
        (real / "program.py").write_text("open('o', 'w').write(open('in').read()); print('fine')")
        places = {"HOME": str(self.seen / "home"), "TMPDIR": str(self.seen)}
        for number, state in enumerate((self.state, self.seen / "state")):
            with self.subTest(state=state):
                result = self.run_inside(PROGRAM, "run", "--file", "in=in", "--output", "o", "--out-dir", f"out{number}",
                                         "program.py", cwd=self.seen, env={**places, "CASEMATE_STATE_DIR": str(state)})
                self.assertEqual((result.status, result.text, result.err), (0, "fine\n", "saved o\n"), result)
                self.assertEqual((real / f"out{number}/o").read_text(), "given")
        # One that is found again by what lies there.
        there = {"CASEMATE_STATE_DIR": str(self.seen / "state")}
        for reused in (False, True):
            result = self.run_inside(PROGRAM, "run", "--json", "--keep", "--thread", "t", self.seen / "program.py",
                                     "--file", f"in={self.seen}/in", env=there)
            self.assertEqual((result.status, result.json["sandbox"]["reused"]), (0, reused), result)
        self.assertEqual(self.run_inside(PROGRAM, "rm", "--all", env=there).text, "removed 1\n")

    def test_iso_13_images_and_their_store_may_lie_there(self):
        """ISO-13."""
        root = self.dir / "real/root"
        make_root(root)
        image = Image([tar_of(lambda tar: tar.add(root, arcname="."))])
        image.write_layout(self.dir / "real/layout")
        image.write_archive(self.dir / "real/image.tar")
        program = self.write("program.py", "print(open('/etc/mark').read())")
        store = {"CASEMATE_IMAGE_DIR": str(self.seen / "images")}
        for reference in (f"dir:{self.seen}/root", f"oci:{self.seen}/layout", f"docker-archive:{self.seen}/image.tar"):
            with self.subTest(reference=reference):
                result = self.run_inside(PROGRAM, "run", "--image", reference, program, env=store)
                self.assertEqual((result.status, result.text, result.err), (0, "of the image\n", ""), result)
        listed = self.run_inside(PROGRAM, "image", "ls", "--json", env=store).json
        self.assertEqual([(each["id"], each["in_use"]) for each in listed], [(image.id, False)])
        self.assertEqual(self.run_inside(PROGRAM, "image", "rm", "--unused", env=store).text, "removed 1\n")

    def test_iso_13_one_that_ended_is_told_in_one_line(self):
        """ISO-13: its server is gone, and every call there fails."""
        Image([tar_of(lambda tar: tar_file(tar, "x", b"x"))]).write_layout(self.dir / "real/layout")
        program = self.write("program.py", "print('fine')")
        # Keeps the mounts.
        keeper = self.start([*self.inside, "sh", "-c", "echo in && exec sleep 1000"])
        self.assertEqual(keeper.stdout.readline(), b"in\n")
        self.inside = ["nsenter", f"--mount=/proc/{keeper.pid}/ns/mnt"]
        self.server.kill()
        self.server.wait()
        for reference in (f"dir:{self.seen}", f"oci:{self.seen}/layout"):
            result = self.run_inside(PROGRAM, "run", "--image", reference, program)
            self.assertRefused(result, "SandboxImageInvalid", "Transport endpoint is not connected")
            self.assertEqual(len(result.err.splitlines()), 1, result)
        # What cannot be read there might have been a setting.
        result = self.run_inside(PROGRAM, "run", program, env={"HOME": str(self.seen)})
        self.assertRefused(result, "ConfigInvalid", str(self.seen), "Transport endpoint is not connected")


class ItHangs(Fuse):
    def test_iso_13_whoever_touches_it_waits_alone(self):
        """ISO-13: an import of the very image, and a run in the same state, are served meanwhile."""
        image = Image([tar_of(lambda tar: tar_file(tar, "x", b"x"))])
        image.write_layout(self.dir / "real/layout")
        healthy = image.write_layout(self.dir / "layout")
        program = self.write("program.py", "print('fine')")
        self.hang()
        # The search for leaks would wait for the thread that nobody can stop.
        no_search = {"ASAN_OPTIONS": "detect_leaks=0"}
        waiting = [self.start([*self.inside, PROGRAM, *words], env=no_search) for words in (
            ("image", "import", f"oci:{self.seen}/layout"), ("run", "--image", f"dir:{self.seen}/root", program))]
        result = self.run_inside(PROGRAM, "image", "import", healthy)
        self.assertEqual((result.status, result.text), (0, image.id + "\n"), result)
        self.assertIn(image.id[:19], self.run_inside(PROGRAM, "image", "ls").text)
        result = self.run_inside(PROGRAM, "run", program, cwd=self.dir)
        self.assertEqual((result.status, result.text, result.err), (0, "fine\n", ""), result)
        for process in waiting:
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 143, error)
            self.assertIn(b"SandboxCancelled", error)
            self.assertIn(str(self.seen).encode(), error)

    def test_iso_13_a_program_in_it_is_stopped_in_time(self):
        """ISO-13: its image hangs while it runs."""
        make_root(self.dir / "real/root")
        program = ("import sys\nprint('up', flush=True)\nsys.stdin.read()\nprint(open('/srv/data/deep/mark').read())\n"
                   "print('never', flush=True)")
        process = self.start([*self.inside, *self.argv("--stdin", "--timeout", "8", "--image", f"dir:{self.seen}/root",
                                                       program=program)], stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"up\n")
        self.hang()
        out, error = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, out), (124, b""), error)
        self.assertEqual(self.run_inside(PROGRAM, "ls", "--json").text, "[]\n")


if __name__ == "__main__":
    unittest.main()
