"""The fuzzers, their seeds and the script that writes them belong together."""

import re
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz/corpus"


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Seeds(unittest.TestCase):
    def test_the_corpus_is_what_the_script_writes_and_what_was_found(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, ROOT / "fuzz/make_seeds.py", folder], check=True)
            written = files_of(Path(folder))
        kept = {name: content for name, content in files_of(CORPUS).items()
                if not Path(name).name.startswith("found-")}
        self.assertEqual(kept, written)

    def test_every_target_is_a_fuzzer(self):
        declared = re.search(r"set\(targets\s+([\w\s]+)\)", (ROOT / "fuzz/CMakeLists.txt").read_text())[1].split()
        named = re.findall(r'\{"(\w+)", fuzz_\w+\}', (ROOT / "fuzz/fuzz.h").read_text())
        self.assertEqual(declared, named)

    def test_every_target_has_a_fault_planted_that_fits_its_source(self):
        script = runpy.run_path(str(ROOT / "scripts/plant_mutants"))
        named = re.findall(r'\{"(\w+)", fuzz_\w+\}', (ROOT / "fuzz/fuzz.h").read_text())
        self.assertEqual(sorted(script["MUTANTS"]), named)
        for path, right, _ in script["MUTANTS"].values():
            self.assertEqual((ROOT / path).read_text().count(right), 1, f"{path}: {right}")

    def test_every_kind_of_message_has_a_seed(self):
        header = (ROOT / "casemate/guest/protocol.h").read_text()
        block = re.search(r"enum class FrameType[^{]*\{(.*?)\};", header, re.S)[1]
        kinds = {int(value) for value in re.findall(r"= (\d+),", block)}
        seeded = {path.read_bytes()[0] for path in (CORPUS / "protocol").iterdir()}
        empty = {int(re.search(rf"\b{name} = (\d+)", block)[1]) for name in EMPTY_OR_DATA}
        self.assertEqual(kinds - empty, seeded)


# Messages without a decoder of their own: nothing beside the type, or bytes as they are.
EMPTY_OR_DATA = ("archive", "unpack", "close_call", "close_after", "begun", "started", "output_out", "output_err", "stdin_data", "stdin_end",
                 "stdin_closed", "cancel", "held", "data", "end", "done")


if __name__ == "__main__":
    unittest.main()
