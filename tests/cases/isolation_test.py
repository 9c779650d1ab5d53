"""ISO: what a program cannot see, reach or undo, and what a host may look like around it."""

import json
import os
import random
import shutil
import tempfile
import unittest
from pathlib import Path

from harness import NEEDS_ROOT, PROGRAM, Case


class Isolation(Case):
    def test_iso_01_nothing_of_the_callers_environment_is_inside(self):
        """ISO-01."""
        result = self.run_program("import glob, os\nprint(sorted(os.environ))\n"
                                  "for path in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):\n"
                                  "    try: print(open(path, 'rb').read())\n"
                                  "    except OSError as e: print(e.strerror)\n",
                                  env={"CANARY_TOKEN": "s3cr3t-77", "DATABASE_URL": "s3cr3t-77", "LANG": "s3cr3t-77"})
        self.assertEqual(result.status, 0, result)
        self.assertNotIn("s3cr3t-77", result.text)

    def test_iso_03_no_magic_link_is_opened_for_the_program(self):
        """ISO-03."""
        for name in ("/proc/self/environ", "/proc/thread-self/root/etc/hostname", "/proc/self/cwd/x", "/dev/fd/3", "/dev/stdin"):
            self.write("in", "x")
            for options in (("--file", f"{name}={self.dir}/in"), ("--output", name, "--out-dir", self.out)):
                with self.subTest(name=name, option=options[0]):
                    result = self.run_program("print(1)", *options)
                    self.assertEqual((result.status, result.text), (125, ""), result)
        # The same by a link that the program made.
        for target in ("/proc/self/environ", "/proc/self/fd/0", "/dev/stdin", "/proc/1/root/etc/hostname"):
            with self.subTest(target=target):
                result = self.run_program(f"import os; os.symlink({target!r}, 'out')", "--output", "out", "--out-dir", self.out)
                self.assertEqual(result.status, 125, result)
                self.assertFalse((self.out / "out").exists())

    def test_iso_11_nothing_is_written_on_the_host(self):
        """ISO-11."""
        name = f"casemate-canary-{os.getpid()}-{random.randrange(1 << 60)}"
        result = self.run_program(f"import glob\nfor d in ['/', '/tmp', '/var/tmp', '/dev/shm', '/home/user', '..', '.', *glob.glob('/home/*')]:\n"
                                  f"    try: open(d + '/{name}', 'w').close()\n"
                                  f"    except OSError: pass\n")
        self.assertEqual(result.status, 0, result)
        for folder in ("/", "/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/run", os.getcwd(), str(self.dir)):
            if os.access(folder, os.X_OK):
                self.assertFalse(Path(folder, name).exists(), folder)

    def test_iso_13_odd_surroundings_of_the_caller_break_nothing(self):
        """ISO-13: each run works, whatever the home, the directory, the mask and the temporary directory are."""
        home = self.dir / "home"
        home.mkdir()
        (home / ".profile").symlink_to("/nonexistent/other/tree")
        (home / ".cache").symlink_to(self.dir)
        locked = self.dir / "locked"
        locked.mkdir(mode=0o500)
        places = []
        for odd in ("with space", "with:colon,comma", "with\nnewline", "\u00fcml\u00e4ut"):
            places.append(self.dir / odd)
            places[-1].mkdir()
        long = tempfile.mkdtemp(prefix="l" * 120, dir=self.dir)
        cases = [{"env": {"HOME": str(home)}}, {"env": {"HOME": str(locked)}}, {"env": {"HOME": "/nonexistent"}}, {},
                 {"env": {"TMPDIR": "/nonexistent"}}, {"env": {"TMPDIR": long}}, {"cwd": "/"}, {"cwd": locked},
                 {"umask": 0o077}, {"umask": 0o000}, {"env": {"CASEMATE_STATE_DIR": long + "/state"}},
                 *({"cwd": place} for place in places)]
        for case in cases:
            with self.subTest(case=case):
                result = self.run_program("open('/tmp/x', 'w').write('x'); print(open('/tmp/x').read())", **case)
                self.assertEqual((result.status, result.text, result.err), (0, "x\n", ""), result)

    def test_iso_13_a_directory_that_is_gone_is_no_matter(self):
        """ISO-13."""
        gone = self.dir / "gone"
        gone.mkdir()
        argv = self.argv(program="print('fine')")
        result = self.run_argv(["sh", "-c", f"cd '{gone}' && rmdir '{gone}' && exec \"$0\" \"$@\"", *argv])
        self.assertEqual((result.status, result.text), (0, "fine\n"), result)

    @NEEDS_ROOT
    def test_iso_13_a_directory_of_another_user_or_of_layers_is_no_matter(self):
        """ISO-13: the caller's, and the state's."""
        layers = self.dir / "layers"
        layers.mkdir()
        # In a mount namespace of the test's own.
        prepare = (f"mount -t tmpfs none {layers} && mkdir {layers}/low {layers}/up {layers}/work {layers}/all && mount -t "
                   f"overlay none -o lowerdir={layers}/low,upperdir={layers}/up,workdir={layers}/work {layers}/all")
        argv = self.argv("--output", "o", "--out-dir", f"{layers}/all/out", program="open('o', 'w').write('x'); print('fine')")
        inside = f'{prepare} && cd {layers}/all && "$0" "$@" && cat {layers}/up/out/o'
        result = self.run_argv(["unshare", "--mount", "sh", "-c", inside, *argv],
                               env={"CASEMATE_STATE_DIR": f"{layers}/all/state"})
        self.assertEqual((result.status, result.text), (0, "fine\nx"), result)
        # Of root, and to be read and not written by whoever runs it.
        self.dir.chmod(0o755)
        program = self.write("program.py", "print('fine')")
        copied = self.dir / "casemate"
        shutil.copy(PROGRAM, copied)
        theirs = self.dir / "theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
        result = self.run_argv(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", copied, "run", program],
                               env={"CASEMATE_STATE_DIR": str(theirs / "state")}, cwd=self.dir)
        self.assertEqual((result.status, result.text), (0, "fine\n"), result)

    def test_iso_15_walking_round_the_language_meets_the_same_wall(self):
        """ISO-15: only the kernel's boundary counts, and it holds."""
        result = self.run_program(
            "for c in ().__class__.__base__.__subclasses__():\n"
            "    g = getattr(getattr(c, '__init__', None), '__globals__', None)\n"
            "    o = g['sys'].modules.get('os') if g and 'sys' in g else None\n"
            "    if o:\n"
            "        print(o.getuid(), o.popen('id -u; cat /etc/shadow 2>/dev/null; ls /root').read().split())\n"
            "        break\n")
        self.assertEqual((result.status, result.text), (0, "1000 ['1000']\n"), result)
        # Nothing that the command line offers has the language as its only fence.
        for backend in json.loads(self.run_argv([str(PROGRAM), "backends", "--json"]).text):
            self.assertNotIn(backend["isolation"], ("process", "runtime"), backend["name"])

    def test_iso_17_each_policy_refuses_before_anything_runs(self):
        """ISO-17."""
        self.write("big", b"x" * 2048)
        for options in (("--min-isolation", "microvm"), ("--deny-capability", "exec"), ("--allow", "*.com"),
                        ("--file", self.dir / "big", "--files-in-limit", "1K,8K,4"),
                        ("--files-out-limit", "1G,2G,4", "--output", "o", "--out-dir", self.out), ("--backend", "docker")):
            with self.subTest(options=options):
                for check in ((), ("--check",)):
                    result = self.run_program("print('ran')", *options, *check)
                    self.assertEqual((result.status, result.text), (125, ""), result)
                    self.assertIn("casemate: error: ", result.err)

    def test_iso_19_rights_are_gone_and_probes_are_answered(self):
        """ISO-19."""
        result = self.run_program(
            "import ctypes, errno, os\n"
            "print([line.split() for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:'))])\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "print(sorted({errno.errorcode[(libc.syscall(ctypes.c_long(n), *[ctypes.c_long(x) for x in a]), ctypes.get_errno())[1]]\n"
            "    for n, a in ((272, (0x50000000,)), (165, (0,) * 5), (101, (0,) * 4), (250, (0,) * 3), (321, (0,) * 3), (425, (0, 0)),\n"
            "                 (298, (0,) * 5), (135, (0x0400000,)))}))\n")
        self.assertEqual(result.status, 0, result)
        none = "0" * 16
        self.assertEqual(result.text.splitlines(), [
            str([["CapEff:", none], ["CapBnd:", none], ["NoNewPrivs:", "1"], ["Seccomp:", "2"]]), "['ENOSYS', 'EPERM']"])


if __name__ == "__main__":
    unittest.main()
