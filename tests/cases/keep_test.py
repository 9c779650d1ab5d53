"""Sandboxes that stay: run --keep, exec, ls, rm."""

import os
import time
import unittest
from pathlib import Path

from harness import Case, NEEDS_GROUPS, NEEDS_ROOT, PROGRAM, SANITIZED, cgroups_of, signal

RECORD = ["id", "backend", "isolation", "scope", "thread", "agent", "kind", "age_s", "idle_s", "processes",
          "memory_bytes"]


class Kept(Case):
    def setUp(self):
        super().setUp()
        # Before the look at the state root: what a test keeps is its own to end.
        self.addCleanup(self.verb, "rm", "--all")

    def verb(self, *words, **how):
        return self.run_argv([str(PROGRAM), *map(str, words)], **how)

    def keep(self, program, thread="t", *options):
        result = self.run_json(program, "--keep", "--thread", thread, *options)
        self.assertEqual(result.status, 0, result)  # one that failed for our reasons is not kept
        return result

    def listed(self, *options):
        result = self.verb("ls", "--json", *options)
        self.assertEqual(result.status, 0, result)
        return result.json

    def ids(self):
        return [record["id"] for record in self.listed()]

    def wait_until_none_is_listed(self):
        self.wait_until(lambda: not self.listed(), "it is listed no more")


class Keep(Kept):
    @NEEDS_ROOT
    def test_what_is_kept_serves_who_could_not_have_had_it_made(self):
        self.keep("print(1)", "t", "--disk", "32M")
        bounded = ["setpriv", "--bounding-set=-sys_resource", "prlimit", "--fsize=24000000:24000000"]
        result = self.run_argv(bounded + self.argv("--keep", "--thread", "t", "--disk", "32M", program="print(2)"))
        self.assertEqual((result.status, result.text), (0, "2\n"), result)

    def test_the_next_run_finds_what_the_last_one_left(self):
        first = self.keep("open('/home/user/kept', 'w').write('here')")
        second = self.keep("print(open('/home/user/kept').read())")
        self.assertEqual(second.json["stdout"], "here\n", second)
        self.assertEqual((first.json["sandbox"]["reused"], second.json["sandbox"]["reused"]), (False, True))
        self.assertEqual(first.json["sandbox"]["id"], second.json["sandbox"]["id"])

    def test_a_run_without_it_uses_what_is_kept_and_ends_it(self):
        self.keep("open('/home/user/kept', 'w').write('here')")
        result = self.run_program("print(open('/home/user/kept').read())", "--thread", "t")
        self.assertEqual(result.text, "here\n", result)
        self.wait_until_none_is_listed()

    def test_LC_16_it_ends_by_itself_when_its_time_is_up_and_not_while_it_runs(self):
        """LC-16"""
        result = self.keep("import time; time.sleep(1); print('alive')", "t", "--idle-ttl", "0.2")
        self.assertEqual(result.json["stdout"], "alive\n", result)
        identifier = result.json["sandbox"]["id"]
        self.wait_until_none_is_listed()
        self.nothing_is_left_in_the_state_root()
        self.assertEqual(cgroups_of(identifier), [])

    @NEEDS_ROOT
    @NEEDS_GROUPS
    def test_a_group_that_cannot_be_removed_yet_is_not_forgotten(self):
        kept = self.keep("pass", "t", "--idle-ttl", "0.5")
        identifier = kept.json["sandbox"]["id"]
        group = Path(cgroups_of(identifier)[0])
        stranger = self.start(["sleep", "1000"])
        (group / "cgroup.procs").write_text(str(stranger.pid))
        self.wait_until_none_is_listed()
        self.assertEqual(cgroups_of(identifier), [str(group)])
        stranger.kill()
        stranger.wait()
        self.assertEqual(self.listed(), [])
        self.assertEqual(cgroups_of(identifier), [])

    def test_LC_16_a_run_that_only_calls_host_tools_is_in_use(self):
        """LC-16"""
        result = self.keep("import casemate_tools, time\n"
                           "until = time.monotonic() + 1\n"
                           "while time.monotonic() < until: casemate_tools.call('one')\n"
                           "print('alive')", "t", "--idle-ttl", "0.2", "--host-tool", "one=echo 1",
                           "--max-host-tool-calls", "100000")
        self.assertEqual(result.json["stdout"], "alive\n", result)
        self.wait_until_none_is_listed()

    def test_LC_04_a_killed_run_leaves_what_was_kept_and_nothing_of_its_call(self):
        """LC-04"""
        self.keep("open('/home/user/kept', 'w').write('here')")
        process = self.start(self.argv("--keep", "--thread", "t",
                                       program="import time; print('up', flush=True); time.sleep(1000)"))
        self.signal_once_it_prints(process, signal.SIGKILL)
        process.wait()
        result = self.verb("exec", "--thread", "t", "--", "sh", "-c", "cat ~/kept; ls /workspace | wc -l")
        # Its own call's directory; the killed one's goes with the kernel's news of the end.
        self.assertRegex(result.text, r"^here[12]\n$", result)
        self.assertEqual(len(self.ids()), 1)

    def test_another_fingerprint_replaces_it(self):
        first = self.keep("pass")
        second = self.keep("pass", "t", "--pids", "50")
        self.assertFalse(second.json["sandbox"]["reused"])
        self.assertNotEqual(first.json["sandbox"]["id"], second.json["sandbox"]["id"])
        self.assertEqual(self.ids(), [second.json["sandbox"]["id"]])

    def test_another_fingerprint_is_refused_while_a_call_runs(self):
        busy = self.start(self.argv("--keep", "--thread", "t",
                                    program="import time; print('up', flush=True); time.sleep(1000)"))
        busy.stdout.readline()
        self.assertRefused(self.run_program("pass", "--thread", "t", "--pids", "50"), "SandboxBusy")
        self.assertIsNone(busy.poll())

    def test_what_cannot_be_kept_is_refused_by_name(self):
        self.assertRefused(self.run_program("pass", "--keep"), "InvalidArgument", "--thread")
        self.assertRefused(self.run_program("pass", "--thread", "t", "--idle-ttl", "5"), "InvalidArgument", "--keep")
        for ttl in ("0", "-1", "604801", "x", ""):
            result = self.run_program("pass", "--thread", "t", "--keep", "--idle-ttl", ttl)
            self.assertRefused(result, "InvalidArgument", "--idle-ttl")
        self.assertNothingStarted()

    def test_a_configured_keep_is_nothing_to_a_run_with_a_key_of_its_own(self):
        config = self.write("casemate.toml", "[run]\nkeep = true\nidle-ttl = 30\n[exec]\ntimeout = 5\n[ls]\njson = true\n")
        result = self.run_program("print(1)", "--config", config)
        self.assertEqual((result.status, result.text), (0, "1\n"), result)
        self.assertEqual(self.verb("ls", "--config", config).json, [])
        self.run_program("pass", "--config", config, "--thread", "t")
        self.assertEqual(len(self.ids()), 1)


