"""Cases CLI: exit statuses, arguments, paths, and bad input."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
import unittest

from harness import Case, NEEDS_GROUPS, PATIENCE, PRINT_NAMESPACE, PROGRAM, processes_in, signal

KEYS = ["status", "exit_code", "signal", "stdout", "stderr", "stdout_truncated_bytes",
        "stderr_truncated_bytes", "artifacts", "missing_outputs", "host_tool_calls", "limit",
        "limits_not_held", "egress", "sandbox", "timing_ms", "cpu_ms", "peak_memory_bytes", "error"]


class ExitStatus(Case):
    def test_CLI_02_the_programs_status_is_its_own(self):
        """CLI-02: --json tells the program's 124, 125 and 137 from ours"""
        for status in (0, 1, 2, 124, 125, 126, 127, 137, 255):
            with self.subTest(status=status):
                result = self.run_json(f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({status})")
                self.assertEqual(result.status, status, result)
                self.assertEqual((result.json["status"], result.json["exit_code"]), ("exited", status))
                self.assertIsNone(result.json["error"])

    def test_CLI_02_our_own_failures_are_125_with_a_code(self):
        """CLI-02"""
        cases = (
            (["--bogus"], "InvalidArgument"),
            (["--file", "x=/nowhere"], "SandboxFileError"),
            (["--backend", "dokcer"], "InvalidArgument"),
            (["--min-isolation", "microvm"], "SandboxBackendNotPermitted"),
            (["--deny-capability", "exec"], "SandboxCapabilityDenied"),
            (["--image", "oci:/no/where"], "SandboxImageInvalid"),
            (["--files-in-limit", "1G,2G,10"], "SandboxTransferLimitsNotPermitted"),
        )
        for options, code in cases:
            with self.subTest(options=options):
                result = self.run_program("print('ran')", *options)
                self.assertRefused(result, code)
                self.assertEqual(result.out, b"")
                result = self.run_json("print('ran')", *options)
                self.assertRefused(result, code)
                self.assertEqual(list(result.json), ["status", "error"])
                self.assertEqual(result.json["status"], "refused")
                self.assertEqual(list(result.json["error"]), ["code", "message", "hint"])
                self.assertEqual(result.json["error"]["code"], code)
        self.assertNothingStarted()

    def test_CLI_02_the_programs_text_and_ours_stay_apart(self):
        """CLI-02"""
        result = self.run_program("print('casemate: error: X: fake')", "--output", "gone", "--out-dir", self.out)
        self.assertRefused(result, "SandboxOutputMissing")
        self.assertEqual(result.out, b"casemate: error: X: fake\n")

    def test_signals_stop_the_program_and_still_give_the_result(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with self.subTest(signal=number):
                started = time.monotonic()
                process = self.start(self.argv(program=PRINT_NAMESPACE + "import time; time.sleep(1000)"))
                namespace = self.signal_once_it_prints(process, number).decode().strip()
                result = self.finish(process, started)
                self.assertNothingRuns(namespace)
                self.assertEqual(result.status, status, result)

    def test_a_cancelled_run_still_prints_its_json(self):
        program = "print('kept')\nimport sys\nsys.stdin.buffer.read(4 << 20)\nimport time\ntime.sleep(1000)"
        process = self.start(self.argv("--json", "--stdin", program=program), stdin=subprocess.PIPE)
        # Far more than fits between here and there: once it is all taken, the program has come to its read.
        process.stdin.write(bytes(4 << 20))
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        result = self.finish(process, time.monotonic())
        self.assertEqual(result.status, 143, result)
        self.assertEqual(result.json["status"], "cancelled")
        self.assertEqual(result.json["stdout"], "kept\n")
        self.assertIsNone(result.json["exit_code"])

    def test_a_closed_output_stops_the_program(self):
        process = self.start(self.argv(program=PRINT_NAMESPACE + "import time\nwhile True: time.sleep(1000)"))
        namespace = process.stdout.readline().decode().strip()
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 141)
        self.assertNothingRuns(namespace)
        process.stderr.close()
        process = self.start(self.argv(program="while True: print('x' * 1000)"))
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 141)
        process.stderr.close()

    def test_a_signal_ends_a_run_whose_reader_does_not_read(self):
        process = self.start(self.argv(program=PRINT_NAMESPACE + "while True: print('x' * 1000)"))
        namespace = process.stdout.readline().decode().strip()
        self.wait_until_the_pipe_is_full(process.stdout)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 143)
        self.assertNothingRuns(namespace)
        process.stdout.close()
        process.stderr.close()

    def test_the_limit_ends_a_run_whose_reader_does_not_read(self):
        process = self.start(self.argv("--timeout", "3", program="while True: print('x' * 1000)"))
        self.assertEqual(process.wait(PATIENCE), 124)
        self.assertIn(b"nobody read the output", process.stderr.read())

    def test_a_closed_standard_error_does_not_end_the_run(self):
        program = "import sys; print('lost', file=sys.stderr); print('kept'); sys.exit(3)"
        result = self.run_argv(["sh", "-c", '"$@" 2>&-', "sh", *self.argv(program=program)])
        self.assertEqual((result.status, result.out), (3, b"kept\n"), result)

    def wait_until_the_pipe_is_full(self, pipe):
        room = select.poll()  # of the writing end, opened anew: not writable is full
        writer = os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, writer)
        room.register(writer, select.POLLOUT)
        self.wait_until(lambda: not room.poll(0), "the pipe is full")

    def test_a_killed_run_leaves_nothing(self):
        process = self.start(self.argv(program=PRINT_NAMESPACE + "import time; time.sleep(1000)"))
        namespace = self.signal_once_it_prints(process, signal.SIGKILL).decode().strip()
        self.assertEqual(self.finish(process, time.monotonic()).status, -signal.SIGKILL)
        self.wait_until(lambda: not processes_in(namespace), "its processes end")

    def test_a_full_disk_under_our_output_is_named(self):
        with open("/dev/full", "wb") as full:
            for options in ((), ("--json",)):
                result = self.run_program("print('x' * 100000)\nwhile True: print(1)" if not options else "print(1)",
                                          *options, stdout=full)
                self.assertRefused(result, "OutputFailed", "No space left on device")

    def test_an_output_that_was_never_open_is_a_closed_one(self):
        script = '"$@" >&-'
        result = self.run_argv(["sh", "-c", script, "sh", *self.argv(program="print(1)")])
        self.assertEqual(result.status, 141, result)
        result = self.run_argv(["sh", "-c", '"$@" <&- 2>&-', "sh", *self.argv(program="print(1)")])
        self.assertEqual((result.status, result.out), (0, b"1\n"), result)


