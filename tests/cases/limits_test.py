"""RL: limits bite where they should, say so, and leave honest programs and other sandboxes alone."""

import os
import subprocess
import unittest

from harness import NEEDS_GROUPS, Case, may_make_groups

EAT = "b = bytearray()\nwhile True: b += b'x' * (1 << 20)\n"


class Limits(Case):
    def test_rl_02_what_ordinary_programs_need_is_within_the_defaults(self):
        """RL-02."""
        result = self.run_json(
            "import mmap, multiprocessing, subprocess, tempfile, threading\n"
            "if __name__ == '__main__':\n"
            "    assert subprocess.run(['true']).returncode == 0\n"
            "    threads = [threading.Thread(target=lambda: None) for _ in range(32)]\n"
            "    [t.start() for t in threads]; [t.join() for t in threads]\n"
            "    with multiprocessing.Pool(4) as pool: assert pool.map(abs, [-1]) == [1]\n"
            "    held = [tempfile.TemporaryFile() for _ in range(200)]\n"
            "    mmap.mmap(-1, 1 << 30, prot=0)\n"
            "    print('fine')\n")
        self.assertEqual((result.status, result.json["stdout"], result.json["limit"]), (0, "fine\n", None), result)

    @NEEDS_GROUPS
    def test_rl_04_out_of_memory_is_named_for_the_program_and_for_a_child(self):
        """RL-04."""
        result = self.run_json(EAT, "--memory", "64M", "--disk", "1M")
        self.assertEqual((result.status, result.json["status"], result.json["limit"]), (137, "out_of_memory", "memory"))
        child = self.run_json(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {EAT!r}])\nprint('lives')\n",
                              "--memory", "64M", "--disk", "1M")
        self.assertEqual((child.status, child.json["status"], child.json["stdout"]), (0, "exited", "lives\n"), child)
        self.assertEqual(child.json["limit"], "memory")
        self.assertIn("memory", child.err)

    def test_rl_06_a_limit_that_is_not_held_is_never_quiet(self):
        """RL-06: where this user may make no control groups."""
        if os.geteuid() == 0:
            hidden = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=4k none /sys/fs/cgroup && exec \"$0\" \"$@\""]
            why = "something is mounted over"
        elif may_make_groups():
            self.skipTest("needs root: to take the control groups away from a run")
        else:
            hidden, why = [], "this user"
        result = self.run_argv([*hidden, *self.argv("--json", program="print('ran')")])
        self.assertEqual((result.status, result.json["stdout"]), (0, "ran\n"), result)
        self.assertEqual(result.json["limits_not_held"], ["memory", "cpu"])
        for option in (("--memory", "64M"), ("--cpus", "0.5")):
            refused = self.run_argv([*hidden, *self.argv(*option, program="print('ran')")])
            # With the reason, and where to ask for the rest.
            self.assertRefused(refused, "SandboxLimitNotEnforceable", option[0][2:5], why,
                               "`casemate doctor`")

    def test_a_size_above_what_the_machine_has_is_refused_with_the_number(self):
        # Where nobody counts memory, no size of it is held.
        for option in ("--memory", "--disk") if os.geteuid() == 0 else ("--disk",):
            refused = self.run_argv(self.argv(option, "1000000G", program="print(1)"))
            self.assertRefused(refused, "SandboxLimitNotEnforceable", "1073741824000000 bytes", "memory and swap",
                               "give at most ")

    def test_rl_08_every_writable_place_runs_full_and_the_program_lives(self):
        """RL-08."""
        result = self.run_json("import errno\n"
                               "for d in ('.', '/tmp', '/dev/shm', '/var/tmp', '/run'):\n"
                               "    try:\n"
                               "        with open(d + '/fill', 'wb', buffering=0) as f:\n"
                               "            for i in range(1 << 14): f.write(b'x' * (1 << 20))\n"
                               "        print(d, 'unlimited?')\n"
                               "    except OSError as e: print(d, errno.errorcode[e.errno])\n", "--disk", "16M")
        self.assertEqual(result.json["stdout"], ". ENOSPC\n/tmp ENOSPC\n/dev/shm ENOSPC\n/var/tmp ENOSPC\n/run EROFS\n")
        self.assertEqual(result.status, 0, result)

    def test_what_does_not_fit_into_the_disk_bound_is_refused_with_the_option(self):
        big = self.write("big", b"#" * 3_000_000)
        for how in ({"program": b"#" * 3_000_000}, {"program": "print(1)", "options": ("--file", f"big={big}")}):
            refused = self.run_argv(self.argv("--disk", "1M", *how.get("options", ()), program=how["program"]))
            self.assertRefused(refused, "SandboxFileError", "No space left", "raise --disk")
            self.assertNotIn("--file NAME=PATH", refused.err)

    def test_files_that_ran_out_are_named_and_not_the_bytes(self):
        result = self.run_json("for i in range(70000): open(f'/tmp/{i}', 'w').close()")
        self.assertEqual((result.status, result.json["limit"]), (1, "disk"), result)
        self.assertIn("limit of 65536 files and directories", result.err)

    def test_rl_10_a_full_sandbox_disturbs_no_other_and_not_us(self):
        """RL-10."""
        full = self.start(self.argv("--stdin", "--disk", "8M", program="import sys\n"
                                    "for d in ('/tmp', '/dev/shm', '/home/user', '/workspace'):\n"
                                    "    try:\n"
                                    "        with open(d + '/fill', 'wb', buffering=0) as f:\n"
                                    "            while True: f.write(b'x' * (1 << 20))\n"
                                    "    except OSError: pass\n"
                                    "print('full', flush=True); sys.stdin.read()\n"), stdin=subprocess.PIPE)
        self.assertEqual(full.stdout.readline(), b"full\n")
        self.write("in.bin", b"y" * (1 << 20))
        other = self.run_program("import shutil; shutil.copy('in.bin', 'out.bin'); open('/tmp/own', 'wb').write(b'z' * (4 << 20))",
                                 "--file", self.dir / "in.bin", "--output", "out.bin", "--out-dir", self.out)
        self.assertEqual(other.status, 0, other)
        self.assertEqual((self.out / "out.bin").stat().st_size, 1 << 20)
        full.stdin.close()
        full.stdin = None
        self.assertEqual(self.finish(full, 0).status, 0)

    def test_rl_12_a_file_size_limit_of_the_programs_own_is_an_error_or_named(self):
        """RL-12: there is none of ours below the quota."""
        limit = "import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        write = "open('big', 'wb', buffering=0).write(b'x' * (1 << 20) + b'y'); open('big', 'ab', buffering=0).write(b'z')\n"
        caught = self.run_json(limit + "import errno\ntry:\n    " + write + "except OSError as e: print(errno.errorcode[e.errno])\n")
        self.assertEqual((caught.status, caught.json["stdout"]), (0, "EFBIG\n"), caught)
        killed = self.run_json(limit + "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n" + write)
        self.assertEqual((killed.status, killed.json["status"], killed.json["signal"]), (128 + 25, "signaled", "SIGXFSZ"))
        self.assertIn("file", killed.err)


if __name__ == "__main__":
    unittest.main()
