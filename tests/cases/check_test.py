"""`casemate run --check`: what a run would refuse before it starts anything, and nothing started."""

import unittest

from harness import NEEDS_ROOT, Case


class Check(Case):
    def environment(self, extra=None):
        return super().environment({"CASEMATE_IMAGE_DIR": str(self.dir / "images"), **(extra or {})})

    def test_it_starts_nothing_and_makes_nothing(self):
        result = self.run_program("print('ran')", "--check", "--output", "x", "--out-dir", self.out)
        self.assertEqual((result.status, result.out, result.err), (0, b"", ""), result)
        self.assertFalse(self.out.exists())
        self.assertNothingStarted()

    def test_it_refuses_what_a_run_refuses_in_the_same_words(self):
        taken = self.write("taken/x", "theirs").parent
        large = self.write("large", b"x" * 2048)
        elsewhere = {"CASEMATE_STATE_DIR": str(self.dir / "elsewhere")}
        for options, code in ((("--min-isolation", "vm"), "SandboxBackendNotPermitted"),
                              (("--output", "../x", "--out-dir", self.out), "SandboxArtifactNameInvalid"),
                              (("--output", "x", "--out-dir", taken), "SandboxLandingExists"),
                              (("--output", "x", "--out-dir", "/dev/null"), "InvalidArgument"),
                              (("--file", "x=/nowhere"), "SandboxFileError"),
                              (("--file", f"../x={large}"), "SandboxArtifactNameInvalid"),
                              (("--file", large, "--files-in-limit", "1K,8K,4"), "SandboxTransferCapExceeded"),
                              (("--image", "dir:/nowhere"), "SandboxImageInvalid"),
                              (("--image", "sha256:0123456789ab"), "SandboxImageInvalid"),
                              (("--memory", "1000000G"), "SandboxLimitNotEnforceable"),
                              (("--disk", "1000000G"), "SandboxLimitNotEnforceable")):
            with self.subTest(options=options):
                checked = self.run_program("print('ran')", "--check", *options)
                self.assertRefused(checked, code)
                self.assertEqual(checked.out, b"")
                self.assertNothingStarted()
                self.assertEqual(self.run_program("print('ran')", *options, env=elsewhere).err, checked.err)

    @NEEDS_ROOT
    def test_bounds_that_this_process_may_not_raise_are_refused(self):
        bounded = ["setpriv", "--bounding-set=-sys_resource", "prlimit", "--fsize=1000000:1000000"]
        for check in ((), ("--check",)):
            with self.subTest(check=check):
                result = self.run_argv(bounded + self.argv(*check, "--disk", "8M", program="print('ran')"))
                self.assertRefused(result, "SandboxLimitNotEnforceable", "RLIMIT_FSIZE")

    def test_a_run_takes_the_transfer_limits_that_a_check_takes(self):
        over = ("--files-out-limit", "65M,256M,256")
        for check in ((), ("--check",)):
            with self.subTest(check=check):
                result = self.run_program("", *check, *over)
                self.assertEqual((result.status, result.err), (0, ""), result)
                self.assertRefused(self.run_program("", *check, *over, "--output", "x", "--out-dir", self.out),
                                   "SandboxTransferLimitsNotPermitted", "files_out", "68157440", "67108864")


if __name__ == "__main__":
    unittest.main()
