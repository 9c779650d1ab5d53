"""Every case of cases.txt has a test that carries its id, or a reason why it has none."""

import re
import tempfile
import unittest
from pathlib import Path

from sources import read, split

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("cases.txt")
ID = r"[A-Z]{2,4}-\d{2}"


def parse(text):
    """({ids that need a test}, {left out id: reason}); raises ValueError for a malformed line.

    A part of a recipe that is left out (`ID+`) is of an id that stands above it."""
    wanted, left_out = [], {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        part = re.fullmatch(rf"({ID})\+  \S[^:]*: \S.*", line)
        if part and part[1] in wanted:
            continue
        match = re.fullmatch(rf"({ID})(?:  (\S[^:]*): (\S.*))?", line)
        if not match:
            raise ValueError(f"line {number}: '{line}' is neither `ID` nor `ID  where: reason`")
        identifier, _, reason = match.groups()
        if identifier in wanted or identifier in left_out:
            raise ValueError(f"line {number}: {identifier} is listed twice")
        if reason:
            left_out[identifier] = reason
        else:
            wanted.append(identifier)
    return wanted, left_out


def carried(root):
    """The ids that stand in the sources of tests."""
    found = set()
    for path in split(root)[1]:
        found.update(re.findall(rf"(?<![\w-]){ID}(?![\w-])", read(path)))
    return found


class CasesCovered(unittest.TestCase):
    def test_every_listed_case_has_a_test(self):
        wanted, _ = parse(LIST.read_text())
        self.assertGreater(len(wanted), 0)
        self.assertEqual(sorted(set(wanted) - carried(ROOT)), [], "no test carries these ids")

    def test_no_case_is_both_tested_and_left_out(self):
        _, left_out = parse(LIST.read_text())
        self.assertEqual(sorted(set(left_out) & carried(ROOT)), [], "take these from the left out")


class TheCheckItself(unittest.TestCase):
    def test_an_id_counts_only_as_a_whole_word_in_a_test(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (("casemate/guest/a.cc", "// EX-01"),
                               ("casemate/guest/a_test.cc", "// EX-03: why\n// _EX-05 EX-071"),
                               ("tests/cli/run_test.py", '"""OUT-01, OUT-03."""')):
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self.assertEqual(carried(root), {"EX-03", "OUT-01", "OUT-03"})

    def test_a_left_out_case_needs_a_reason(self):
        self.assertEqual(parse("# x\n\nEX-15  docker: needs an engine\nEX-01\n"),
                         (["EX-01"], {"EX-15": "needs an engine"}))
        self.assertEqual(parse("EX-01\nEX-01+  docker: needs an engine\n"), (["EX-01"], {}))
        for line in ("EX-01+  docker: the id is not above", "EX-01\nEX-01+", "EX-01\nEX-01+  docker", "EX-15  docker", "EX-15  docker:", "EX-15  docker: ", "EX-15  : why", "EX-1",
                     "EX-01\nEX-01"):
            with self.subTest(line=line):
                self.assertRaises(ValueError, parse, line)


if __name__ == "__main__":
    unittest.main()
