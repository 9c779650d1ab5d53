"""Cases EX: time limits, process trees, streams at the end."""

import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from harness import Case, NEEDS_GROUPS, NEEDS_ROOT, PRINT_NAMESPACE, SOAK, cgroups_of, processes, processes_in


class Exec(Case):
    def test_EX_01_timeout_ends_the_descendants(self):
        """EX-01"""
        result = self.run_program(PRINT_NAMESPACE + '''
import subprocess, time
subprocess.Popen(["sh", "-c", "sleep 1000; echo late > late.txt"])
print("started", flush=True)
time.sleep(1000)
''', "--timeout", "3")
        self.assertEqual(result.status, 124, result)
        self.assertIn("timed out", result.err)
        namespace, started = result.text.splitlines()
        self.assertEqual(started, "started")
        # Who could write late.txt is gone, and the directory it would lie in went with the call.
        self.assertNothingRuns(namespace)

    def test_EX_03_a_program_that_ignores_signals_is_killed(self):
        """EX-03"""
        result = self.run_json('''
import signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, signal.SIG_IGN)
while True:
    time.sleep(0.1)
''', "--timeout", "1")
        self.assertEqual(result.status, 124, result)
        self.assertEqual(result.json["status"], "timed_out")

    def test_EX_05_the_last_bytes_before_the_exit_arrive(self):
        """EX-05: 200 times"""
        program = '''
import os, subprocess
subprocess.Popen(["sleep", "1000"])
data = b"".join(b"%06d\\n" % i for i in range(9000))
os.write(1, data)
os._exit(0)
'''
        argv = self.argv(program=program)
        expected = b"".join(b"%06d\n" % i for i in range(9000))
        for _ in range(200):
            result = self.run_argv(argv)
            self.assertEqual((result.status, len(result.out)), (0, len(expected)), result.err)
            self.assertEqual(result.out, expected)

    def test_EX_07_what_was_printed_before_the_timeout_is_kept(self):
        """EX-07"""
        path = self.write("stepping.py", 'import time\nprint("step 1 ok")\ntime.sleep(1000)\n')
        both = [self.start(self.argv(*form, "--timeout", "3", path)) for form in (["--json"], [])]
        result, plain = (self.finish(each, time.monotonic()) for each in both)
        self.assertEqual(result.status, 124, result)
        self.assertEqual(result.json["stdout"], "step 1 ok\n")
        self.assertEqual(result.json["status"], "timed_out")
        self.assertEqual(result.json["limit"], "time")
        self.assertIsNone(result.json["exit_code"])
        self.assertIsNone(result.json["signal"])
        self.assertEqual((plain.status, plain.out), (124, b"step 1 ok\n"), plain)
        self.assertIn("timed out", plain.err)

    @NEEDS_ROOT
    def test_EX_07_what_was_printed_before_the_sandbox_was_lost_is_kept(self):
        """EX-07: the init of the program's processes is killed from outside"""
        name = f"case-{os.getpid()}"
        # So much does not fit between the program and the host: when it is written, "pre" has arrived.
        program = f'''
import ctypes, sys, time
print("pre", file=sys.stderr, flush=True)
sys.stdout.write("x" * 4_000_000)
sys.stdout.flush()
ctypes.CDLL(None).prctl(15, b"{name}")
time.sleep(1000)
'''
        started = time.monotonic()
        process = self.start(self.argv("--json", program=program))
        os.kill(self.wait_for_init_of(name), signal.SIGKILL)
        result = self.finish(process, started)
        self.assertEqual((result.status, result.json["status"]), (125, "failed"), result)
        self.assertEqual(result.json["stderr"], "pre\n")
        self.assertEqual(result.json["stdout"].strip("x"), "")
        self.assertGreater(len(result.json["stdout"]), 3_000_000)
        self.assertEqual((result.json["stdout_truncated_bytes"], result.json["stderr_truncated_bytes"]), (0, 0))
        self.assertRegex(result.json["sandbox"]["id"], r"\A[0-9a-f]+\Z")
        self.assertEqual(result.json["error"]["code"], "SandboxUnavailable")

    def wait_for_init_of(self, name):
        """The pid, seen from here, of process 1 in the process-id namespace of the process called so."""
        def lines(entry):
            try:
                return dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines() if ":\t" in line)
            except OSError:
                return {}
        found = []
        self.wait_until(lambda: found.extend(entry for entry in Path("/proc").glob("[0-9]*")
                                             if lines(entry).get("Name") == name) or found, f"a process called {name}")
        (init,) = [process.pid for process in processes(os.readlink(found[0] / "ns/pid"))
                   if lines(Path(f"/proc/{process.pid}"))["NSpid"].split()[-1] == "1"]
        return init

    def test_EX_09_the_limit_that_was_set_is_the_limit(self):
        """EX-09: a short one wins, also where files are collected"""
        path = self.write("long.py", "import time; time.sleep(1000)")
        open_runs = [(road, time.monotonic(), self.start(self.argv("--timeout", "2", *road, path)))
                     for road in ((), ("--output", "x", "--out-dir", self.out), ("--json",))]
        for road, started, process in open_runs:
            with self.subTest(road=road):
                result = self.finish(process, started)
                self.assertEqual(result.status, 124, result)
                self.assertGreaterEqual(result.seconds, 2)

    def test_EX_09_a_fraction_of_a_second_is_a_limit(self):
        """EX-09"""
        result = self.run_program("import time; time.sleep(1000)", "--timeout", "0.25")
        self.assertEqual(result.status, 124, result)

    def test_EX_09_a_long_limit_is_not_cut_short(self):
        """EX-09: no default of 30 or 60 seconds wins over a longer one"""
        if not SOAK:
            self.skipTest("takes 65 s; set CASEMATE_SOAK=1")
        open_runs = []
        for name, road in (("plain", ()), ("files", ("--output", "x", "--out-dir", self.out))):
            path = self.write(f"{name}.py", 'import time; time.sleep(65); open("x", "w"); print("done")')
            open_runs.append((self.start(self.argv("--timeout", "75", *road, path)), time.monotonic()))
        for process, started in open_runs:
            result = self.finish(process, started)
            self.assertEqual((result.status, result.out), (0, b"done\n"), result)

    def test_EX_11_an_open_input_does_not_hold_the_call(self):
        """EX-11: standard input is not forwarded unless asked for"""
        for options in ((), ("--timeout", "1000"), ("--stdin",)):
            with self.subTest(options=options):
                feeder = subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE)
                try:
                    result = self.run_program('print("hello")', *options, stdin=feeder.stdout)
                    self.assertEqual((result.status, result.out), (0, b"hello\n"), result)
                finally:
                    feeder.kill()
                    feeder.wait()
                    feeder.stdout.close()

    def test_EX_11_the_limit_fires_while_the_program_waits_for_input(self):
        """EX-11"""
        feeder = subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE)
        try:
            result = self.run_program("input()", "--stdin", "--timeout", "1", stdin=feeder.stdout)
            self.assertEqual(result.status, 124, result)
        finally:
            feeder.kill()
            feeder.wait()
            feeder.stdout.close()

    def test_input_reaches_the_program_only_when_asked_for(self):
        program = "import sys; data = sys.stdin.buffer.read(); print(len(data), data[-2:])"
        content = bytes(range(256)) * 20000
        source = self.write("input", content)
        for options, expected in (((), b"0 b''\n"), (("--stdin",), b"5120000 b'\\xfe\\xff'\n")):
            with open(source, "rb") as stdin:
                result = self.run_program(program, *options, stdin=stdin)
            self.assertEqual((result.status, result.out), (0, expected), result)
        process = self.start(self.argv("--stdin", program=program), stdin=subprocess.PIPE)
        out, err = process.communicate(content, timeout=60)
        self.assertEqual((process.returncode, out), (0, b"5120000 b'\\xfe\\xff'\n"), err)


