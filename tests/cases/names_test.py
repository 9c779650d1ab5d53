"""Cases NM: names and Unicode."""

import unittest

from harness import Case


class Names(Case):
    def land(self, *names, options=(), env=None):
        program = f'''
import os
for name in {list(names)!r}:
    if "/" in name: os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, "w").write("x")
'''
        words = [word for name in names for word in ("--output", name)]
        return self.run_program(program, *words, "--out-dir", self.out, *options, env=env)

    def test_NM_02_names_that_differ_only_by_case_are_refused(self):
        """NM-02: whatever the locale"""
        for locale in ("C", "tr_TR.UTF-8", "en_US.UTF-8"):
            for pair in (("A.txt", "a.txt"), ("\u212a.txt", "k.txt"), ("D/x", "d/x"), ("I.txt", "i.txt"),
                         ("\u00c9", "e\u0301"), ("same", "same")):
                with self.subTest(locale=locale, pair=pair):
                    result = self.land(*pair, env={"LC_ALL": locale})
                    self.assertRefused(result, "SandboxArtifactNameCollision")
        self.assertNothingLanded()
        self.assertNothingStarted()

    def test_NM_02_lower_case_is_not_case_folding(self):
        """NM-02"""
        result = self.land("stra\u00dfe", "strasse")
        self.assertEqual(result.status, 0, result)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["strasse", "stra\u00dfe"])
        # One name or two, but never one file for two names.
        result = self.land("\u0130.txt", "i\u0307.txt")
        if result.status != 0:
            self.assertRefused(result, "SandboxArtifactNameCollision")
        else:
            self.assertEqual(len(list(self.out.iterdir())), 4)

    def test_NM_04_controls_are_refused_and_never_shown_raw(self):
        """NM-04"""
        for name in ("a\nb.txt", "a\tb", "a\u202etxt.exe", "a\x1b[2J", "a\x7f", "a\u0085b", "a\u2066b"):
            with self.subTest(name=name):
                result = self.land(name)
                self.assertRefused(result, "SandboxArtifactNameInvalid")
                self.assertNotIn(name, result.err)
                self.assertEqual(result.err.count("\n"), 1, result)
                result = self.run_program("pass", "--file", f"{name}=/etc/hostname")
                self.assertRefused(result, "SandboxArtifactNameInvalid")
        self.assertNothingStarted()

    def test_NM_04_what_is_allowed_and_invisible_is_shown_escaped(self):
        """NM-04"""
        result = self.land("a\u200b.txt")
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.err, "saved a\\u{200b}.txt\n")
        self.assertEqual([path.name for path in self.out.iterdir()], ["a\u200b.txt"])

    def test_NM_06_lengths_are_bytes(self):
        """NM-06"""
        self.assertEqual(self.land("n" * 255).status, 0)
        for name in ("n" * 256, "\U0001f600" * 100, "/".join(["d" * 200] * 40), "\u00e9" * 128):
            with self.subTest(name=name[:20]):
                result = self.run_program("pass", "--output", name, "--out-dir", self.out)
                self.assertRefused(result, "SandboxArtifactNameInvalid", "255")
        self.assertEqual([path.name for path in self.out.iterdir()], ["n" * 255])

    def test_NM_06_long_and_odd_keys_work(self):
        """NM-06"""
        for part in ("k" * 300, "\U0001f600", "../../etc", "a/b", "\n", "-"):
            with self.subTest(part=part[:20]):
                result = self.run_program("print(1)", "--scope", part, "--thread", part, "--agent", part)
                self.assertEqual((result.status, result.out), (0, b"1\n"), result)

    def test_names_that_traverse_are_refused_before_anything_starts(self):
        for name in ("../x", "/etc/x", "a/../../x", "..", ".", "", "a//b", "a/", "./a", "a\\b", "/proc/self/environ"):
            with self.subTest(name=name):
                self.assertRefused(self.run_program("pass", "--output", name, "--out-dir", self.out),
                                   "SandboxArtifactNameInvalid")
                if name:
                    self.assertRefused(self.run_program("pass", "--file", f"{name}=/etc/hostname"),
                                       "SandboxArtifactNameInvalid")
        self.assertNothingStarted()
        self.assertFalse(self.out.exists())

    def test_one_name_inside_another_is_refused(self):
        self.assertRefused(self.land("a", "a/b"), "SandboxArtifactNameCollision")

    def test_ordinary_odd_names_are_names_like_others(self):
        names = ("~", "a:b", "NUL.txt", "..a", " ", "*", "[a,b]")
        result = self.land(*names)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), sorted(names))

    def test_a_name_that_is_no_utf8_is_refused(self):
        result = self.run_argv([word.encode() for word in self.argv("--out-dir", self.out)] +
                               [b"--output", b"a\xff", str(self.write("p.py", "pass")).encode()])
        self.assertRefused(result, "SandboxArtifactNameInvalid")


if __name__ == "__main__":
    unittest.main()