class Keys(Kept):
    def test_LC_10_keys_that_could_be_joined_or_trimmed_to_one_name_never_share(self):
        """LC-10"""
        long = "x" * 299
        keys = [("a-b", "c"), ("a", "b-c"), ("A", "c"), ("a", "c"), ("x/y", "c"), ("x_y", "c"), ("x y", "c"),
                (long + "1", "c"), (long + "2", "c"), ("\u00e9", "c"), ("e\u0301", "c"), ("a\n", "c"), ("a=", "c"),
                ("a,c", "c"), ("a", "c\n"), ("a ", "c")]
        for number, (scope, thread) in enumerate(keys):
            self.keep(f"open('/home/user/me', 'x').write('{number}')", thread, "--scope", scope)
        self.assertEqual(len(set(self.ids())), len(keys))
        for number, (scope, thread) in enumerate(keys):
            result = self.verb("exec", "--scope", scope, "--thread", thread, "--", "cat", "/home/user/me")
            self.assertEqual(result.text, str(number), (scope, thread, result))
        for part in ("--scope", "--thread", "--agent"):
            self.assertRefused(self.run_program("pass", part, ""), "InvalidArgument", part)


class Exec(Kept):
    def test_it_runs_a_command_in_the_kept_sandbox(self):
        self.keep("open('/home/user/kept', 'w').write('here\\n')")
        result = self.verb("exec", "--scope", "cli", "--thread", "t", "--agent", "default", "--", "cat", "/home/user/kept")
        self.assertEqual((result.status, result.out, result.err), (0, b"here\n", ""), result)
        result = self.verb("exec", "--thread", "t", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((result.status, result.out, result.err), (7, b"out\n", "err\n"), result)
        self.assertRefused(self.verb("exec", "--thread", "t", "--", "nosuch\n", "x"), "SandboxFileError",
                           "'nosuch\\n': the program cannot be executed: No such file", "PATH")
        self.assertEqual(len(self.ids()), 1, "it is still kept")

    def test_words_reach_the_command_as_they_are(self):
        self.keep("pass")
        words = ["", "a b", "$HOME", "*", "--timeout", "--", "\n", "\u00e9"]
        result = self.verb("exec", "--thread", "t", "--", "python3", "-c", "import sys; print(sys.argv[1:])", *words)
        self.assertEqual(result.text, f"{words}\n", result)

    def test_its_statuses_are_those_of_run(self):
        self.keep("pass")
        result = self.verb("exec", "--thread", "t", "--timeout", "0.3", "--", "sleep", "1000")
        self.assertEqual(result.status, 124, result)
        self.assertIn("casemate: note: the program timed out: it ran longer than its limit of 0.3 s", result.err)
        result = self.verb("exec", "--thread", "t", "--", "sh", "-c", "kill -TERM $$")
        self.assertEqual((result.status, result.err), (143, "casemate: note: the program was ended by SIGTERM.\n"), result)
        process = self.start([str(PROGRAM), "exec", "--thread", "t", "--", "sh", "-c", "echo up; sleep 1000"])
        self.signal_once_it_prints(process, signal.SIGINT)
        result = self.finish(process, time.monotonic())
        self.assertEqual(result.status, 130, result)
        self.assertIn("casemate: note: the call was cancelled; the program was stopped.", result.err)
        self.assertRefused(self.verb("exec", "--thread", "t", "--", "nowhere"), "SandboxFileError", "No such file", "PATH")

    @NEEDS_GROUPS
    def test_a_limit_that_bit_is_told_as_run_tells_it(self):
        self.keep("pass", "t", "--pids", "8")
        result = self.verb("exec", "--thread", "t", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done")
        self.assertIn("casemate: note: the limit of processes and threads was reached during the run.", result.err)

    @NEEDS_GROUPS
    def test_memory_that_ran_out_is_told_as_run_tells_it(self):
        self.keep("pass", "t", "--memory", "64M", "--disk", "1M")
        result = self.verb("exec", "--thread", "t", "--", "python3", "-c", "x = bytearray(400 << 20)")
        self.assertEqual(result.status, 137, result)
        self.assertIn("casemate: note: the program ran out of memory: it was ended at the limit for memory and written "
                      "files together.", result.err)

    def test_an_option_that_it_does_not_have_is_refused_in_one_line(self):
        for words, hint in ((("--json", "--", "true"), "--help lists them"), (("wc", "-l", "x"), "the command stands behind --")):
            result = self.verb("exec", "--thread", "t", *words)
            self.assertRefused(result, "InvalidArgument", "unknown option", hint)
            self.assertEqual(result.out, b"", "there is no --json, so nobody asked for an object")

    def test_without_a_sandbox_or_a_command_it_refuses(self):
        self.assertRefused(self.verb("exec", "--thread", "t", "--", "true"), "NoSuchSandbox", "'cli'", "'t'", "casemate ls")
        self.assertRefused(self.verb("exec", "--", "true"), "InvalidArgument", "--thread")
        self.assertRefused(self.verb("exec", "--thread", "t"), "InvalidArgument", "--")
        self.assertRefused(self.verb("exec", "--thread", "t", "true"), "InvalidArgument", "'true'", "--")
        self.assertRefused(self.verb("exec", "--thread", "", "--", "true"), "InvalidArgument", "--thread")
        self.assertRefused(self.verb("exec", "--thread", "t", "--timeout", "0", "--", "true"), "InvalidArgument", "--timeout")


class Ls(Kept):
    def test_it_lists_every_sandbox_with_its_key(self):
        self.assertEqual(self.listed(), [])
        kept = self.keep("pass", "t", "--scope", "a\nb", "--agent", "x")
        self.keep("pass", "u")
        records = self.listed()
        self.assertEqual(len(records), 2)
        for record in records:
            self.assertEqual(list(record), RECORD)
            self.assertEqual((record["backend"], record["isolation"], record["kind"]), ("linux", "container", "codeact"))
            for key in ("age_s", "idle_s", "processes", "memory_bytes"):
                self.assertIsInstance(record[key], int)
        (record,) = self.listed("--scope", "a\nb")
        self.assertEqual(record["id"], kept.json["sandbox"]["id"])
        self.assertEqual([record[part] for part in ("scope", "thread", "agent")], ["a\nb", "t", "x"])
        self.assertEqual([record["thread"] for record in self.listed("--scope", "cli")], ["u"])
        self.assertEqual(self.listed("--scope", "nowhere"), [])

    def test_the_newest_is_last_however_soon_they_came_and_none_is_idle_for_longer_than_it_is(self):
        made = [self.keep("pass", f"t{number}").json["sandbox"]["id"] for number in range(5)]
        records = self.listed()
        self.assertEqual([record["id"] for record in records], made)
        for record in records:
            self.assertLessEqual(record["idle_s"], record["age_s"])

    def test_a_key_cannot_forge_a_line_of_the_table(self):
        self.keep("pass", "t\nforged", "--scope", "\x1b[2J")
        lines = self.verb("ls").text.splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertTrue(lines[0].startswith("ID "), lines)
        self.assertRegex(lines[1], r"^[0-9a-f]{16}  linux +container +\S+ +t\S*forged")
        self.assertNotIn("\x1b", lines[1])

    @NEEDS_GROUPS
    def test_a_busy_one_is_not_idle_and_has_processes(self):
        process = self.start(self.argv("--thread", "t", program="import time; print('up', flush=True); time.sleep(1000)"))
        process.stdout.readline()
        (record,) = self.listed()
        self.assertEqual(record["idle_s"], 0)
        self.assertGreaterEqual(record["processes"], 1)
        self.assertGreater(record["memory_bytes"], 0)


class Rm(Kept):
    def test_it_ends_what_is_named_and_says_how_many(self):
        one, two, three, four = (self.keep("pass", thread, "--scope", scope).json["sandbox"]["id"]
                                 for thread, scope in (("t", "a"), ("u", "a"), ("t", "b"), ("v", "b")))
        self.assertEqual(self.verb("rm", one).out, b"removed 1\n")
        self.assertEqual(sorted(self.ids()), sorted([two, three, four]))
        self.assertEqual(self.verb("rm", "--scope", "b", "--thread", "t").out, b"removed 1\n")
        self.assertEqual(self.verb("rm", "--scope", "b", "--thread", "t").out, b"removed 0\n")
        self.assertEqual(self.verb("rm", "--scope", "a").out, b"removed 1\n")
        result = self.verb("rm", "--scope", "nowhere")
        self.assertEqual((result.status, result.out), (0, b"removed 0\n"))
        self.assertEqual(self.verb("rm", "--all").out, b"removed 1\n")
        self.assertEqual(self.ids(), [])
        for identifier in (one, two, three, four):
            self.assertEqual(cgroups_of(identifier), [])

    def test_an_unknown_id_is_refused_and_the_others_go(self):
        kept = self.keep("pass").json["sandbox"]["id"]
        result = self.verb("rm", "0123456789abcdef", kept, "../x")
        self.assertEqual(result.out, b"removed 1\n", result)
        self.assertRefused(result, "NoSuchSandbox", "0123456789abcdef", "../x")
        self.assertNotIn(kept, result.err)

    @NEEDS_GROUPS
    def test_LC_12_it_ends_a_sandbox_that_another_process_holds(self):
        """LC-12: and the next run of the key gets a fresh one"""
        process = self.start(self.argv("--thread", "t",
                                       program="import time; print('up', flush=True); time.sleep(1000)"))
        # What it says first: one whose sandbox ends before its program began gets another sandbox.
        self.assertEqual(process.stdout.readline(), b"up\n")
        (identifier,) = self.ids()
        self.assertEqual(self.verb("rm", identifier).out, b"removed 1\n")
        self.assertRefused(self.finish(process, time.monotonic()), "SandboxUnavailable")
        again = self.run_json("print('fresh')", "--thread", "t")
        self.assertEqual(again.json["stdout"], "fresh\n")
        self.assertNotEqual(again.json["sandbox"]["id"], identifier)

    def test_a_thread_without_its_scope_is_said_to_lack_it(self):
        self.assertRefused(self.verb("rm", "--thread", "t"), "InvalidArgument", "--thread needs --scope", "--scope cli")

    def test_what_the_line_names_is_meant_whatever_the_file_has(self):
        one, two, three = (self.keep("pass", thread, "--scope", "a").json["sandbox"]["id"] for thread in "tuv")
        everything = self.write("all.toml", "[rm]\nall = true\n")
        scope = self.write("scope.toml", "[rm]\nscope = 'a'\nthread = 'u'\n")
        self.assertEqual(self.verb("rm", "--config", everything, one).out, b"removed 1\n")
        self.assertEqual(sorted(self.ids()), sorted([two, three]))
        self.assertEqual(self.verb("rm", "--config", everything, "--scope", "b").out, b"removed 0\n")
        self.assertEqual(self.verb("rm", "--config", scope, "0123456789abcdef").out, b"removed 0\n")
        self.assertEqual(self.verb("rm", "--config", scope).out, b"removed 1\n")
        self.assertEqual(self.ids(), [three])
        self.assertEqual(self.verb("rm", "--config", scope, "--thread", "t").out, b"removed 0\n")
        both = self.write("both.toml", "[rm]\nall = true\nscope = 'a'\n")
        self.assertRefused(self.verb("rm", "--config", both), "ConfigInvalid", "more than one way to choose")
        self.assertEqual(self.verb("rm", "--config", scope, "--all").out, b"removed 1\n")

    def test_exactly_one_way_to_choose_is_taken(self):
        for words in ((), ("0123456789abcdef", "--all"), ("--all", "--scope", "a"), ("--thread", "t"),
                      ("--scope", ""), ("--scope", "a", "--thread", "")):
            with self.subTest(words=words):
                self.assertRefused(self.verb("rm", *words), "InvalidArgument")



class Making(Case):
    @unittest.skipIf(SANITIZED, "the sanitizer looks for leaks by ptrace, which strace has taken")
    @NEEDS_ROOT
    @NEEDS_GROUPS
    def test_a_sandbox_that_ends_while_its_groups_are_made_leaves_none(self):
        """LC-04"""
        # This process makes groups while the keeper makes the sandbox: slowly enough to be overtaken.
        # In version 2 that is one group, in version 1 one or more of each controller.
        microseconds = 1_000_000 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 100_000
        slowly = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=mkdirat",
                  "-e", f"inject=mkdirat:delay_enter={microseconds}"]
        started = time.monotonic()
        process = self.start(slowly + self.argv(program="print(1)"))
        agents = {}

        def has_an_agent():
            for sandbox in (self.state / "new").glob("*"):
                for group in map(Path, cgroups_of(sandbox.name)):
                    for members in (group / "cgroup.procs", group / "agent/cgroup.procs"):
                        if members.exists() and (found := members.read_text().split()):
                            agents[sandbox.name] = int(found[0])
            return agents

        self.wait_until(has_an_agent, "the agent in its group")
        [(sandbox, agent)] = agents.items()
        os.kill(agent, signal.SIGKILL)
        result = self.finish(process, started)
        self.assertEqual((result.status, result.text), (0, "1\n"), result)
        self.assertEqual(cgroups_of(sandbox), [])


class UnusableState(Kept):
    """Of one backend; the others have their own."""

    def setUp(self):
        super().setUp()
        found = {record["name"]: record["available"] for record in self.verb("backends", "--json").json}
        if not found["oci"]:
            self.skipTest("no other backend works here")
        self.state.mkdir(exist_ok=True)
        self.state.chmod(0o777)
        self.addCleanup(self.state.chmod, 0o700)

    def test_a_run_says_which_backend_it_uses_instead_and_why(self):
        result = self.run_json("print('ran')")
        self.assertEqual((result.status, result.json["sandbox"]["backend"]), (0, "oci"), result)
        self.assertRegex(result.err, "(?m)^casemate: note: backend linux does not work, so oci is used: the state "
                                     "directory .* mode 777; .*CASEMATE_STATE_DIR")

    def test_the_sandboxes_of_the_others_are_listed_and_ended(self):
        kept = [self.keep("print(1)", thread).json["sandbox"]["id"] for thread in "abcd"]
        unseen = ("SandboxUnavailable", "sandboxes of backend linux could not be looked at", "mode 777")
        listed = self.verb("ls", "--json")
        self.assertRefused(listed, *unseen)
        self.assertEqual({record["id"] for record in listed.json}, set(kept))
        table = self.verb("ls")
        self.assertRefused(table, *unseen)
        self.assertIn(kept[0], table.text)
        # All that was asked for was there.
        result = self.verb("rm", kept[0])
        self.assertEqual((result.status, result.text, result.err), (0, "removed 1\n", ""))
        result = self.verb("rm", kept[0])
        self.assertRefused(result, *unseen, kept[0])
        for words in (("--scope", "cli", "--thread", "b"), ("--scope", "none"), ("--all",)):
            with self.subTest(words=words):
                result = self.verb("rm", *words)
                self.assertRefused(result, *unseen)
                self.assertEqual(result.text, f"removed { {'b': 1, 'none': 0, '--all': 2}[words[-1]] }\n")

    def test_a_command_finds_the_sandbox_that_another_backend_keeps(self):
        self.keep("print(1)", "a")
        result = self.verb("exec", "--thread", "a", "--", "echo", "found")
        self.assertEqual((result.status, result.text, result.err), (0, "found\n", ""), result)
        result = self.verb("exec", "--thread", "b", "--", "echo", "found")
        self.assertRefused(result, "SandboxUnavailable",
                           "no sandbox is kept for scope 'cli', thread 'b', agent 'default' elsewhere",
                           "sandboxes of backend linux could not be looked at", "mode 777")


if __name__ == "__main__":
    unittest.main()
