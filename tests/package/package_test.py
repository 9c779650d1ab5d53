"""The Debian packages, made, unpacked into a root of their own, and used from there."""

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["CASEMATE_BUILD_DIR"]).resolve()
ROOT = Path(__file__).resolve().parents[2]

PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES CXX)
find_package(casemate 0.1 REQUIRED)
add_executable(host host.cc)
target_link_libraries(host PRIVATE casemate::casemate)
"""


def run(*argv, **options):
    return subprocess.run([str(word) for word in argv], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="casemate-package-")
        work = Path(cls.folder.name)
        try:
            run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", work / "packages", cwd=work)
        except subprocess.CalledProcessError as error:
            cls.folder.cleanup()
            raise AssertionError(error.stdout) from error
        cls.packages = {path.name.split("_")[0]: path for path in (work / "packages").glob("*.deb")}
        cls.root = work / "root"
        for package in cls.packages.values():
            run("dpkg-deb", "-x", package, cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def field(self, package, name):
        return run("dpkg-deb", "-f", self.packages[package], name).strip()

    def test_there_are_two_the_program_and_the_library(self):
        self.assertEqual(sorted(self.packages), ["casemate", "libcasemate-dev"])
        for package in self.packages:
            self.assertTrue(self.field(package, "Description"))
            self.assertEqual(self.field(package, "Architecture"), run("dpkg", "--print-architecture").strip())

    def test_the_program_depends_on_the_c_library_and_the_interpreter_alone(self):
        names = {entry.split()[0] for entry in self.field("casemate", "Depends").split(",")}
        self.assertEqual(names, {"libc6", "python3"})

    def test_the_library_depends_on_what_it_links(self):
        names = {entry.split()[0] for entry in self.field("libcasemate-dev", "Depends").split(",")}
        self.assertLessEqual({"libboost-json1.81-dev", "libseccomp-dev"}, names)
        # What nothing of it includes.
        self.assertEqual(names & {"libfmt-dev", "libtomlplusplus-dev"}, set())

    def test_both_hold_together_what_make_install_installs(self):
        prefix = Path(self.folder.name) / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        installed = {path.relative_to(prefix) for path in prefix.rglob("*") if not path.is_dir()}
        usr = self.root / "usr"
        packed = {path.relative_to(usr) for path in usr.rglob("*") if not path.is_dir()}
        self.assertIn(Path("libexec/casemate/casemate-place-guest"), installed)
        debian = {path for path in packed if path.name == "changelog.Debian.gz" or "lintian" in path.parts}
        self.assertEqual(installed, packed - debian)
        self.assertEqual(len(debian), 4)

    def test_it_holds_what_a_package_has(self):
        for name in ("bin/casemate", "share/man/man1/casemate.1.gz", "share/doc/casemate/copyright",
                     "share/doc/casemate/changelog.gz", "share/doc/casemate/threat-model.md",
                     "share/bash-completion/completions/casemate", "share/zsh/vendor-completions/_casemate",
                     "share/fish/vendor_completions.d/casemate.fish", "include/casemate/core/sandbox.h",
                     "lib/cmake/casemate/casemateConfig.cmake"):
            self.assertTrue((self.root / "usr" / name).is_file(), name)
        self.assertEqual([path.name for path in self.root.iterdir()], ["usr"])

    def test_each_link_of_the_documents_leads_to_one_that_is_packed(self):
        documents = list((self.root / "usr/share/doc/casemate").glob("*.md"))
        self.assertIn("README.md", {document.name for document in documents})
        found = 0
        for document in documents:
            text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
                if "://" not in target:
                    self.assertTrue((document.parent / target).is_file(), f"{document.name}: {target}")
                    found += 1
        self.assertGreater(found, 8)

    def test_nothing_in_it_names_the_tree_it_was_built_in(self):
        # Each directory of it: the tree itself may be called /src, which a page may name for another reason.
        named = re.compile(b"|".join(re.escape(f"{each}/".encode()) for each in [BUILD, *ROOT.iterdir()] if each.is_dir()))
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.suffix != ".a":
                self.assertIsNone(named.search(path.read_bytes()), path)

    def test_the_manual_page_has_every_verb_and_is_one(self):
        page = gzip.decompress((self.root / "usr/share/man/man1/casemate.1.gz").read_bytes()).decode()
        for verb in ("RUN", "BACKENDS", "COMPLETION"):
            self.assertIn(f".SH {verb}\n", page)
        if shutil.which("man"):
            said = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", "/dev/stdin"], input=page,
                                  text=True, capture_output=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
            self.assertEqual((said.returncode, said.stderr), (0, ""))

    def test_the_program_runs_from_where_it_was_unpacked(self):
        if os.geteuid() != 0:
            self.skipTest("the linux backend needs root")
        with tempfile.TemporaryDirectory(prefix="casemate-state-") as state:
            result = subprocess.run([self.root / "usr/bin/casemate", "run", "-"], input="print(6 * 7)", text=True,
                                    capture_output=True, timeout=60,
                                    env={"PATH": "/usr/bin:/bin", "CASEMATE_STATE_DIR": state})
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("42\n", "", 0))

    def test_a_project_links_the_unpacked_library(self):
        source = Path(self.folder.name) / "host"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT)
        shutil.copy(ROOT / "examples/readme.cc", source / "host.cc")
        run("cmake", "-G", "Ninja", "-S", source, "-B", source / "build",
            f"-DCMAKE_PREFIX_PATH={self.root / 'usr'}")
        run("cmake", "--build", source / "build")
        self.assertTrue((source / "build/host").is_file())

    def test_lintian_finds_neither_error_nor_warning(self):
        if not shutil.which("lintian"):
            self.skipTest("lintian is not installed")
        result = subprocess.run(["lintian", "--fail-on", "error,warning", "--allow-root", *self.packages.values()],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