class Arguments(Case):
    def test_CLI_04_the_first_equals_splits(self):
        """CLI-04"""
        self.write("b=c.txt", "content")
        result = self.run_program("import os; print(os.listdir('.'))", "--file", "a=b=c.txt", cwd=self.dir)
        self.assertEqual((result.status, result.text), (0, "['a']\n"), result)
        for text in ("=x", "a=", "="):
            self.assertRefused(self.run_program("pass", "--file", text), "InvalidArgument", "--file")

    def test_CLI_04_names_may_be_odd_but_not_empty(self):
        """CLI-04"""
        self.assertRefused(self.run_program("pass", "--output", "", "--out-dir", self.out),
                           "SandboxArtifactNameInvalid")
        for words in (["--output", "-x"], ["--output=-x"]):
            result = self.run_program('open("-x", "w").write("x")', *words, "--out-dir", self.out, "--overwrite")
            self.assertEqual((result.status, result.err), (0, "saved -x\n"), result)

    def test_CLI_04_two_dashes_end_the_options(self):
        """CLI-04"""
        self.write("-prog.py", "import sys; print(sys.argv[1:])")
        arguments = ["--json", "--", "-x", "", "[a,b]", "a b", "\u20ac", "--help"]
        result = self.run_argv([*self.argv(), "--", "-prog.py", *arguments], cwd=self.dir)
        self.assertEqual((result.status, result.text), (0, f"{arguments}\n"), result)
        argv = self.argv(program="import sys; print(sys.argv[1:])")
        result = self.run_argv([*argv, "--", *arguments])
        self.assertEqual((result.status, result.text), (0, f"{arguments}\n"), result)
        raw = os.fsencode(str(self.write("raw.py", "import os, sys; print(os.fsencode(sys.argv[1]))")))
        result = self.run_argv([*map(os.fsencode, self.argv()), raw, b"--", b"\xff\xfe"])
        self.assertEqual((result.status, result.text), (0, "b'\\xff\\xfe'\n"), result)

    def test_CLI_04_the_programs_bytes_reach_the_interpreter_unchanged(self):
        """CLI-04"""
        programs = {
            "with spaces and 'quotes'.py": (b"print(1)", b"1\n"),
            "empty.py": (b"", b""),
            "crlf.py": (b"print(1)\r\nprint(2)\r\n", b"1\n2\n"),
            "bom.py": (b"\xef\xbb\xbfprint(1)\n", b"1\n"),
            "latin1.py": (b"# coding: latin-1\nprint(len('\xe9\xe8'))\n", b"2\n"),
            "no_newline.py": (b"print(open(__file__, 'rb').read()[-1:])", b"b')'\n"),
        }
        for name, (program, expected) in programs.items():
            with self.subTest(name=name):
                result = self.run_argv([*self.argv(), str(self.write(name, program))])
                self.assertEqual((result.status, result.out), (0, expected), result)
                with open(self.dir / name, "rb") as stdin:
                    result = self.run_argv([*self.argv(), "-"], stdin=stdin)
                self.assertEqual((result.status, result.out), (0, expected), result)
        # A NUL is the interpreter's to refuse, as outside.
        path = self.write("nul.py", b"print(1)\x00\n")
        outside = subprocess.run(["/usr/bin/python3", path], capture_output=True)
        result = self.run_argv([*self.argv(), str(path)])
        self.assertEqual((result.status, result.out), (outside.returncode, outside.stdout), result)
        self.assertEqual(result.err.splitlines()[-1:], outside.stderr.decode().splitlines()[-1:])

    def test_CLI_04_what_is_no_program_is_refused_by_name(self):
        """CLI-04"""
        for path, why in ((self.dir, "Is a directory"), (self.dir / "missing.py", "No such file"),
                          (self.write("file", "") / "below.py", "Not a directory"),
                          ("/proc/self/mem", "Input/output error")):
            with self.subTest(path=path):
                result = self.run_argv([*self.argv(), str(path)])
                self.assertRefused(result, "InvalidArgument", str(path), why)
        self.assertRefused(self.run_argv(self.argv()), "InvalidArgument", "PROGRAM")
        self.assertRefused(self.run_argv([*self.argv(), "a.py", "b.py"]), "InvalidArgument", "b.py", "--")
        self.assertNothingStarted()

    def test_CLI_06_paths_are_resolved_once_against_the_callers_directory(self):
        """CLI-06"""
        self.write("data/in.txt", "content")
        self.write("p.py", "import os; print(os.getcwd()); open('o', 'w').write(open('x').read())")
        (self.dir / "real").mkdir()
        os.symlink("real", self.dir / "linked")
        options = ["--file", "x=../data/in.txt", "--output", "o", "--out-dir", "../linked/../out", "--overwrite"]
        result = self.run_argv([*self.argv(*options), "../p.py"], cwd=self.dir / "linked")
        self.assertEqual(result.status, 0, result)
        self.assertRegex(result.text, r"^/workspace/[0-9a-f]{12}/work\n$")
        self.assertEqual((self.out / "o").read_text(), "content")

    def test_CLI_06_a_deleted_directory_is_no_hindrance(self):
        """CLI-06"""
        program = self.write("p.py", "import os; print(os.getcwd()); open('o', 'w')")
        script = 'mkdir "$0/gone" && cd "$0/gone" && rmdir "$0/gone" && exec "$@"'
        argv = ["sh", "-c", script, str(self.dir), *self.argv("--output", "o", "--out-dir", self.out), str(program)]
        result = self.run_argv(argv)
        self.assertEqual(result.status, 0, result)
        self.assertRegex(result.text, r"^/workspace/[0-9a-f]{12}/work\n$")
        argv = ["sh", "-c", script, str(self.dir), *self.argv("--file", "x=relative"), str(program)]
        self.assertRefused(self.run_argv(argv), "SandboxFileError", "relative")


