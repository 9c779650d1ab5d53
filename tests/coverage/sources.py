"""Which files of a tree are the product's and which are its tests."""

import re

SUFFIXES = {".h", ".cc", ".py", ".sh"}
TEST_ROOTS = {"tests", "examples", "bench"}
# This folder speaks of every case and refusal and proves none.
THIS_FOLDER = ("tests", "coverage")


def split(root):
    """(production, tests): two lists of paths below `root`."""
    production, tests = [], []
    for top in ("casemate", "apps", "tests", "examples", "bench"):
        for path in sorted((root / top).rglob("*")):
            parts = path.relative_to(root).parts
            if path.suffix not in SUFFIXES or not path.is_file() or parts[:2] == THIS_FOLDER:
                continue
            is_test = parts[0] in TEST_ROOTS or re.search(r"_test\.(cc|h|py)$", path.name)
            (tests if is_test else production).append(path)
    return production, tests


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def read_code(path):
    """The text without comments (a name in a comment throws nothing and tests nothing)."""
    text = read(path)
    if path.suffix in (".h", ".cc"):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        return re.sub(r"(?<![:\"])//[^\n]*", "", text)
    return re.sub(r"(?m)^\s*#[^\n]*", "", text)
