"""The interpreter's start-up with our support directory, as a sandbox starts it: the same argv and
environment, in a plain directory. /usr/bin/python3 runs this and is what is tested."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "casemate" / "guest" / "support"
# Base set of a sandbox, and codeact_environment (casemate/kinds/codeact/run.cc).
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/casemate/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
SHADOW = 'print("SHADOWED", __name__)\nraise SystemExit(3)\n'


class SiteCustomize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.call = Path(folder.name)
        self.work = self.call / "work"
        self.support = self.call / "support"
        (self.call / "program").mkdir()
        self.work.mkdir()
        shutil.copytree(SUPPORT, self.support)

    def run_program(self, code, *options, environment=()):
        program = self.call / "program" / "program.py"
        program.write_text(code)
        return subprocess.run(
            ["/usr/bin/python3", *options, str(program)], cwd=self.work, capture_output=True,
            text=True, env={**ENVIRONMENT, "PYTHONPATH": str(self.support), **dict(environment)},
            timeout=60)

    def share(self, name, content=SHADOW):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def test_a_shared_module_imports(self):
        self.share("helper.py", "VALUE = 42\n")
        result = self.run_program("import helper\nprint(helper.VALUE)\n")
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("42\n", "", 0))

    def test_nothing_is_written_beside_a_shared_module(self):
        self.share("helper.py", "VALUE = 42\n")
        self.run_program("import helper\n")
        self.assertEqual(os.listdir(self.work), ["helper.py"])

    def test_shared_files_do_not_reach_start_up(self):
        """IN-08"""
        for name in ("json.py", "socket.py", "site.py", "sitecustomize.py", "usercustomize.py",
                     "encodings/__init__.py", "os.py", "codecs.py", "io.py", "abc.py",
                     "casemate_tools.py", "readline.py", "runpy.py", "zipimport.py"):
            self.share(name)
        result = self.run_program("print('ran')\n")
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("ran\n", "", 0))

    def test_a_shadowed_name_harms_the_programs_own_import(self):
        """IN-08"""
        self.share("json.py", "VALUE = 'shared'\n")
        result = self.run_program("import json\nprint(json.VALUE)\n")
        self.assertEqual(result.stdout, "shared\n")

    def test_a_module_already_imported_wins_over_a_shared_one(self):
        self.share("os.py")
        self.share("sitecustomize.py")
        result = self.run_program(
            "import os, sitecustomize\nprint(os.sep, sitecustomize.__file__)\n")
        self.assertEqual(result.stdout, f"/ {self.support}/sitecustomize.py\n")

    def test_the_current_directory_stands_before_the_standard_library(self):
        result = self.run_program("import sys\nprint(*sys.path, sep='\\n')\n")
        path = result.stdout.splitlines()
        self.assertEqual(path[:3], [str(self.call / "program"), str(self.work), str(self.support)])

    def test_a_program_in_another_encoding_runs(self):
        self.share("encodings/__init__.py")
        program = self.call / "program" / "program.py"
        program.write_bytes(b"# -*- coding: latin-1 -*-\nprint('\xe9')\n")
        result = subprocess.run(["/usr/bin/python3", str(program)], cwd=self.work,
                                capture_output=True, timeout=60,
                                env={**ENVIRONMENT, "PYTHONPATH": str(self.support)})
        self.assertEqual(result.stdout, "é\n".encode())

    def test_a_directory_that_is_gone_does_not_stop_start_up(self):
        program = self.call / "program" / "program.py"
        program.write_text("import sys\nprint('ran', '' in sys.path)\n")
        result = subprocess.run(
            ["/bin/sh", "-c", 'rmdir "$1" && exec /usr/bin/python3 "$2"', "sh", str(self.work),
             str(program)], cwd=self.work, capture_output=True, text=True, timeout=60,
            env={**ENVIRONMENT, "PYTHONPATH": str(self.support)})
        self.assertEqual((result.stdout, result.stderr), ("ran False\n", ""))

    def test_nothing_is_imported_that_a_bare_start_does_not(self):
        """Every program waits for start-up; modules that the image's own sitecustomize pulls in may
        be missing, which is no loss."""
        code = "import sys\nprint(*sys.modules, sep='\\n')\n"
        ours = set(self.run_program(code).stdout.split())
        bare = set(self.run_program(code, environment={"PYTHONPATH": ""}).stdout.split())
        self.assertIn("sitecustomize", ours)
        self.assertLessEqual(ours - {"sitecustomize"}, bare)

    def test_it_leaves_no_names_behind(self):
        result = self.run_program(
            "import sitecustomize\nprint([n for n in vars(sitecustomize) if n[0] != '_'])\n")
        self.assertEqual(result.stdout, "[]\n")

    def test_a_child_interpreter_imports_from_its_own_directory(self):
        self.share("helper.py", "VALUE = 42\n")
        self.share("child.py", "import helper\nprint(helper.VALUE)\n")
        result = self.run_program(
            "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)\n")
        self.assertEqual((result.stdout, result.stderr), ("42\n", ""))

    def test_the_environment_here_is_the_one_of_the_kind(self):
        source = (ROOT / "casemate" / "kinds" / "codeact" / "run.cc").read_text()
        ours = set(re.findall(r'"(PYTHON\w+)"', source)) - {"PYTHONPATH"}
        self.assertEqual(ours, {name for name in ENVIRONMENT if name.startswith("PYTHON")})


if __name__ == "__main__":
    unittest.main()
