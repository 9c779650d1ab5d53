"""casemate.toml, met from outside: where it is read from, what it sets, how it is refused."""

import os
import re
import shlex
import subprocess
import tomllib
import unittest

from harness import PROGRAM, Case


class Config(Case):
    def setUp(self):
        super().setUp()
        self.home = self.dir / "home"
        self.clone = self.dir / "clone"
        self.clone.mkdir()

    def config(self, text, name="home/.config/casemate/casemate.toml"):
        return self.write(name, text)

    def environment(self, extra=None):
        return super().environment({"HOME": str(self.home), **(extra or {})})

    def test_defaults_of_the_users_file_hold_and_a_flag_wins(self):
        self.config("[run]\njson = true\ntimeout = 0.5\nlabel = ['from=file']\n")
        program = "print('began', flush=True)\nimport time\ntime.sleep(1.5)\nprint('ended')"
        result = self.run_program(program)
        self.assertEqual(result.status, 124, result)
        self.assertEqual(result.json["status"], "timed_out")
        result = self.run_program(program, "--timeout", "20")
        self.assertEqual((result.status, result.json["stdout"]), (0, "began\nended\n"), result)

    def test_outputs_land_where_the_file_says(self):
        self.config(f"[run]\noutput = ['a.txt', 'b.txt']\nout-dir = '{self.out}'\noverwrite = true\n")
        for text in ("one", "two"):
            result = self.run_program(f"for n in 'ab': open(n + '.txt', 'w').write('{text}')")
            self.assertEqual(result.status, 0, result)
        self.assertEqual((self.out / "b.txt").read_text(), "two")
        # Naming other outputs takes the place of the default, also in the other way.
        result = self.run_program("open('c.txt', 'w')", "--output", "c.txt")
        self.assertEqual((result.status, result.err), (0, "saved c.txt\n"), result)
        result = self.run_program(
            "open('d', 'w'); open('outputs.json', 'w').write('{\"outputs\": [{\"path\": \"d\"}]}')", "--manifest")
        self.assertEqual((result.status, result.err), (0, "saved d\n"), result)

    def test_a_directory_for_outputs_says_nothing_where_there_are_none(self):
        self.config(f"[run]\nout-dir = '{self.out}'\noverwrite = true\n")
        result = self.run_program("print(1)")
        self.assertEqual((result.status, result.out, result.err), (0, b"1\n", ""), result)

    def test_the_current_directory_configures_nothing(self):
        for name in ("casemate.toml", "casemate/casemate.toml", ".config/casemate/casemate.toml", ".casemate.toml"):
            self.config("[run]\njson = true\nnonsense = 1\n", f"clone/{name}")
        result = self.run_program("print(1)", cwd=self.clone)
        self.assertEqual((result.status, result.out, result.err), (0, b"1\n", ""), result)
        for extra in ({"XDG_CONFIG_HOME": "."}, {"XDG_CONFIG_HOME": ".config"}, {"HOME": "."}, {"HOME": ""}):
            with self.subTest(environment=extra):
                self.assertEqual(self.run_program("print(1)", cwd=self.clone, env=extra).out, b"1\n")
        result = self.run_program("print(1)", cwd=self.clone, env={"CASEMATE_CONFIG": "casemate.toml"})
        self.assertRefused(result, "ConfigInvalid", "relative")

    def test_a_directory_of_the_environment_is_an_absolute_path(self):
        for name in ("CASEMATE_STATE_DIR", "CASEMATE_IMAGE_DIR", "CASEMATE_MICROVM_KERNEL"):
            for verb in (self.argv(program="print(1)"), [PROGRAM, "ls"], [PROGRAM, "doctor"]):
                with self.subTest(name=name, verb=verb[1]):
                    result = self.run_argv(verb, cwd=self.clone, env={name: "rel"})
                    self.assertRefused(result, "ConfigInvalid", name, "'rel'", "absolute")
                    self.assertFalse((self.clone / "rel").exists())

    def test_a_file_that_others_may_change_is_refused_however_it_was_found(self):
        path = self.config("[run]\njson = true\n")
        os.chmod(path, 0o646)
        for extra, words in (({}, ()), ({"CASEMATE_CONFIG": str(path)}, ()), ({}, ("--config", str(path)))):
            with self.subTest(environment=extra, words=words):
                self.assertRefused(self.run_program("print(1)", *words, env=extra), "ConfigInvalid", str(path),
                                   f"owner {os.geteuid()}, mode 0646", f"chmod go-w '{path}'")
        os.chmod(path, 0o644)
        os.chmod(path.parent, 0o757)
        self.assertRefused(self.run_program("print(1)"), "ConfigInvalid", f"'{path.parent}', which it is in")
        os.chmod(path.parent, 0o755)
        self.assertEqual(self.run_program("print(1)").json["stdout"], "1\n")

    def test_a_file_of_another_user_is_refused(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a file away")
        path = self.config("[run]\njson = true\n")
        os.chown(path, 65534, 65534)
        self.assertRefused(self.run_program("print(1)"), "ConfigInvalid", "belongs to user 65534", f"chown 0 '{path}'")

    def test_a_pipe_configures_and_a_device_configures_nothing(self):
        script = 'exec "$0" run --config <(printf "[run]\njson = true\n") "$1"'
        result = self.run_argv(["/bin/bash", "-c", script, str(PROGRAM), str(self.write("program.py", "print(1)"))])
        self.assertEqual(result.json["stdout"], "1\n")
        self.assertEqual(self.run_program("print(1)", "--config", "/dev/null").out, b"1\n")

    def test_a_file_is_named_by_option_or_variable(self):
        one = self.config("[run]\nscope = ''\n", "one.toml")
        two = self.config("[run]\nagent = ''\n", "two.toml")
        self.assertRefused(self.run_program("1", env={"CASEMATE_CONFIG": str(one)}), "ConfigInvalid", f"{one}:2: --scope")
        both = self.run_program("1", "--config", two, env={"CASEMATE_CONFIG": str(one)})
        self.assertRefused(both, "ConfigInvalid", f"{two}:2: --agent")
        relative = self.run_program("1", "--config", "two.toml", cwd=self.dir)
        self.assertRefused(relative, "ConfigInvalid", "two.toml:2: --agent")
        self.assertRefused(self.run_program("1", "--config", self.dir / "none"), "ConfigInvalid", "none")
        self.assertEqual(self.run_program("print(1)", "--config", "/dev/null", env={"CASEMATE_CONFIG": str(one)}).out,
                         b"1\n")

    def test_what_the_file_cannot_say_is_refused_with_its_line(self):
        refused = (
            ("[run]\n\ntimeuot = 5", ":3: unknown key 'timeuot' in [run]", "timeout"),
            ("[urn]", ":1: unknown key 'urn'", "run"),
            ("[run]\ntimeout = 'x'", ":2: timeout is a string, and takes a number", "timeout = 2.5"),
            ("[run]\njson = 1", ":2: json is a number, and takes true or false", "json = true"),
            ("[run]\ntimeout = 0", ":2: --timeout cannot be '0'", "604800"),
            ("[run]\nmemory = '1M'", ":2: --memory cannot be '1M'", "16M"),
            ("[run]\nbackend = 'linxu'", ":2: --backend does not know 'linxu'", "linux"),
            ("[run]\nbackend = [", ":2: ", "TOML"),
            ("[backends.linux]\nstate_dri = '/x'", ":2: unknown key 'state_dri'", "state_dir"),
        )
        for text, *words in refused:
            with self.subTest(text=text):
                path = self.config(text)
                result = self.run_program("print('ran')")
                self.assertRefused(result, "ConfigInvalid", str(path), *words)
                self.assertEqual(result.out, b"")
                self.assertEqual(self.run_json("1").json["error"]["code"], "ConfigInvalid")
        self.assertNothingStarted()

    def test_an_example_for_the_file_is_what_the_help_has_for_a_shell(self):
        overview = self.run_argv([str(PROGRAM), "--help"]).text
        tried = 0
        for verb in re.findall(r"^  ([a-z]+) ", overview.split("Verbs:")[1], re.M):
            text = self.run_argv([str(PROGRAM), verb, "--help"]).text
            for name, value, example in re.findall(
                    r"^  --(\S+)(?: (\S+))?\n(?:      .*\n)*?      default: .*; example: (.*)\n", text, re.M):
                if name in ("help", "config"):
                    continue
                with self.subTest(verb=verb, option=name):
                    path = self.config(f"[{verb}]\n{name} = 1979-05-27\n")
                    said = self.run_program("1").err
                    shown = re.search(r"; for example (.*)\n", said)[1]
                    self.config(f"[{verb}]\n{shown}\n")
                    self.assertNotIn("ConfigInvalid", self.run_argv([str(PROGRAM), "backends"]).err)
                    (key, found), = tomllib.loads(shown).items()
                    self.assertEqual(key, name)
                    found = found[0] if isinstance(found, list) else found
                    words = shlex.split(example)
                    self.assertEqual(str(found) if value else found,
                                     words[words.index(f"--{name}") + 1] if value else True)
                    tried += 1
        self.assertGreater(tried, 40)

    def test_json_of_the_file_shapes_refusals_too(self):
        self.config("[run]\njson = true\nscope = ''\n")
        self.assertEqual(self.run_program("1").json["error"]["code"], "ConfigInvalid")
        self.config("[run]\njson = true\n")
        self.assertEqual(self.run_program("1", "--timeout", "0").json["error"]["code"], "InvalidArgument")

    def test_backends_reads_its_own_table_and_the_engines(self):
        state = self.dir / "other"
        self.config(f"[backends]\njson = true\n[backends.linux]\nstate_dir = '{state}'\n")
        environment = self.environment()
        del environment["CASEMATE_STATE_DIR"]
        run = subprocess.run([PROGRAM, "run", self.write("p.py", "print(1)")], env=environment, capture_output=True)
        self.assertEqual((run.returncode, run.stdout), (0, b"1\n"), run)
        self.assertTrue(state.is_dir())
        listed = subprocess.run([PROGRAM, "backends"], env=environment, capture_output=True)
        self.assertEqual((listed.returncode, listed.stdout[:1]), (0, b"["), listed)

    def test_help_and_version_need_no_file(self):
        self.config("not toml at all")
        for words in (["--version"], ["--help"], ["run", "--help"], ["backends", "--help"]):
            self.assertEqual(self.run_argv([str(PROGRAM), *words]).status, 0)


if __name__ == "__main__":
    unittest.main()
