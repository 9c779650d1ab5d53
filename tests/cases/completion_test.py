"""Command lines completed by real shells, with what `casemate completion` writes."""

import os
import pty
import select
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from harness import PROGRAM


class Session:
    """An interactive shell on a terminal of its own, driven by keys."""

    def __init__(self, argv, environment, folder):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, cwd=folder,
                                        env={"TERM": "dumb", **environment}, start_new_session=True)
        os.close(slave)
        self.seen = b""

    def send(self, keys):
        os.write(self.master, keys.encode())

    def until(self, mark):
        """Everything up to `mark`, which is taken away."""
        limit = time.monotonic() + 30
        while mark.encode() not in self.seen:
            if not select.select([self.master], [], [], max(0, limit - time.monotonic()))[0]:
                raise AssertionError(f"{mark!r} did not come: {self.seen[-2000:]!r}")
            self.seen += os.read(self.master, 65536)
        text, _, self.seen = self.seen.partition(mark.encode())
        return text.decode(errors="replace")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


class Shells(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="casemate-completion-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        for name in ("program.py", "data with space.csv", "sales.csv"):
            (self.dir / name).touch()
        (self.dir / "outputs").mkdir()

    def script(self, shell):
        path = self.dir / f".completion.{shell}"
        path.write_bytes(subprocess.run([PROGRAM, "completion", shell], stdout=subprocess.PIPE, check=True).stdout)
        return path

    def start(self, argv, environment):
        session = Session(argv, environment, self.dir)
        self.addCleanup(session.close)
        return session


class Bash(Shells):
    def setUp(self):
        super().setUp()
        # In one line, so that what is typed below is all that comes back.
        rc = self.dir / ".bashrc"
        rc.write_text(f"source {self.script('bash')}\nbind 'set bell-style none'\nPS1=\n"
                      "show() { printf 'BEGIN\\n'; printf '<%s>' \"$@\"; printf '\\nEND\\n'; }\n")
        self.bash = self.start(["bash", "--noprofile", "--rcfile", str(rc), "-i"], {"PATH": "/usr/bin:/bin"})

    def completed(self, typed, keys="\t"):
        """The words of the line after completing what was typed; "\x1b*" puts all possible ones."""
        self.bash.send(f"{typed}{keys}\x01show \x05\n")
        self.bash.until("BEGIN\r\n")
        return self.bash.until("\r\nEND\r\n")[1:-1].split("><")

    def all(self, typed):
        return self.completed(typed, "\x1b*")

    def test_verbs_and_options_of_the_verb(self):
        self.assertEqual(self.all("casemate "),
                         ["casemate", "--help", "--version", "backends", "bench", "completion", "conformance", "doctor",
                          "exec", "image", "ls", "mcp", "rm", "run"])
        self.assertEqual(self.completed("casemate ba"), ["casemate", "backends"])
        self.assertEqual(self.completed("casemate run --min"), ["casemate", "run", "--min-isolation"])
        self.assertEqual(self.all("casemate run --files-"),
                         ["casemate", "run", "--files-in-limit", "--files-out-limit"])
        self.assertEqual(self.all("casemate backends --"), ["casemate", "backends", "--config", "--help", "--json"])

    def test_every_option_of_the_help_is_offered(self):
        text = subprocess.run([PROGRAM, "run", "--help"], capture_output=True, text=True, check=True).stdout
        options = sorted(line.split()[0] for line in text.splitlines() if line.startswith("  -"))
        self.assertGreater(len(options), 20)
        self.assertEqual(sorted(self.all("casemate run -")[2:]), options)

    def test_known_values(self):
        self.assertEqual(self.completed("casemate run --min-isolation hard"),
                         ["casemate", "run", "--min-isolation", "hardened_container"])
        self.assertEqual(self.completed("casemate run --min-isolation=hard"),
                         ["casemate", "run", "--min-isolation=hardened_container"])
        self.assertEqual(self.all("casemate run --deny-identity "), ["casemate", "run", "--deny-identity", "app", "user"])
        self.assertEqual(self.all("casemate completion "), ["casemate", "completion", "bash", "fish", "zsh"])
        self.assertEqual(self.all("casemate image --json "), ["casemate", "image", "--json", "import", "ls", "rm"])

    def test_a_word_that_is_there_is_not_offered_again(self):
        for typed in ("casemate image rm ", "casemate image --json rm ", "casemate completion bash "):
            self.assertEqual(self.completed(typed), typed.split())

    def test_paths(self):
        self.assertEqual(self.completed("casemate run --out-dir o"), ["casemate", "run", "--out-dir", "outputs/"])
        self.assertEqual(self.completed("casemate run pro"), ["casemate", "run", "program.py"])
        self.assertEqual(self.completed("casemate run --json pro"), ["casemate", "run", "--json", "program.py"])
        self.assertEqual(self.completed("casemate run --file sal"), ["casemate", "run", "--file", "sales.csv"])
        self.assertEqual(self.completed("casemate run --file x=sal"), ["casemate", "run", "--file", "x=sales.csv"])
        self.assertEqual(self.completed("casemate run --file=x=sal"), ["casemate", "run", "--file=x=sales.csv"])
        self.assertEqual(self.completed("casemate run --file data"), ["casemate", "run", "--file", "data with space.csv"])
        self.assertEqual(self.completed("casemate run --image dir:out"), ["casemate", "run", "--image", "dir:outputs/"])
        self.assertEqual(self.completed("casemate run --image=docker-archive:sal"),
                         ["casemate", "run", "--image=docker-archive:sales.csv"])
        self.assertEqual(self.completed("casemate run --image di\tout"), ["casemate", "run", "--image", "dir:outputs/"])
        self.assertEqual(self.completed("casemate image import oci:out"), ["casemate", "image", "import", "oci:outputs/"])
        self.assertEqual(self.completed("casemate image import docker-archive:"), ["casemate", "image", "import", "docker-archive:"])
        self.assertEqual(self.completed("casemate run p.py -- sal"), ["casemate", "run", "p.py", "--", "sales.csv"])

    def test_what_nobody_can_know_stays_as_typed(self):
        for typed in ("casemate run --timeout ", "casemate run --scope sal", "casemate nosuchverb x"):
            self.assertEqual(self.completed(typed), typed.split())

    def test_words_are_not_parted_where_readline_was_told_so(self):
        self.bash.send("COMP_WORDBREAKS=${COMP_WORDBREAKS//=}\n")
        self.assertEqual(self.completed("casemate run --file x=sal"), ["casemate", "run", "--file", "x=sales.csv"])
        self.assertEqual(self.completed("casemate run --min-isolation=hard"),
                         ["casemate", "run", "--min-isolation=hardened_container"])


@unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
class Zsh(Shells):
    def setUp(self):
        super().setUp()
        rc = self.dir / ".zshrc"
        rc.write_text(f"PS1= RPS1= PROMPT_EOL_MARK=\nunsetopt zle_bracketed_paste 2>/dev/null\nautoload -Uz compinit\n"
                      f"compinit -u -d {self.dir}/.dump\nsource {self.script('zsh')}\nbindkey -e\nunsetopt beep\n"
                      "show() { print BEGIN; printf '<%s>' \"$@\"; print; print END; }\n")
        self.zsh = self.start(["zsh", "-i"], {"PATH": "/usr/bin:/bin", "ZDOTDIR": str(self.dir), "HOME": str(self.dir)})

    def completed(self, typed):
        """The words after completing; a = or / that zsh adds goes again as the cursor leaves."""
        self.zsh.send(f"{typed}\t\x01show \x05\n")
        self.zsh.until("BEGIN\r\n")
        return self.zsh.until("\r\nEND\r\n")[1:-1].split("><")

    def test_verbs_options_values_and_paths(self):
        for typed, last in (
                ("casemate ba", "backends"),
                ("casemate run --min", "--min-isolation"),
                ("casemate run --min-isolation hard", "hardened_container"),
                ("casemate run --min-isolation=hard", "--min-isolation=hardened_container"),
                ("casemate run --out-dir o", "outputs"),
                ("casemate run --file x=sal", "x=sales.csv"),
                ("casemate run --json pro", "program.py"),
                ("casemate completion fi", "fish"),
                ("casemate image i", "import"),
                ("casemate image rm i", "i"),
                ("casemate run --image ho", "host"),
                ("casemate run --image dir:out", "dir:outputs"),
                ("casemate run --image oci:out", "oci:outputs"),
                ("casemate run --image=docker-archive:sal", "--image=docker-archive:sales.csv"),
                ("casemate run --image di\tout", "dir:outputs"),
                ("casemate image import oci:out", "oci:outputs"),
                ("casemate image --json import docker-archive:sal", "docker-archive:sales.csv"),
                ("casemate image rm oci:out", "oci:out"),
                ("casemate run --scope sal", "sal"),
        ):
            with self.subTest(typed=typed):
                self.assertEqual(self.completed(typed)[-1], last)


@unittest.skipIf(shutil.which("fish") is None, "fish is not installed")
class Fish(Shells):
    def completed(self, typed):
        """What fish offers, without descriptions."""
        result = subprocess.run(
            ["fish", "--no-config", "-c", f"source {self.script('fish')}; complete -C '{typed}'"], cwd=self.dir,
            capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": str(self.dir)}, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted(line.split("\t")[0] for line in result.stdout.splitlines())

    def test_verbs_options_values_and_paths(self):
        for typed, offered in (
                ("casemate ba", ["backends"]),
                ("casemate run --min", ["--min-isolation"]),
                ("casemate run --files-", ["--files-in-limit", "--files-out-limit"]),
                ("casemate run --min-isolation hard", ["hardened_container"]),
                ("casemate run --min-isolation=hard", ["--min-isolation=hardened_container"]),
                ("casemate run --out-dir o", ["outputs/"]),
                ("casemate run --json pro", ["program.py"]),
                ("casemate run --file sal", ["sales.csv"]),
                ("casemate completion fi", ["fish"]),
                ("casemate image ", ["import", "ls", "rm"]),
                ("casemate image rm ", []),
                ("casemate run --image ", ["dir:", "docker-archive:", "host", "oci:"]),
                ("casemate run --image dir:out", ["dir:outputs/"]),
                ("casemate run --image=oci:out", ["--image=oci:outputs/"]),
                ("casemate run --image docker-archive:data", ["docker-archive:data with space.csv"]),
                ("casemate image import oci:out", ["oci:outputs/"]),
                ("casemate image rm oci:out", []),
                ("casemate run --scope sal", []),
        ):
            with self.subTest(typed=typed):
                self.assertEqual(self.completed(typed), offered)


class Verb(unittest.TestCase):
    def refused(self, *words):
        result = subprocess.run([PROGRAM, "completion", *words], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        return result.stderr

    def test_an_unknown_shell_is_refused_with_the_nearest(self):
        self.assertIn("the nearest is bash", self.refused("bsh"))
        self.assertIn("bash, zsh, fish", self.refused())
        self.assertIn("more than one", self.refused("bash", "zsh"))

    def test_it_is_shown_in_help(self):
        text = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("\n  completion ", text)


if __name__ == "__main__":
    unittest.main()
