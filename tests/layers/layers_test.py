"""Holds every #include of ours against the layers of this project.

A header-only use links without a CMake dependency, so the build alone does not notice an arrow that
points up. The table is ARROWS; everything else here reads it.
"""

import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Module -> the modules that it may include itself. What those may include, it may too: arrows are
# transitive, so `apps` reaches `core`. A module not named here fails the test: give it a place.
ARROWS = {
    "base": [],
    "sys": ["base"],
    "core": ["base"],
    "policy": ["core", "sys"],
    "transfer": ["policy", "sys"],
    "host_tools": ["policy", "sys"],
    "tool": ["host_tools", "transfer"],
    "kinds": ["tool"],
    "mcp": ["tool"],
    "guest": ["core", "sys"],
    "egress": ["core", "sys"],
    "images": ["core", "sys"],
    "local": ["guest", "egress", "images"],
    "backends": ["local"],
    # Down to host_tools, because its probes of host tools go the road that every kind goes: the same
    # registry, run and session, so that a provider is tried against what will use it.
    "conformance": ["host_tools"],
    "bench": ["kinds", "backends"],
    "apps": ["mcp", "kinds", "backends", "conformance", "bench"],
}

# Modules that hold one independent folder a member: members do not include each other.
FAMILIES = {"kinds", "backends"}

# Code that may include anything: it is not part of the library or of a program.
FREE_ROOTS = {"tests", "fuzz", "examples"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]((?:casemate|apps|tests|fuzz|examples|bench)/[^">]+)[">]', re.M)
# A comment may show an include; block comments go first, so that line numbers are not needed.
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.S)


def reachable(module):
    found, waiting = set(), [module]
    while waiting:
        for below in ARROWS[waiting.pop()]:
            if below not in found:
                found.add(below)
                waiting.append(below)
    return found


def place(path):
    """('guest', 'agent') for casemate/guest/agent/x.cc; the member is None directly in a module."""
    parts = Path(path).parts
    if parts[0] == "casemate":
        parts = parts[1:]
    return parts[0], parts[1] if len(parts) > 2 else None


def is_test(path):
    name = Path(path).name
    return name.endswith("_test.cc") or name.endswith("_test.h")


def fault_of(source, included):
    """Why `source` may not include `included` (both relative to the root), or None."""
    if Path(source).parts[0] in FREE_ROOTS or is_test(source):
        return None
    if Path(included).parts[0] in FREE_ROOTS or is_test(included):
        return "is test code, which production code must not need"
    (from_module, from_member), (to_module, to_member) = place(source), place(included)
    for module in (from_module, to_module):
        if module not in ARROWS:
            return f"module '{module}' has no place in the table of layers"
    if from_module == to_module:
        if from_module in FAMILIES and from_member != to_member:
            return f"members of '{from_module}' do not include each other"
        return None
    if to_module not in reachable(from_module):
        below = ", ".join(sorted(reachable(from_module))) or "nothing of ours"
        return f"'{from_module}' may include {below}; not '{to_module}'"
    return None


def faults_in(root):
    """All faults below `root`, and the number of includes of ours that were looked at."""
    faults, seen = [], 0
    for folder in ("casemate", "apps", "bench"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc") or not path.is_file():
                continue
            source = path.relative_to(root).as_posix()
            text = BLOCK_COMMENT.sub("", path.read_text(encoding="utf-8"))
            for included in INCLUDE.findall(text):
                seen += 1
                fault = fault_of(source, included)
                if fault:
                    faults.append(f"{source}: #include \"{included}\": {fault}")
    return faults, seen


class Layers(unittest.TestCase):
    def test_every_include_points_down(self):
        faults, seen = faults_in(ROOT)
        sources = list((ROOT / "casemate").rglob("*.cc"))
        self.assertGreaterEqual(seen, len(sources), "sources include their own header at least: "
                                                    "does the pattern still fit them?")
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_the_table_has_no_cycle(self):
        for module in ARROWS:
            self.assertNotIn(module, reachable(module))

    def test_every_include_of_ours_is_by_its_full_path(self):
        """"router.h" from beside would pass unseen by the test above."""
        beside = []
        for folder in ("casemate", "apps", "bench"):
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".h", ".cc") and path.is_file():
                    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
                        if not name.startswith(("casemate/", "apps/", "tests/", "bench/")):
                            beside.append(f"{path.relative_to(ROOT)}: #include \"{name}\"")
        self.assertEqual(beside, [])


class PlantedIncludes(unittest.TestCase):
    """The check itself: each fault is planted in a tree of its own and must be found."""

    def faults(self, source, line):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / source
            path.parent.mkdir(parents=True)
            path.write_text(f"// A comment.\n#pragma once\n{line}\n")
            return faults_in(Path(folder))[0]

    def test_upward_includes_are_found(self):
        for source, included in (
                ("casemate/base/utf8.h", "casemate/sys/fd.h"),
                ("casemate/base/utf8.h", "casemate/core/errors.h"),
                ("casemate/sys/fd.cc", "casemate/core/errors.h"),
                ("casemate/core/sandbox.h", "casemate/sys/fd.h"),
                ("casemate/core/sandbox.h", "casemate/policy/router.h"),
                ("casemate/policy/router.cc", "casemate/transfer/collect.h"),
                ("casemate/transfer/collect.cc", "casemate/tool/tool.h"),
                ("casemate/tool/tool.cc", "casemate/kinds/codeact/tool.h"),
                ("casemate/kinds/codeact/tool.cc", "casemate/backends/linux/backend.h"),
                ("casemate/kinds/codeact/tool.cc", "casemate/guest/agent_sandbox.h"),
                ("casemate/backends/linux/backend.cc", "casemate/policy/router.h"),
                ("casemate/guest/frames.cc", "casemate/backends/linux/backend.h"),
                ("casemate/policy/router.cc", "apps/casemate/run.h")):
            with self.subTest(source=source, included=included):
                self.assertEqual(len(self.faults(source, f'#include "{included}"')), 1)

    def test_members_of_a_family_do_not_include_each_other(self):
        line = '#include "casemate/backends/in_process/backend.h"'
        self.assertEqual(len(self.faults("casemate/backends/linux/backend.cc", line)), 1)

    def test_unusual_spellings_are_found(self):
        for line in ("#include <casemate/core/errors.h>", '  #  include "casemate/core/errors.h"',
                     '#include\t"casemate/core/errors.h"  // why'):
            with self.subTest(line=line):
                self.assertEqual(len(self.faults("casemate/sys/fd.cc", line)), 1)

    def test_an_unknown_module_is_found(self):
        line = '#include "casemate/core/errors.h"'
        self.assertEqual(len(self.faults("casemate/misc/x.cc", line)), 1)

    def test_production_code_that_includes_test_code_is_found(self):
        for included in ("tests/support/fake.h", "casemate/core/fakes_test.h"):
            with self.subTest(included=included):
                self.assertEqual(
                    len(self.faults("casemate/policy/router.cc", f'#include "{included}"')), 1)

    def test_tests_and_downward_includes_are_free(self):
        for source, included in (
                ("casemate/policy/router_test.cc", "casemate/backends/in_process/backend.h"),
                ("apps/casemate/run.cc", "casemate/core/errors.h"),
                ("casemate/backends/linux/backend.cc", "casemate/sys/fd.h"),
                ("casemate/guest/agent/main.cc", "casemate/guest/frames.h"),
                ("casemate/kinds/codeact/tool.cc", "casemate/transfer/collect.h")):
            with self.subTest(source=source):
                self.assertEqual(self.faults(source, f'#include "{included}"'), [])


if __name__ == "__main__":
    unittest.main()