class Looking(Case):
    def test_who_has_a_namespaces_number_later_is_not_taken_for_what_is_left_of_a_program(self):
        """What the tests here and elsewhere look with, at a number as it is used again."""
        process = self.start(self.argv(program=PRINT_NAMESPACE + "import time; time.sleep(1000)"))
        namespace, began = process.stdout.readline().decode().split()
        there = processes(namespace)
        self.assertEqual(sorted(processes_in(f"{namespace} {began}")), sorted(each.pid for each in there))
        self.assertEqual(processes_in(f"{namespace} {min(each.start for each in there) - 1}"), [])


class Hostile(Case):
    """Whatever a program does, the answer comes while it would last much longer, and complete, and nothing is left of it."""

    def end_of(self, program, *options, status=0):
        result = self.run_json(PRINT_NAMESPACE + program, *options)
        self.assertEqual(result.status, status, result)
        lines = result.json["stdout"].splitlines()
        self.assertNothingRuns(lines[0])
        self.assertEqual(cgroups_of(result.json["sandbox"]["id"]), [])
        return lines[1:]

    def test_a_daemon_ends_with_the_call(self):
        self.assertEqual(self.end_of('''
import os, time
read_end, write_end = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write_end, b"1")
        time.sleep(1000)
    os._exit(0)
os.read(read_end, 1)
print("left a daemon")
'''), ["left a daemon"])

    def test_500_children_end_with_the_call(self):
        self.assertEqual(self.end_of('''
import subprocess
children = [subprocess.Popen(["sleep", "1000"]) for _ in range(500)]
print(len(children))
''', "--pids", "600"), ["500"])

    def test_an_inherited_pipe_does_not_hold_the_answer(self):
        self.assertEqual(self.end_of('''
import subprocess
subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; sleep 1000"], start_new_session=True)
print("done")
'''), ["done"])

    def test_a_fork_bomb_meets_the_limit_and_ends(self):
        lines = self.end_of('''
import os, time
count = 0
try:
    while count < 300:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except OSError as e:
    print(e.strerror, count < 32)
''', "--pids", "32")
        self.assertEqual(lines, ["Resource temporarily unavailable True"])

    def test_descendants_end_at_the_timeout(self):
        self.end_of('''
import os, signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
while True: time.sleep(1)
''', "--timeout", "3", status=124)

    @NEEDS_GROUPS
    def test_memory_over_the_limit_is_named(self):
        result = self.run_json("x = bytearray(400 << 20); print(len(x))", "--memory", "64M", "--disk", "1M")
        self.assertEqual(result.json["limit"], "memory", result)
        self.assertIn(result.json["status"], ("out_of_memory", "exited"), result)
        if result.json["status"] == "out_of_memory":
            self.assertEqual(result.status, 137, result)


if __name__ == "__main__":
    unittest.main()
