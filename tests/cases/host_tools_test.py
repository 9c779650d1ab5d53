"""Cases HT: functions of the host that a program calls, as commands on the command line."""

import os
import time
import unittest

from harness import Case, NEEDS_GROUPS, PRINT_NAMESPACE, processes, processes_in, signal

COUNT = "echo . >> {log}; echo 1"
CALL = "from casemate_tools import call, HostToolError\n"


class HostTools(Case):
    def setUp(self):
        super().setUp()
        self.log = self.dir / "calls.log"

    def tool(self, name, command):
        return ["--host-tool", f"{name}={command}"]

    def counted(self):
        """How often the command of COUNT was really run."""
        return self.log.read_text().count(".") if self.log.exists() else 0

    @property
    def count(self):
        return self.tool("count", COUNT.format(log=self.log))

    def test_a_program_gets_what_the_command_prints(self):
        result = self.run_json(CALL + "print(call('echo', text='ü', n=[1, 2.5, None]))", *self.tool("echo", "cat"))
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.json["stdout"], "{'text': 'ü', 'n': [1, 2.5, None]}\n")
        self.assertEqual(result.json["host_tool_calls"], 1)
        result = self.run_program("import casemate_tools\nprint(casemate_tools.echo(a=1))", *self.tool("echo", "cat"))
        self.assertEqual(result.out, b"{'a': 1}\n")

    def test_without_host_tools_there_are_none(self):
        result = self.run_json(CALL + "try: call('echo')\nexcept HostToolError as error: print(error)")
        self.assertEqual(result.json["host_tool_calls"], 0)
        self.assertTrue(result.json["stdout"].startswith("Error: "), result)

    def test_arguments_reach_the_command_as_data_only(self):
        """What a program sends is input, never a word of the command."""
        hostile = "'; touch {0}; echo '$(touch {0})`touch {0}`".format(self.dir / "broken-out")
        result = self.run_program(CALL + f"print(call('echo', x={hostile!r})['x'] == {hostile!r})",
                                  *self.tool("echo", "cat"))
        self.assertEqual(result.out, b"True\n", result)
        self.assertFalse((self.dir / "broken-out").exists())

    def test_another_status_is_a_refusal_and_its_errors_are_for_the_log_only(self):
        program = CALL + "try: call('bad')\nexcept HostToolError as error: print(error)\nprint(call('good'))"
        options = [*self.tool("bad", "echo 1; echo hidden >&2; exit 3"), *self.tool("good", "echo 2")]
        result = self.run_program(program, *options)
        self.assertEqual((result.status, result.text, result.err), (0, "Error: host tool 'bad' failed.\n2\n", ""))
        result = self.run_program(program, "-v", *options)
        self.assertNotIn("hidden", result.text)
        self.assertRegex(result.err, "exit status 3.*hidden")

    def test_an_answer_is_one_json_value_and_nothing_behind_it(self):
        for printed in ("", "1 2", "{} {}", "nonsense", "1e999", "{\"a\": 1, \"a\": 2}"):
            with self.subTest(printed=printed):
                result = self.run_program(CALL + "try: call('bad')\nexcept HostToolError as error: print(error)",
                                          "--host-tool", f"bad=cat {self.write('printed', printed)}")
                self.assertEqual(result.text, "Error: host tool 'bad' failed.\n", result)

    def test_a_refusal_for_an_unknown_name_does_not_tell_which_names_there_are(self):
        result = self.run_program(CALL + "try: call('nope')\nexcept HostToolError as error: print(error)",
                                  *self.tool("secretname", "cat"))
        self.assertIn("nope", result.text)
        self.assertNotIn("secretname", result.text)

    def test_HT_02_children_of_the_program_call_too(self):
        """HT-02"""
        self.write("child.py", CALL + "print(call('count'), flush=True)")
        program = ("import subprocess, sys, os, multiprocessing, threading\n" + CALL +
                   "subprocess.run([sys.executable, 'child.py'], check=True)\n"
                   "if os.fork() == 0:\n    call('count')\n    os._exit(0)\nassert os.wait()[1] == 0\n"
                   "multiprocessing.Process(target=call, args=('count',)).start()\n"
                   "threading.Thread(target=call, args=('count',)).start()\n")
        result = self.run_json(program, *self.count, "--file", self.dir / "child.py")
        self.assertEqual((result.status, result.json["stdout"]), (0, "1\n"), result)
        self.assertEqual((result.json["host_tool_calls"], self.counted()), (4, 4))

    def test_HT_04_arguments_that_are_no_json_harm_nobody(self):
        """HT-04"""
        program = CALL + """
a = []
a.append(a)
for bad in (a, open(__file__), float("nan"), {1, 2}, b"bytes"):
    try:
        call("count", x=bad)
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
print(call("count", x="good"))
"""
        result = self.run_json(program, *self.count)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.json["stdout"].splitlines()[-1], "1")
        self.assertEqual(len(result.json["stdout"].splitlines()), 6, result)
        self.assertEqual((result.json["host_tool_calls"], self.counted()), (1, 1))

    def test_HT_06_the_cap_counts_every_call_refused_ones_too(self):
        """HT-06"""
        many = CALL + """
import collections
from concurrent.futures import ThreadPoolExecutor
def one(_):
    try:
        return str(call({name!r}{arguments}))
    except HostToolError as error:
        return "used up" if "used up" in str(error) else "refused"
with ThreadPoolExecutor({threads}) as pool:
    print(dict(sorted(collections.Counter(pool.map(one, range({calls}))).items())))
"""
        schema = self.write("casemate.toml", f"[host_tools.count]\ncommand = \"{COUNT.format(log=self.log)}\"\n"
                            "parameters = { type = 'object', additionalProperties = false }\n")
        for name, arguments, threads, calls, expected, ran in (
                ("count", "", 1, 40, "{'1': 32, 'used up': 8}", 32),
                ("unknown", "", 1, 40, "{'refused': 32, 'used up': 8}", 0),
                ("count", ", bad=1", 1, 40, "{'refused': 32, 'used up': 8}", 0),
                ("count", "", 20, 80, "{'1': 32, 'used up': 48}", 32)):
            with self.subTest(name=name, arguments=arguments, threads=threads):
                self.log.unlink(missing_ok=True)
                result = self.run_json(many.format(name=name, arguments=arguments, threads=threads, calls=calls),
                                       "--config", schema, "--max-host-tool-calls", "32")
                self.assertEqual((result.status, result.json["stdout"]), (0, expected + "\n"), result)
                self.assertEqual(self.counted(), ran)
                self.assertEqual(result.json["host_tool_calls"], calls)
        result = self.run_json(many.format(name="count", arguments="", threads=1, calls=17), *self.count)
        self.assertEqual(result.json["stdout"], "{'1': 16, 'used up': 1}\n")

    def test_HT_08_runs_at_the_same_time_have_their_own_tools(self):
        """HT-08: each run's calls reach the commands of that run"""
        program = CALL + "import collections\nprint(dict(collections.Counter(call('who') for _ in range(20))))"
        path = self.write("who.py", program)
        started = time.monotonic()
        runs = [self.start(self.argv("--thread", f"t{i}", "--max-host-tool-calls", "20", "--host-tool",
                                     f"who=echo {i}", path)) for i in range(4)]
        for i, run in enumerate(runs):
            result = self.finish(run, started)
            self.assertEqual((result.status, result.text), (0, f"{{{i}: 20}}\n"), result)

    def test_HT_10_nothing_calls_once_the_run_is_over(self):
        """HT-10"""
        lingering = CALL + """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1)
    try:
        call("count")
    finally:
        os._exit(0)
print("over", flush=True)
os._exit(0)
"""
        key = ["--thread", "same"]
        first = self.run_json(lingering, *key, *self.count)
        self.assertEqual((first.status, first.json["host_tool_calls"]), (0, 0), first)
        second = self.run_json("import time\ntime.sleep(1.5)\nprint('next')", *key, *self.count)
        self.assertEqual((second.json["stdout"], second.json["host_tool_calls"]), ("next\n", 0), second)
        self.assertEqual(self.counted(), 0)

    @NEEDS_GROUPS
    def test_HT_12_an_answer_over_a_cap_is_refused_and_the_cap_named(self):
        """HT-12"""
        cap = 8 * 1024 * 1024
        program = CALL + """
def one(size):
    try:
        return len(call("big", size=size))
    except HostToolError as error:
        return str(error)
for size in {sizes}:
    print(one(size))
"""
        # A string of so many bytes as JSON.
        big = "python3 -c 'import json, sys; print(\"\\\"\" + \"x\" * (json.load(sys.stdin)[\"size\"] - 2) + \"\\\"\")'"
        result = self.run_json(program.format(sizes=[cap, cap + 1, 10]), "--memory", "256M", *self.tool("big", big))
        self.assertEqual(result.status, 0, result)
        fits, over, small = result.json["stdout"].splitlines()
        self.assertEqual((fits, small), (str(cap - 2), "8"))
        self.assertIn(str(cap), over)
        result = self.run_json(program.format(sizes=[cap] * 5), "--memory", "256M", *self.tool("big", big))
        *passed, last = result.json["stdout"].splitlines()
        self.assertEqual(passed, [str(cap - 2)] * 4)
        self.assertIn(str(4 * cap), last)
        endless = self.run_program(CALL + "try: call('yes')\nexcept HostToolError as error: print(error)",
                                   *self.tool("yes", "yes"))
        self.assertIn(str(cap), endless.text)

    def test_a_command_out_of_time_is_killed_and_refused(self):
        marker = self.dir / "pid"
        config = self.write("casemate.toml", "[host_tools.slow]\ntimeout = 2\n"
                            f"command = \"echo $$ > {marker}; sleep 1000\"\n")
        program = CALL + "try: call('slow')\nexcept HostToolError as error: print(error)\nprint(call('quick'))"
        result = self.run_program(program, "--config", config, *self.tool("quick", "echo 1"))
        self.assertIn("did not answer within 2 seconds", result.text)
        self.assertTrue(result.text.endswith("\n1\n"), result)
        self.assertGone(marker)

    def assertGone(self, marker):
        """The process whose id stands there, and what shares its group, end with the run."""
        pid = int(marker.read_text())
        self.wait_until(lambda: not any(process.group == pid for process in processes()), "the command ends")

    def test_commands_end_with_the_run_however_it_ends(self):
        program = PRINT_NAMESPACE + CALL + "call('slow')"
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(signal=number):
                marker, up = self.dir / f"pid{number}", self.dir / f"up{number}"
                os.mkfifo(up)
                process = self.start(self.argv(*self.tool(
                    "slow", f"echo $$ > {marker}; sleep 1000 & echo > {up}; sleep 1000"), program=program))
                up.read_text()  # the command runs
                process.send_signal(number)
                result = self.finish(process, time.monotonic())
                self.assertEqual(result.status, status, result)
                self.assertGone(marker)

    def test_commands_end_with_a_host_that_is_killed(self):
        marker, up = self.dir / "pid", self.dir / "up"
        os.mkfifo(up)
        process = self.start(self.argv(*self.tool(
            "slow", f"exec 9> {up}; echo $$ > {marker}; echo > {up}; sleep 1000"),
            program=PRINT_NAMESPACE + CALL + "call('slow')"))
        namespace = process.stdout.readline().decode().strip()
        with open(up) as reader:
            reader.readline()
            process.kill()
            # Its end comes when the last process of the command has gone.
            self.assertEqual(reader.read(), "")
        self.assertGone(marker)
        self.wait_until(lambda: not processes_in(namespace), "its processes end")

    def test_a_program_that_ends_in_the_middle_of_a_call_ends_the_command(self):
        marker = self.dir / "pid"
        program = CALL + ("import os, threading, time\nthreading.Thread(target=call, args=('slow',), daemon=True).start()\n"
                          "call('wait')\nos._exit(7)")
        up = self.dir / "up"
        os.mkfifo(up)
        result = self.run_program(program, *self.tool("slow", f"echo $$ > {marker}; echo > {up}; sleep 1000"),
                                  *self.tool("wait", f"cat {up} >&2; echo 1"))
        self.assertEqual(result.status, 7, result)
        self.assertGone(marker)

    def test_stamped_tools_come_from_casemate_toml(self):
        config = self.write("casemate.toml", """
[host_tools.store]
command = "cat"
source = "trusted"
sink = "none"
identity = "none"
description = "Looks a store up."
timeout = 5
max_concurrency = 2
[host_tools.store.parameters]
type = "object"
required = ["id"]
additionalProperties = false
properties.id = { type = "integer", minimum = 1 }
""")
        program = CALL + ("for value in (3, 0, 'x'):\n    try: print(call('store', id=value))\n"
                          "    except HostToolError as error: print(error)")
        result = self.run_program(program, "--config", config, "--require-declared")
        good, low, wrong = result.text.splitlines()
        self.assertEqual(good, "{'id': 3}")
        for line in (low, wrong):
            self.assertTrue(line.startswith("Error: host tool 'store' was not called: "), result)
        unstamped = self.run_program(program, "--config", config, "--require-declared", *self.tool("other", "cat"))
        self.assertRefused(unstamped, "HostToolNotDeclared", "other", "casemate.toml")

    def test_denials_and_bad_tools_are_refused_before_anything_starts(self):
        for options, code, *words in (
                (["--host-tool", "a=cat", "--deny-capability", "host_tools"], "SandboxCapabilityDenied"),
                (["--host-tool", "a=cat", "--deny-identity", "app"], "SandboxIdentityDenied"),
                (["--host-tool", "a"], "InvalidArgument", "NAME=COMMAND"),
                (["--host-tool", "a="], "InvalidArgument"),
                (["--host-tool", "a=1", "--host-tool", "a=2"], "InvalidArgument", "two commands"),
                (["--host-tool", "a=1", "--max-host-tool-calls", "0"], "InvalidArgument", "from 1"),
                (["--host-tool", "a=1", "--host-tool-timeout", "0"], "InvalidArgument"),
        ):
            with self.subTest(options=options):
                self.assertRefused(self.run_program("print('ran')", *options), code, *words)
        for keys, code in (("parameters = { foo = 1 }", "ConfigInvalid"), ("timeout = 0", "ConfigInvalid"),
                           ("source = 'none'\nsink = 'none'\nidentity = 'user'", "HostToolIdentityNotAllowed")):
            with self.subTest(keys=keys):
                config = self.write("casemate.toml", f"[host_tools.a]\ncommand = 'cat'\n{keys}\n")
                self.assertRefused(self.run_program("print('ran')", "--config", config), code)
                self.assertRefused(self.run_program("print('ran')", "--check", "--config", config), code)
        self.assertNothingStarted()

    def test_help_says_what_an_unstamped_tool_is(self):
        text = self.run_argv([self.argv()[0], "run", "--help"]).text
        for words in ("unstamped", "untrusted", "carries something out", "(app)", "--host-tool-timeout SECONDS"):
            self.assertIn(words, " ".join(text.split()))


if __name__ == "__main__":
    unittest.main()
