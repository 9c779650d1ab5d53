"""The threat model claims what tests hold: each claim names its tests, and they are there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text()

# `Suite.Name` of GoogleTest, `test_name` of a Python test.
NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+|test_\w+)`")


def section(title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]


def bullets(text):
    return re.findall(r"^- .*(?:\n  .*)*", text, re.M)


def tests_there_are():
    names = set()
    for folder in ("casemate", "apps", "tests", "fuzz"):
        for path in (ROOT / folder).rglob("*_test.cc"):
            # A parameterised test has its name in the macro too.
            for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M):
                names.add(f"{suite}.{name}")
        for path in (ROOT / folder).rglob("*_test.py"):
            names.update(re.findall(r"^    def (test_\w+)", path.read_text(), re.M))
    return names


class ThreatModel(unittest.TestCase):
    def test_every_test_that_it_names_exists(self):
        named = set(NAMED.findall(PAGE))
        self.assertGreater(len(named), 50)
        self.assertEqual(sorted(named - tests_there_are()), [])

    def test_every_claim_names_a_test(self):
        rows = [row for row in section("What holds").splitlines() if row.startswith("|")][2:]
        self.assertGreater(len(rows), 10)
        claims = rows + bullets(section("The rungs, in words")) + bullets(section("Lines that are yours to draw"))
        self.assertEqual([claim for claim in claims if not NAMED.search(claim)], [])

    def test_it_knows_every_rung(self):
        header = (ROOT / "casemate/core/vocabulary.h").read_text()
        rungs = re.findall(r"\w+", re.sub(r"//.*|= *\d+", "", re.search(r"enum class Isolation[^{]*\{(.*?)\}", header, re.S)[1]))
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", section("The rungs, in words"), re.M), rungs)


if __name__ == "__main__":
    unittest.main()
