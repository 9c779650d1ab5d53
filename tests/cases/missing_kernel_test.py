"""A kernel, or the filter of an older engine, that lacks one system call of those that the backend uses: a run
either does without it or is refused by name, and nothing of it is left. Never a hang."""

import json
import subprocess
import time
import unittest
from pathlib import Path

from harness import PROGRAM, SANITIZED, Case

FILTER = Path(__file__).with_name("outer_filter.py")
ENOSYS, EPERM, EINVAL, EMFILE, EOPNOTSUPP = 38, 1, 22, 24, 95

# x86-64.
CALLS = [
    ("openat2", 437, ENOSYS), ("close_range", 436, ENOSYS), ("pidfd_open", 434, ENOSYS),
    ("pidfd_send_signal", 424, ENOSYS), ("move_mount", 429, ENOSYS), ("open_tree", 428, ENOSYS),
    ("fsopen", 430, ENOSYS), ("mount_setattr", 442, ENOSYS), ("execveat", 322, ENOSYS), ("memfd_create", 319, ENOSYS),
    ("clone3", 435, ENOSYS), ("clone", 56, EPERM), ("unshare", 272, EPERM), ("pivot_root", 155, EPERM),
    ("seccomp", 317, ENOSYS), ("landlock_create_ruleset", 444, EOPNOTSUPP), ("renameat2", 316, EINVAL),
    ("signalfd4", 289, ENOSYS), ("timerfd_create", 283, ENOSYS), ("inotify_init1", 294, EMFILE),
    ("epoll_create1", 291, ENOSYS), ("sethostname", 170, EPERM), ("setgroups", 116, EPERM), ("mknodat", 259, EPERM),
    ("umount2", 166, EPERM), ("mount", 165, EPERM), ("getrandom", 318, ENOSYS), ("prctl", 157, EPERM),
    ("prlimit64", 302, EPERM), ("flock", 73, ENOSYS), ("socket", 41, EPERM),
    ("faccessat2", 439, EPERM), ("epoll_ctl", 233, EPERM), ("capget", 125, EPERM), ("setresuid", 117, EPERM),
    ("fsconfig", 431, EPERM), ("pidfd_open", 434, EPERM), ("setrlimit", 160, EPERM), ("fsopen", 430, EPERM),
    # An older engine's filter says EPERM of what it does not know.
    ("clone3", 435, EPERM), ("eventfd2", 290, ENOSYS), ("eventfd2", 290, EPERM), ("signalfd4", 289, EPERM),
    ("getrandom", 318, EPERM), ("ppoll", 271, ENOSYS), ("ppoll", 271, EPERM), ("poll", 7, EPERM),
    ("sendto", 44, EPERM), ("sendmsg", 46, EPERM), ("recvfrom", 45, EPERM), ("recvmsg", 47, EPERM),
    ("accept4", 288, ENOSYS), ("accept4", 288, EPERM), ("listen", 50, EPERM), ("epoll_wait", 232, EPERM),
    ("timerfd_create", 283, EPERM), ("rt_sigprocmask", 14, EPERM), ("socketpair", 53, EPERM), ("dup2", 33, EPERM),
]
# Of those, what has nothing to do with namespaces.
PLAIN = {"eventfd2", "signalfd4", "ppoll", "sendmsg", "accept4", "listen", "epoll_wait", "timerfd_create",
         "rt_sigprocmask", "socketpair", "dup2"}
# What a sanitizer itself cannot do without.
OF_A_SANITIZER = {"clone", "prlimit64", "rt_sigprocmask"}
# What a run does without.
NOT_NEEDED = {"landlock_create_ruleset", "inotify_init1", "poll", "sendto"}


class MissingCalls(Case):
    def test_a_run_does_without_or_is_refused_by_name_and_leaves_nothing(self):
        for name, number, error in CALLS:
            if SANITIZED and name in OF_A_SANITIZER:
                continue
            with self.subTest(name, error=error):
                result = self.run_argv(["/usr/bin/python3", str(FILTER), "refuse", str(number), str(error),
                                        *self.argv(program="print(6 * 7)")])
                if result.status == 0:
                    self.assertEqual(result.text, "42\n", result)
                else:
                    self.assertEqual((result.status, result.text), (125, ""), result)
                    self.assertRegex(result.err, r"(?m)^casemate: error: [A-Z][A-Za-z]+: .", result)
                    self.assertNotIn(name, NOT_NEEDED, result)
                    self.assertNotIn("InternalError", result.err, result)
                    self.assertNotIn("SandboxTimeout", result.err, result)
                    # The errno of a step is not that of another.
                    self.assertNotIn("Cannot allocate memory", result.err, result)
                    if name in PLAIN:
                        self.assertNotIn("namespaces", result.err, result)
                    # What was refused, and not only that somebody ended.
                    self.assertNotRegex(result.err, "keeper of sandboxes ended|ended before it was ready", result)
                # What a refused call kept from being removed, the next that looks removes.
                listed = self.run_argv([PROGRAM, "ls"])
                self.assertEqual((listed.status, listed.text.count("\n") > 1), (0, False), listed)
                self.nothing_is_left_in_the_state_root()

    def test_a_server_refuses_by_name_or_serves(self):
        """What `mcp` begins with, and a call of its tool."""
        requests = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in (
            {"id": 1, "method": "initialize",
             "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "execute_code", "arguments": {"code": "print(6 * 7)"}}}))
        for name, number, error in CALLS[-20:]:
            if SANITIZED and name in OF_A_SANITIZER:
                continue
            with self.subTest(name, error=error):
                process = self.start(["/usr/bin/python3", str(FILTER), "refuse", str(number), str(error), PROGRAM, "mcp",
                                      "--backend", "linux"], stdin=subprocess.PIPE)
                process.stdin.write(requests)
                process.stdin.flush()
                # Its answer to the call, or its end.
                answers = []
                for line in iter(process.stdout.readline, b""):
                    answers.append(json.loads(line))
                    if answers[-1].get("id") == 2:
                        break
                process.stdin.close()
                process.stdin = None
                result = self.finish(process, time.monotonic())
                if not answers or answers[-1].get("id") != 2:
                    self.assertEqual(result.status, 125, result)
                    self.assertRegex(result.err, r"(?m)^casemate: error: Sandbox[A-Za-z]+: .", result)
                self.assertNotIn("terminate called", result.err)
                self.assertNotIn("InternalError", result.err + json.dumps(answers), result)


if __name__ == "__main__":
    unittest.main()