class BadInput(Case):
    def test_unknown_options_verbs_and_values_name_the_nearest(self):
        for words, nearest in ((["run", "--time", "1", "p"], "--timeout"), (["rnu"], "run"),
                               (["backend"], "backends"), (["--verison"], "--version"),
                               (["run", "--min-isolation", "vmm", "p"], "vm"),
                               (["run", "--backend", "Linux", "p"], "linux"),
                               (["backends", "--jsn"], "--json")):
            with self.subTest(words=words):
                self.write("p", "")
                result = self.run_argv([str(PROGRAM), *words], cwd=self.dir)
                self.assertRefused(result, "InvalidArgument", f"the nearest is {nearest}")
                self.assertEqual(result.err.count("\n"), 1)

    def test_what_is_near_nothing_is_told_what_there_is_too(self):
        program = self.write("p.py", "pass")
        for words, said in ((["ps"], "`casemate --help`"), (["-x"], "`casemate --help`"), (["run", "-x", program], "--help lists them"),
                            (["run", "--backend", "lxc", program], ", of: linux, oci, docker, microvm"),
                            (["run", "--min-isolation", "strong", program], ", of: process, "),
                            (["run", "--deny-capability", "foo", program], ", of: exec, "),
                            (["run", program, "-l"], "the program's own arguments stand behind --")):
            with self.subTest(words=words):
                result = self.run_argv([str(PROGRAM), *words])
                self.assertRefused(result, "InvalidArgument", said)
                self.assertIn("; the nearest is ", result.err)
        self.assertRefused(self.run_argv([str(PROGRAM), "version"]), "InvalidArgument", "the nearest is --version")

    def test_a_single_value_given_twice_is_refused(self):
        self.assertRefused(self.run_program("", "--timeout", "1", "--timeout", "2"), "InvalidArgument", "twice")

    @NEEDS_GROUPS
    def test_values_out_of_range_are_refused_with_the_range(self):
        for option, bad, range_text in (("--memory", "16777215", "16M"), ("--disk", "1048575", "1M"),
                                        ("--pids", "3", "4"), ("--timeout", "604801", "604800"),
                                        ("--timeout", "0", "604800"), ("--cpus", "0", "0.01"),
                                        ("--memory", "-1", "16M")):
            with self.subTest(option=option, value=bad):
                self.assertRefused(self.run_program("", option, bad), "InvalidArgument", option, bad, range_text)
        for option, least in (("--memory", "16M"), ("--disk", "1M"), ("--pids", "4"), ("--timeout", "604800")):
            with self.subTest(option=option, value=least):
                self.assertEqual(self.run_program("", "--check", option, least).status, 0)

    def test_a_program_of_five_mebibytes_runs(self):
        program = b"#" * (5 << 20) + b"\nprint('ran')\n"
        result = self.run_program(program)
        self.assertEqual((result.status, result.out), (0, b"ran\n"), result.err[:500])

    def test_a_program_over_the_cap_is_refused(self):
        ending = b"\nprint(1)\n"
        program = b"#" * ((8 << 20) - len(ending)) + ending
        self.assertEqual(self.run_program(program).out, b"1\n")
        self.assertRefused(self.run_program(b"#" + program), "SandboxTransferCapExceeded", "8388608")

    def test_bytes_that_are_no_utf8_never_break_our_own_output(self):
        path = os.fsencode(self.dir) + b"/\xff\xfe.py"
        for words in ([b"--json", b"--out-dir", b"\xff", b"--output", b"\xff", path], [b"--json", b"--\xff"],
                      [b"--json", b"--file", b"\xff=\xff", path], [b"--json", path],
                      [b"--json", b"--env", b"\xff", path], [b"--json", b"--backend", b"\xff", path]):
            with self.subTest(words=words):
                result = self.run_argv([*map(os.fsencode, self.argv()), *words], cwd=self.dir)
                self.assertEqual(result.status, 125, result)
                self.assertEqual(result.json["status"], "refused")

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_nobody_runs_programs_too(self):
        os.chmod(self.dir, 0o755)
        copy = shutil.copy(PROGRAM, self.dir / "casemate")
        program = self.write("p.py", "print(1)")
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        refused = self.run_argv([copy, "run", "--json", program], **nobody)
        self.assertRefused(refused, "SandboxUnavailable", "CASEMATE_STATE_DIR")
        self.assertEqual((refused.json["status"], refused.json["error"]["code"]), ("failed", "SandboxUnavailable"))
        state = self.dir / "nobodys"
        state.mkdir(mode=0o700)
        os.chown(state, 65534, 65534)
        result = self.run_argv([copy, "run", "--json", program], env={"CASEMATE_STATE_DIR": str(state)}, **nobody)
        self.assertEqual((result.status, result.json["stdout"]), (0, "1\n"), result)

    def test_the_callers_umask_and_home_do_not_matter(self):
        argv = self.argv("--output", "o", "--out-dir", self.out, "--overwrite",
                         program="open('o', 'w'); import os; print(os.environ['HOME'])")
        for umask in (0o000, 0o077):
            result = self.run_argv(argv, umask=umask, env={"HOME": "/nowhere"})
            self.assertEqual((result.status, result.out), (0, b"/home/user\n"), result)
            self.assertEqual((self.out / "o").stat().st_mode & 0o777, 0o666 & ~umask)

    def test_a_program_with_a_name_that_is_no_utf8_runs(self):
        path = os.fsencode(self.dir) + b"/\xff\xfe.py"
        with open(path, "wb") as file:
            file.write(b"print(1)")
        result = self.run_argv([*map(os.fsencode, self.argv()), path])
        self.assertEqual((result.status, result.out), (0, b"1\n"), result)


