"""Where state and images lie: places that a keeper covers in its own mounts, or that somebody covers later."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import NEEDS_ROOT, PATIENCE, PROGRAM, Case, processes
from images_test import make_root

SHARED_MEMORY = Path("/dev/shm")


class InSharedMemory(Case):
    def setUp(self):
        super().setUp()
        try:
            self.place = Path(tempfile.mkdtemp(prefix="casemate-case-", dir=SHARED_MEMORY))
        except OSError as error:
            self.skipTest(f"no directory may be made in {SHARED_MEMORY} here: {error}")
        self.addCleanup(shutil.rmtree, self.place)
        self.state = self.place / "state"

    def test_state_may_lie_there(self):
        result = self.run_program("print(1)", "-v")
        self.assertEqual((result.status, result.text), (0, "1\n"), result)
        self.assertNotIn("casemate: error", result.err)

    def test_what_a_killed_host_left_is_ended(self):
        process = self.start(self.argv(program="import time; print('up', flush=True); time.sleep(1000)"))
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.kill()
        process.wait()
        self.nothing_is_left_in_the_state_root()

    def test_an_image_may_lie_there(self):
        make_root(self.place / "root")
        result = self.run_program("print(open('/etc/mark').read())", "--image", f"dir:{self.place}/root")
        self.assertEqual((result.status, result.text, result.err), (0, "of the image\n", ""), result)


@NEEDS_ROOT
class WithoutTerminals(Case):
    def test_a_machine_without_dev_pts_serves(self):
        make = ("mount -t tmpfs none /dev && mknod /dev/null c 1 3 && chmod 666 /dev/null && mknod /dev/urandom c 1 9"
                ' && test ! -e /dev/pts && exec "$0" "$@"')
        result = self.run_argv(["unshare", "--mount", "sh", "-c", make,
                                *self.argv("-v", program="import os; print(sorted(os.listdir('/dev'))[:3])")])
        self.assertEqual((result.status, result.text), (0, "['fd', 'full', 'null']\n"), result)
        self.assertNotIn("casemate: error", result.err)


@NEEDS_ROOT
@unittest.skipIf(shutil.which("runsc") is None, "no runsc here (scripts/bootstrap engines)")
class RuntimeBelowRun(Case):
    def test_a_link_there_serves(self):
        make = 'mount -t tmpfs none /run && ln -s "$0" /run/runsc && exec "$@"'
        result = self.run_argv(["unshare", "--mount", "sh", "-c", make, shutil.which("runsc"),
                                *self.argv("--backend", "oci", program="print(1)")],
                               env={"CASEMATE_OCI_RUNTIME": "/run/runsc"})
        self.assertEqual((result.status, result.text), (0, "1\n"), result)


@NEEDS_ROOT
class Covered(Case):
    def test_a_sandbox_whose_place_was_covered_ends_with_its_keeper(self):
        """What is mounted over the state comes to the keeper, too."""
        mounts = self.start(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                             "mount --make-rshared / && echo own && exec sleep 1000"])
        self.assertEqual(mounts.stdout.readline(), b"own\n")
        inside = ["nsenter", f"--mount=/proc/{mounts.pid}/ns/mnt"]
        kept = self.run_argv(inside + self.argv("--keep", "--thread", "t", "--idle-ttl", "1", program="print(1)"))
        self.assertEqual((kept.status, kept.text), (0, "1\n"), kept)
        [sandbox] = (self.state / "sandboxes").iterdir()
        [keeper] = [process for process in processes() if self.keeps(process.pid, sandbox)]
        subprocess.run([*inside, "mount", "-t", "tmpfs", "none", self.state], check=True, timeout=PATIENCE)
        self.wait_until(lambda: not sandbox.exists(), "the sandbox's end")
        self.wait_until(lambda: keeper not in processes(), "the keeper's end")

    @staticmethod
    def keeps(pid, sandbox):
        try:
            return (Path(f"/proc/{pid}/comm").read_text() == "casemate-keeper\n" and
                    any(os.readlink(each) == str(sandbox) for each in Path(f"/proc/{pid}/fd").iterdir()))
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
