"""The threat model claims what tests hold: each claim names its tests, and they are there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text()

# `Suite.Name` of GoogleTest, `test_name` of a Python test.
NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+|test_\w+)`")
# What cannot be shown says why, in so many words.
UNTESTED = re.compile(r"\(no test: (?:\S+\s+){2,}[^)]*\)")


def section(title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]


def bullets(text):
    return re.findall(r"^- .*(?:\n  .*)*", text, re.M)


def rows(text):
    """Of its table, without the head."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


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
        claims = rows(section("What holds"))
        self.assertGreater(len(claims), 10)
        claims += rows(section("What each rung must show"))
        for title in ("The rungs, in words", "Lines that are yours to draw", "Host tools", "What does not"):
            self.assertGreater(len(bullets(section(title))), 2, title)
            claims += bullets(section(title))
        self.assertEqual([claim for claim in claims if not NAMED.search(claim) and not UNTESTED.search(claim)], [])

    def test_what_holds_is_shown(self):
        """A reason instead of a test is for what is not claimed."""
        self.assertEqual([row for row in rows(section("What holds")) if not NAMED.search(row)], [])

    def test_a_reason_is_more_than_a_word(self):
        self.assertTrue(UNTESTED.search("x (no test: nothing is claimed)."))
        for wrong in ("(no test)", "(no test: )", "(no test: no)", "no test: nothing is claimed"):
            self.assertFalse(UNTESTED.search(wrong), wrong)

    def test_it_knows_every_rung(self):
        header = (ROOT / "casemate/core/vocabulary.h").read_text()
        rungs = re.findall(r"\w+", re.sub(r"//.*|= *\d+", "", re.search(r"enum class Isolation[^{]*\{(.*?)\}", header, re.S)[1]))
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", section("The rungs, in words"), re.M), rungs)


if __name__ == "__main__":
    unittest.main()
