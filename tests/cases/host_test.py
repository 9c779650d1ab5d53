"""What the caller of `casemate run` runs under: its limits, its policies, its namespaces."""

import re
import resource
import unittest
from pathlib import Path

from harness import Case, NEEDS_GROUPS, NEEDS_ROOT, SANITIZED

MIB = 1024 * 1024

# CAP_SYS_RESOURCE (24), which root of a container often lacks.
MAY_RAISE_LIMITS = int(re.search(r"CapEff:\s*(\S+)", Path("/proc/self/status").read_text())[1], 16) >> 24 & 1

# Everything that a process passes on and that could bite or change a program.
PRINT_BOUNDS = """
import os, resource
for name in sorted(name for name in dir(resource) if name.startswith("RLIMIT_")):
    print(name, *resource.getrlimit(getattr(resource, name)))
print("personality", open("/proc/self/personality").read().strip())
print("policy", os.sched_getscheduler(0))
"""


class Inherited(Case):
    def test_a_programs_bounds_do_not_depend_on_the_callers(self):
        bounds = self.run_program(PRINT_BOUNDS)
        self.assertEqual((bounds.status, bounds.err), (0, ""), bounds)
        self.assertIn("RLIMIT_CPU -1 -1\n", bounds.text)
        self.assertIn(f"RLIMIT_STACK {8 * MIB} -1\n", bounds.text)
        self.assertIn("RLIMIT_NOFILE 1024 1024\n", bounds.text)
        self.assertIn("personality 00000000\npolicy 0\n", bounds.text)

        def lower():
            for name, value in (("CPU", 60), ("FSIZE", 64 * MIB), ("DATA", 512 * MIB), ("AS", 2048 * MIB),
                                ("STACK", MIB), ("MEMLOCK", 4096), ("NOFILE", 128), ("SIGPENDING", 16),
                                ("MSGQUEUE", 0), ("CORE", MIB)):
                if name in ("AS", "DATA") and SANITIZED:
                    continue
                number = getattr(resource, "RLIMIT_" + name)
                hard = value if MAY_RAISE_LIMITS else resource.getrlimit(number)[1]
                resource.setrlimit(number, (value, hard))

        lowered = self.run_argv(["setarch", "-R", *self.argv(program=PRINT_BOUNDS)], preexec_fn=lower)
        self.assertEqual((lowered.status, lowered.err), (0, ""), lowered)
        self.assertEqual(lowered.text, bounds.text)

    @NEEDS_ROOT
    def test_a_caller_under_a_real_time_policy_gets_an_ordinary_program(self):
        if self.run_argv(["chrt", "-f", "1", "true"]).status != 0:
            self.skipTest("this machine's control groups leave no time to real-time policies")
        result = self.run_argv(["chrt", "-f", "1", *self.argv(program=PRINT_BOUNDS)])
        self.assertEqual((result.status, result.err), (0, ""), result)
        self.assertIn("policy 0\n", result.text)

    def test_a_limit_on_file_sizes_is_told_and_never_kills(self):
        def limit_to(size):
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

        self.assertRefused(self.run_argv(self.argv(program="print(1)"), preexec_fn=limit_to(1024)),
                           "SandboxUnavailable", "File too large", "ulimit -f")
        # Enough for what we start, too little for our output and for what lands.
        program = "print('x' * 17000000); open('big', 'w').write('x' * 17000000)"
        with open(self.dir / "stdout", "wb") as stdout:
            self.assertRefused(self.run_argv(self.argv(program=program), preexec_fn=limit_to(16 * MIB), stdout=stdout),
                               "OutputFailed", "File too large")
        landing = self.argv("--output", "big", "--out-dir", self.out, "--files-out-limit", "32M,32M,1", program=program)
        self.assertRefused(self.run_argv(landing, preexec_fn=limit_to(16 * MIB)), "SandboxFileError", "File too large")
        self.assertNothingLanded()

    @unittest.skipIf(SANITIZED, "a sanitizer's own frames take more stack than that")
    def test_a_stack_of_64_kibibytes_is_enough(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_STACK, (64 * 1024, resource.getrlimit(resource.RLIMIT_STACK)[1]))

        program = "import sys; open('copy', 'w').write(open('given').read() + sys.stdin.read()); print('x' * 100000)"
        given = self.write("given", "g" * 100000)
        for form in ((), ("--json",)):
            with self.subTest(form=form):
                result = self.run_argv(
                    self.argv("--overwrite", "--stdin", "--file", given, "--output", "copy", "--out-dir", self.out,
                              *form, program=program), preexec_fn=lower)
                self.assertEqual(result.status, 0, result)
                self.assertEqual((self.out / "copy").stat().st_size, 100000)

    @NEEDS_GROUPS
    def test_a_default_that_the_caller_may_not_give_shows_as_not_held(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

        without = ["setpriv", "--inh-caps", "-sys_resource", "--bounding-set", "-sys_resource"]
        result = self.run_argv([*without, *self.argv("--json", program=PRINT_BOUNDS)], preexec_fn=lower)
        self.assertEqual(result.status, 0, result)
        self.assertIn("RLIMIT_NOFILE 128 128\n", result.json["stdout"])
        self.assertEqual(result.json["limits_not_held"], ["files"])
        if MAY_RAISE_LIMITS:
            result = self.run_argv(self.argv("--json", program=PRINT_BOUNDS), preexec_fn=lower)
            self.assertIn("RLIMIT_NOFILE 1024 1024\n", result.json["stdout"])
            self.assertEqual(result.json["limits_not_held"], [])


class Namespaces(Case):
    @NEEDS_ROOT
    def test_a_proc_of_the_outer_pid_namespace_serves(self):
        result = self.run_argv(["unshare", "--pid", "--fork", *self.argv(program="print(6 * 7)")])
        self.assertEqual((result.status, result.text, result.err), (0, "42\n", ""), result)

    # EX-15
    @NEEDS_ROOT
    def test_a_bound_holds_where_the_caller_is_the_init_of_a_container(self):
        result = self.run_argv(["unshare", "--pid", "--fork", "--mount-proc", "--mount", "--kill-child",
                                *self.argv("--timeout", "2", program="while True: pass")])
        self.assertEqual((result.status, result.text), (124, ""), result)
        self.assertEqual([name for name in ("sandboxes", "new", "trash") if list((self.state / name).iterdir())], [])

    @NEEDS_ROOT
    @unittest.skipIf(SANITIZED, "a sanitizer needs a /proc of its own before the program begins")
    def test_a_proc_that_does_not_have_the_caller_is_named(self):
        # A /proc of a pid namespace below the caller's has no entry for the caller's children.
        line = 'unshare --pid --fork mount -t proc proc /proc && exec "$0" "$@"'
        result = self.run_argv(["unshare", "--mount", "sh", "-c", line, *self.argv(program="")])
        self.assertEqual(result.status, 125, result)
        self.assertIn("/proc", result.err)


if __name__ == "__main__":
    unittest.main()
