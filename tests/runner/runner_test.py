"""scripts/run_tests counts what happened, above all what went wrong without saying so."""

import os
import signal
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Stands in for a GoogleTest program: writes a report and ends as told.
PROGRAM = """\
#!/bin/sh
report=${1#--gtest_output=xml:}
cat >"$report" <<'XML'
<testsuites><testsuite name="S">%s</testsuite></testsuites>
XML
%s
"""
PASS = '<testcase name="Passes" classname="S" status="run"/>'
FAIL = '<testcase name="Fails" classname="S" status="run"><failure message="why"/></testcase>'
SKIP = ('<testcase name="Skips" classname="S" status="run">'
        '<skipped message="a.cc:2&#x0A;needs a kernel"/></testcase>')
DISABLED = '<testcase name="DISABLED_x" classname="S" status="notrun"/>'


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        self.manifest = []

    def add(self, text, kind="gtest", reason=""):
        name = f"p{len(self.manifest)}"
        path = self.build / (name if kind == "gtest" else f"{name}_test.py")
        path.write_text(text)
        path.chmod(0o755)
        self.manifest.append("\t".join((kind, name, "unit", str(path), reason)))

    def run_all(self, *options, ignoring=()):
        """(exit status, last line, whole output)"""
        (self.build / "tests.manifest").write_text("".join(f"{m}\n" for m in self.manifest))
        done = subprocess.run(["/usr/bin/python3", ROOT / "scripts/run_tests", self.build, *options],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN)
                                                  for number in ignoring])
        return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_adds_up_programs_and_lists_skips_with_reasons(self):
        self.add(PROGRAM % (PASS + SKIP, "exit 0"))
        self.add(PROGRAM % (PASS + DISABLED, "exit 0"))
        self.add("", reason="not in this build")
        status, last, output = self.run_all()
        self.assertEqual((status, last), (0, "2 passed, 0 failed, 3 skipped"))
        for line in ("p0: S.Skips: needs a kernel", "p1: S.DISABLED_x: disabled in its source",
                     "p2: not in this build"):
            self.assertIn(line, output)

    def test_a_failed_test_fails_the_run_and_says_why(self):
        self.add(PROGRAM % (PASS + FAIL, "exit 1"))
        status, last, output = self.run_all()
        self.assertEqual((status, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("p0: S.Fails: why", output)

    def test_a_crash_counts_even_when_a_report_was_written(self):
        self.add(PROGRAM % (PASS, "kill -SEGV $$"))
        self.add("#!/bin/sh\nkill -ABRT $$\n")
        self.add("#!/bin/sh\nexit 0\n")
        status, last, output = self.run_all()
        self.assertEqual((status, last), (1, "1 passed, 3 failed, 0 skipped"))
        for line in ("p0: died of SIGSEGV", "p1: died of SIGABRT without a report",
                     "p2: exited with 0 without a report"):
            self.assertIn(line, output)

    def test_a_bad_exit_after_good_tests_counts(self):
        """A leak found by a sanitizer after the last test shows only there."""
        self.add(PROGRAM % (PASS, "exit 23"))
        self.assertEqual(self.run_all()[:2], (1, "1 passed, 1 failed, 0 skipped"))

    def test_the_list_at_the_end_has_what_a_failure_said(self):
        """What stood above may be cut from the output of a long run."""
        self.add("#!/bin/sh\necho '[ RUN      ] S.Dies'; echo before; "
                 "echo '==7==ERROR: AddressSanitizer: heap-use-after-free'; echo '#0 in f a.cc:3'; exit 1\n")
        self.add(PROGRAM % (FAIL.replace("why", "a.cc:3&#x0A;Expected: 1&#x0A;  Actual: 2"), "exit 1"))
        listed = self.run_all()[2].split("Failed:")[-1]
        for line in ("p0: exited with 1 without a report", "in S.Dies", "heap-use-after-free",
                     "in f a.cc:3", "p1: S.Fails: a.cc:3", "Expected: 1", "  Actual: 2"):
            self.assertIn(line, listed)
        self.assertNotIn("before", listed)

    def test_a_run_of_no_test_fails(self):
        self.assertEqual(self.run_all()[0], 1)
        self.add(PROGRAM % (SKIP, "exit 0"))
        status, last, _ = self.run_all()
        self.assertEqual((status, last), (1, "0 passed, 0 failed, 1 skipped"))

    def test_python_tests_count_by_method_and_failed_set_up_shows(self):
        self.add(kind="python", text=textwrap.dedent("""\
            import unittest
            class A(unittest.TestCase):
                def test_passes(self): pass
                def test_skips(self): self.skipTest("needs an engine")
                def test_parts(self):
                    for i in range(3):
                        with self.subTest(i=i): self.assertNotEqual(i, 1)
            class B(unittest.TestCase):
                @classmethod
                def setUpClass(cls): raise ValueError("no place")
                def test_never_runs(self): pass
            """))
        self.add(kind="python", text="")
        self.add(kind="python", text="import no_such_module")
        status, last, output = self.run_all()
        self.assertEqual((status, last), (1, "1 passed, 4 failed, 1 skipped"))
        for line in ("needs an engine", "ValueError: no place", "p1: exited with 1 without a report",
                     "no_such_module"):
            self.assertIn(line, output)

    def test_signals_that_our_caller_ignores_are_not_ignored_in_tests(self):
        """As under nohup and in a shell's background."""
        ignored = (signal.SIGINT, signal.SIGHUP)
        for number in ignored:
            self.add(PROGRAM % (PASS, f"kill -{int(number)} $$"))
        output = self.run_all(ignoring=ignored)[2]
        self.assertIn("p0: died of SIGINT", output)
        self.assertIn("p1: died of SIGHUP", output)

    def test_programs_run_side_by_side_as_many_as_asked(self):
        """Each opens one end of a pipe, and its open waits for the other's."""
        os.mkfifo(self.build / "fifo")
        self.add(PROGRAM % (PASS, f": <{self.build}/fifo"))
        self.add(PROGRAM % (PASS, f": >{self.build}/fifo"))
        self.assertEqual(self.run_all("--jobs", "2")[:2], (0, "2 passed, 0 failed, 0 skipped"))
        status, _, output = self.run_all("--jobs", "0")
        self.assertEqual(status, 2)
        self.assertIn("--jobs 0", output)

    def test_a_signal_that_ends_the_run_ends_its_programs(self):
        """The program holds the write end of a pipe; that it closes is its end."""
        os.mkfifo(self.build / "fifo")
        self.add(f"#!/bin/sh\nexec 1>{self.build}/fifo; echo begun; sleep 600 & sleep 600\n")
        (self.build / "tests.manifest").write_text("".join(f"{m}\n" for m in self.manifest))
        with subprocess.Popen(["/usr/bin/python3", ROOT / "scripts/run_tests", self.build],
                              stdout=subprocess.DEVNULL) as run:
            with open(self.build / "fifo", "rb") as fifo:
                self.assertEqual(fifo.readline(), b"begun\n")
                run.terminate()
                self.assertEqual(fifo.read(), b"")
            self.assertEqual(run.wait(), 128 + signal.SIGTERM)

    def test_only_chooses_by_name(self):
        self.add(PROGRAM % (PASS, "exit 0"))
        self.add(PROGRAM % (FAIL, "exit 1"))
        self.assertEqual(self.run_all("--only", "p0")[:2], (0, "1 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