class Surface(Case):
    def test_the_json_object_has_its_keys_in_order(self):
        result = self.run_json("print(1)")
        self.assertEqual(list(result.json), KEYS)
        self.assertEqual(list(result.json["sandbox"]), ["id", "backend", "isolation", "reused", "image", "egress"])
        self.assertEqual(list(result.json["timing_ms"]), ["acquire", "stage", "run", "collect", "total"])
        about = result.json["sandbox"]
        self.assertEqual((about["backend"], about["isolation"], about["reused"], about["image"], about["egress"]),
                         ("linux", "container", False, "host", "closed"))
        self.assertEqual((result.json["host_tool_calls"], result.json["egress"]), (0, []))

    def test_nothing_of_the_hosts_environment_is_inherited(self):
        result = self.run_program("import os; print(sorted(os.environ.items()))", "--env", "A=b=c", "--env", "PASSED",
                                  env={"CANARY": "s3cr3t", "PASSED": "yes", "HTTP_PROXY": "http://127.0.0.1:9"})
        self.assertEqual(result.status, 0, result)
        self.assertNotIn("s3cr3t", result.text)
        self.assertNotIn("HTTP_PROXY", result.text)
        self.assertIn("('A', 'b=c')", result.text)
        self.assertIn("('PASSED', 'yes')", result.text)
        self.assertRefused(self.run_program("", "--env", "UNSET"), "InvalidArgument", "UNSET")

    def test_the_interpreter_is_the_systems_whatever_path_the_program_gets(self):
        decoy = "import os; os.mkdir('bin'); open('bin/python3', 'w').write('#!/bin/sh'); os.chmod('bin/python3', 0o755)"
        for path in ("/tmp", "bin:/usr/bin", ""):
            result = self.run_program(f"{decoy}; import sys; print(sys.executable, os.environ['PATH'])", "--env", f"PATH={path}")
            self.assertEqual((result.status, result.text), (0, f"/usr/bin/python3 {path}\n"), result)

    def test_a_refused_run_leaves_no_directory(self):
        self.assertRefused(self.run_program("", "--output", "x", "--out-dir", self.out / "deep", "--file", "x=/nowhere"),
                           "SandboxFileError")
        self.assertFalse(self.out.exists())

    @NEEDS_GROUPS
    def test_runs_of_one_key_share_a_sandbox_and_another_limit_is_refused_while_it_is_busy(self):
        program = self.write("p.py", "print('up'); input()")
        first = self.start(self.argv("--thread", "t", "--stdin", program), stdin=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), b"up\n")
        result = self.run_json("print(1)", "--thread", "t")
        self.assertEqual((result.status, result.json["sandbox"]["reused"]), (0, True), result)
        self.assertRefused(self.run_program("print(1)", "--thread", "t", "--memory", "64M"), "SandboxBusy")
        result = self.run_json("print(1)", "--thread", "u", "--memory", "64M")
        self.assertEqual((result.status, result.json["sandbox"]["reused"]), (0, False), result)
        out, err = first.communicate(b"\n", timeout=PATIENCE)
        self.assertEqual((first.returncode, out), (0, b""), err)

    def test_help_names_verbs_and_shows_defaults(self):
        for words in ([], ["--help"]):
            result = self.run_argv([str(PROGRAM), *words])
            self.assertEqual((result.status, result.err), (0, ""), result)
            self.assertIn("\n  run ", result.text)
            self.assertIn("\n  backends ", result.text)
        result = self.run_argv([str(PROGRAM), "run", "--help"])
        self.assertEqual(result.status, 0, result)
        self.assertEqual(self.run_argv([str(PROGRAM), "help", "run"]).out, result.out)
        self.assertEqual(self.run_argv([str(PROGRAM), "help"]).out, self.run_argv([str(PROGRAM), "--help"]).out)
        self.assertRefused(self.run_argv([str(PROGRAM), "help", "rnu"]), "InvalidArgument", "the nearest is run")
        self.assertRefused(self.run_argv([str(PROGRAM), "help", "run", "x"]), "InvalidArgument", "unexpected 'x'")
        for text in ("--timeout SECONDS", "default: 120", "--memory SIZE", "default: 512M"):
            self.assertIn(text, result.text)

    def test_backends_are_listed_with_what_they_claim(self):
        result = self.run_argv([str(PROGRAM), "backends", "--json"])
        self.assertEqual(result.status, 0, result)
        records = {record["name"]: record for record in result.json}
        linux = records["linux"]
        self.assertEqual(list(linux), ["name", "available", "reason", "isolation", "egress_modes", "capabilities",
                                       "limits", "engine"])
        self.assertEqual((linux["available"], linux["reason"], linux["isolation"]), (True, None, "container"))
        self.assertEqual(linux["egress_modes"], ["allowlist", "closed"])
        result = self.run_argv([str(PROGRAM), "backends"])
        self.assertTrue(result.text.startswith("linux: available\n"), result)

    def test_a_verbose_run_logs_to_standard_error_only(self):
        result = self.run_program("print(1)", "-v")
        self.assertEqual((result.status, result.out), (0, b"1\n"), result)
        for line in result.err.splitlines():
            self.assertTrue(line.startswith("casemate: "), line)

    def test_the_version_is_one_line(self):
        result = self.run_argv([str(PROGRAM), "--version"])
        self.assertEqual(result.status, 0)
        self.assertRegex(result.text, r"^casemate \d+\.\d+\.\d+\n$")

    def test_start_up_links_three_libraries_and_its_time_is_printed(self):
        """The budget of `casemate --version` is 1.5 ms more than /bin/true. The least of many interleaved runs
        is what the program costs, the rest is what else the machine did."""
        libraries = subprocess.run(["readelf", "-d", PROGRAM], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", libraries))
        if any("san" in name for name in needed):
            self.skipTest("a sanitizer's own start-up would be measured")
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})

        def spawn(argv):
            started = time.perf_counter()
            quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
            os.waitpid(os.posix_spawn(argv[0], argv, {}, file_actions=quiet), 0)
            return time.perf_counter() - started

        times = [(spawn(["/bin/true"]), spawn([str(PROGRAM), "--version"])) for _ in range(100)]
        least_true, least_ours = (min(column) for column in zip(*times))
        print(f"\n`casemate --version` takes {1000 * (least_ours - least_true):.2f} ms more than /bin/true", file=sys.stderr)

    def test_ISO_07_a_terminal_never_gets_an_escape_sequence(self):
        """ISO-07: neither by the program's output nor by its descriptors"""
        program = self.argv(program='''
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for fd in (0, 1, 2):
    for req in (0x5412, 0x5412 | (1 << 32), 0x541C):
        r = libc.ioctl(ctypes.c_int(fd), ctypes.c_ulong(req), ctypes.byref(ctypes.c_char(b"i")))
        print("INJECTED" if r == 0 else "refused", fd, hex(req), ctypes.get_errno())
try: os.open("/dev/tty", os.O_RDWR); print("TTY")
except OSError as e: print("no tty")
print("\\x1b]0;title\\x07 \\x1b[31mred\\x1b[0m \\x9b31m")
''')
        controller, terminal = pty.openpty()
        process = self.start(program, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
        os.close(terminal)
        seen = b""
        try:
            while piece := os.read(controller, 65536):
                seen += piece
        except OSError:
            pass  # the last holder of the terminal has closed it
        finally:
            os.close(controller)
        self.assertEqual(process.wait(PATIENCE), 0, seen)
        self.assertNotIn(b"\x1b", seen)
        self.assertNotIn(b"\x07", seen)
        self.assertNotIn(b"INJECTED", seen)
        self.assertNotIn(b"TTY", seen)
        self.assertIn(b"no tty", seen)
        self.assertIn(b"^[[31mred^[[0m \\x9b31m", seen)


if __name__ == "__main__":
    unittest.main()
