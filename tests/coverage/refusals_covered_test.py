"""Every refusal that the product can throw is provoked by a test.

The classes are read from casemate/core/errors.h. One counts as thrown when production code names it
outside a catch, and as provoked when a test expects it: as the type of EXPECT_THROW or ASSERT_THROW,
as the argument of a helper template (`refusal<SandboxBusy>`), in a catch, or by its code in quotes.
"""

import re
import tempfile
import unittest
from pathlib import Path

from sources import read_code, split

ROOT = Path(__file__).resolve().parents[2]
ERRORS = Path("casemate/core/errors.h")


def refusals(errors_text):
    return sorted(set(re.findall(r"\bRefusal<\s*\"(\w+)\"", errors_text)))


def is_thrown(name, text):
    text = re.sub(r"catch\s*\([^)]*\)", "", text)
    return re.search(rf"\b{name}\b", text) is not None


def is_provoked(name, text):
    type_name = rf"(?:const\s+)?(?:::)?(?:casemate::)?{name}"
    return re.search(
        rf",\s*{type_name}\s*\)|<\s*{type_name}\s*[,>]|catch\s*\(\s*{type_name}\b|[\"']{name}\b",
        text) is not None


def unprovoked(root):
    """(refusals thrown without a test, number of refusals that are thrown at all)."""
    production, tests = split(root)
    thrown_code = [read_code(path) for path in production if path != root / ERRORS]
    test_code = [read_code(path) for path in tests]
    thrown = [name for name in refusals(read_code(root / ERRORS))
              if any(is_thrown(name, text) for text in thrown_code)]
    return [name for name in thrown
            if not any(is_provoked(name, text) for text in test_code)], len(thrown)


class RefusalsCovered(unittest.TestCase):
    def test_every_thrown_refusal_is_provoked_by_a_test(self):
        missing, _ = unprovoked(ROOT)
        self.assertEqual(missing, [], "thrown by the product, expected by no test")

    def test_the_classes_are_found(self):
        names = refusals(read_code(ROOT / ERRORS))
        self.assertIn("SandboxFileError", names)  # a class of its own
        self.assertIn("SandboxBusy", names)  # an alias


class PlantedRefusal(unittest.TestCase):
    """The check itself, on a tree with one refusal."""

    def missing(self, production, test):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in ((ERRORS, 'using Gone = Refusal<"Gone">;'),
                               ("casemate/policy/x.cc", production),
                               ("casemate/policy/x_test.cc", test)):
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text + "\n")
            return unprovoked(root)

    def test_a_refusal_without_a_test_is_found(self):
        for test in ("", "// expects Gone", "EXPECT_THROW(f(), Other);",
                     "void fake() { throw Gone(1); }"):
            with self.subTest(test=test):
                self.assertEqual(self.missing("throw Gone(1);", test), (["Gone"], 1))

    def test_each_way_to_expect_one_counts(self):
        for test in ("EXPECT_THROW(f(), Gone);", "ASSERT_THROW({ f();\n }, casemate::Gone );",
                     "auto e = refusal<Gone>(f);", "catch (const Gone& e) {",
                     'EXPECT_EQ(code, "Gone");'):
            with self.subTest(test=test):
                self.assertEqual(self.missing("throw Gone(1);", test), ([], 1))

    def test_what_nobody_throws_needs_no_test(self):
        for production in ("", "// throws Gone", "try {} catch (const Gone&) {}"):
            with self.subTest(production=production):
                self.assertEqual(self.missing(production, ""), ([], 0))


if __name__ == "__main__":
    unittest.main()
