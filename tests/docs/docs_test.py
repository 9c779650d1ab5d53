"""What the documents show works: every `sh` block is run, and the C++ example is the compiled one.

A block that is not run says why in a comment on the line above it: <!-- not run: REASON -->. Blocks
run one by one in a directory of their own that has this tree's examples and the build of this test as
build/release, with a state root of their own.
"""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CASEMATE_BUILD_DIR", ROOT / "build/release")).resolve()
BLOCK = re.compile(r"(?:^<!-- not run: (?P<reason>[^\n]*) -->\n)?^```sh\n(?P<text>.*?)^```$", re.M | re.S)


def documents():
    found = [path for path in ROOT.glob("*.md")] + [path for path in ROOT.glob("docs/**/*.md")]
    return sorted(found + list((ROOT / "casemate").glob("**/*.md")))


def blocks(text):
    return [(match["reason"], match["text"]) for match in BLOCK.finditer(text)]


class Documents(unittest.TestCase):
    def test_every_command_shown_works(self):
        if os.geteuid() != 0:
            self.skipTest("the commands shown state limits that need control groups")
        ran = 0
        for document in documents():
            for reason, text in blocks(document.read_text()):
                if reason:
                    continue
                with self.subTest(document=str(document.relative_to(ROOT)), text=text):
                    self.run_block(text)
                    ran += 1
        self.assertGreater(ran, 0)

    def run_block(self, text):
        with tempfile.TemporaryDirectory(prefix="casemate-docs-", ignore_cleanup_errors=True) as folder:
            work = Path(folder)
            (work / "build").mkdir()
            (work / "build/release").symlink_to(BUILD)
            (work / "examples").symlink_to(ROOT / "examples")
            result = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text], cwd=work, capture_output=True, text=True, timeout=100,
                env={"PATH": "/usr/bin:/bin", "CASEMATE_STATE_DIR": str(work / "state"),
                     "CASEMATE_IMAGE_DIR": str(work / "images")})
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def run_example(self, name):
        if os.geteuid() != 0:
            self.skipTest("the commands shown state limits that need control groups")
        with tempfile.TemporaryDirectory(prefix="casemate-docs-", ignore_cleanup_errors=True) as folder:
            result = subprocess.run([BUILD / name], capture_output=True, text=True, timeout=60,
                                    env={"PATH": "/usr/bin:/bin", "CASEMATE_STATE_DIR": folder})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_the_readme_shows_the_example_that_is_compiled(self):
        example = (ROOT / "examples/readme.cc").read_text()
        self.assertIn(f"```cpp\n{example}```\n", (ROOT / "README.md").read_text())
        self.assertLessEqual(example.count("\n"), 20)

    def test_the_page_on_kinds_shows_the_example_that_is_compiled(self):
        example = (ROOT / "examples/word_count.cc").read_text()
        self.assertIn(f"```cpp\n{example}```\n", (ROOT / "docs/writing-a-kind.md").read_text())

    def test_the_example_of_the_page_on_kinds_runs(self):
        self.assertEqual(self.run_example("word_count").split(), ["6", "text"])

    def test_EG_08_the_page_on_egress_says_what_a_list_does_not_bound(self):
        """EG-08: a limit that is known has to be written down where an operator looks for it."""
        page = (ROOT / "docs/egress.md").read_text().split("## What a list does not bound")[1]
        for said in ("way out for all that the program can read", "way in for content that nobody chose",
                     "Inside TLS the `Host` header is encrypted", "Shared front ends"):
            self.assertIn(said, " ".join(page.split()))

    def test_the_table_of_codes_names_every_refusal_and_nothing_else(self):
        # "Name" stands in comments.
        known = {code for header in ("casemate/core/errors.h", "apps/casemate/console.h")
                 for code in re.findall(r'Refusal<"(\w+)"', (ROOT / header).read_text())} - {"Name"} | {"InternalError"}
        table = (ROOT / "docs/operations.md").read_text().split("## When something does not work")[1]
        named = {name for row in re.findall(r"^\| `.*", table, re.M) for name in re.findall(r"`(\w+)`", row.split("|")[1])}
        self.assertGreater(len(named), 30)
        self.assertEqual(named, known)

    def test_make_runs_the_mutants(self):
        said = subprocess.run(["make", "--no-print-directory", "-n", "mutants"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        for script in ("scripts/mutate", "scripts/plant_mutants"):
            self.assertIn(script, said.stdout.split())
            self.assertTrue(os.access(ROOT / script, os.X_OK), script)
        self.assertIn("make mutants", (ROOT / "CONTRIBUTING.md").read_text())

    def test_the_example_of_the_readme_runs(self):
        self.assertIn("42", self.run_example("readme"))

    def test_the_page_on_host_tools_shows_the_example_that_is_compiled(self):
        example = (ROOT / "examples/price_tool.cc").read_text()
        shown = re.findall(r"^```cpp\n(.*?)^```$", (ROOT / "docs/host-tools.md").read_text(), re.M | re.S)
        self.assertGreater(len(shown), 1)
        for text in shown:
            with self.subTest(text=text):
                self.assertIn(text, example)

    def test_the_example_of_the_page_on_host_tools_runs(self):
        self.assertIn("4.2", self.run_example("price_tool"))

    def test_the_guide_to_backends_shows_the_example_that_is_compiled(self):
        example = "".join(path.read_text() for path in sorted((ROOT / "examples/bwrap").iterdir()))
        guide = (ROOT / "docs/writing-a-backend.md").read_text()
        shown = re.findall(r"^```cpp\n(.*?)^```$", guide, re.M | re.S)
        self.assertGreater(len(shown), 3)
        for text in shown:
            with self.subTest(text=text):
                self.assertIn(text, example)

    def test_files_and_targets_that_documents_name_are_there(self):
        for document in documents():
            prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
            for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
                with self.subTest(document=document.name, target=target):
                    self.assertTrue((document.parent / target).exists())


class TheCheckItself(unittest.TestCase):
    def test_a_block_is_run_unless_a_reason_stands_right_above_it(self):
        text = "<!-- not run: slow -->\n```sh\na\n```\n\n<!-- not run: far -->\n\n```sh\nb\n```\n```cpp\nc\n```\n"
        self.assertEqual(blocks(text), [("slow", "a\n"), (None, "b\n")])


if __name__ == "__main__":
    unittest.main()
