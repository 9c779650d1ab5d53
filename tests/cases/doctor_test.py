"""`casemate doctor` on machines that lack something, each made in namespaces of the test's own; what it
prints, applied there, mends it."""

import json
import os
import shlex
import shutil
import subprocess
import unittest
from pathlib import Path

from harness import PROGRAM, SANITIZED, Case
from private_host import Machine

ROOT_ONLY = unittest.skipIf(os.geteuid() != 0, "only root can make a machine that lacks something")
FILTER = Path(__file__).with_name("outer_filter.py")


class Doctor(Case):
    def doctor(self, *words, **how):
        return self.run_argv([PROGRAM, "doctor", *words], **how)

    def test_on_a_whole_machine_nothing_is_missing(self):
        result = self.doctor()
        self.assertEqual((result.status, result.err), (0, ""), result)
        self.assertRegex(result.text, r"(?m)^ok       linux: started a sandbox and ran a program in it in \d+ ms; linux ")
        self.assertRegex(result.text, r"(?m)^ok       linux: boundary: container: ")
        self.assertRegex(result.text, r"(?m)^ok       linux: python3: /usr/bin/python3 3\.")
        self.assertNotIn("missing", result.text)

    def test_json_is_one_array_of_records(self):
        result = self.doctor("--json")
        # Engines are there or not.
        engines = ("oci", "docker", "microvm")
        records = [record for record in result.json if not record["name"].startswith(engines)]
        self.assertLessEqual(set(engines), {record["name"] for record in result.json})
        names = [record["name"] for record in records]
        self.assertEqual(names, ["linux", "linux: boundary", "linux: limits", "linux: python3", "user ids",
                                 "control groups", "landlock"])
        for record in records:
            self.assertEqual(list(record), ["name", "status", "found", "fix"])
            self.assertIn(record["status"], ("ok", "weaker"))

    def test_what_the_user_chose_and_cannot_be_used_is_missing_also_where_another_backend_works(self):
        self.state.mkdir()
        for prepare in (lambda: self.state.chmod(0o777), lambda: (self.state.rmdir(), self.state.write_text(""))):
            prepare()
            result = self.doctor("--json")
            linux = result.json[0]
            self.assertEqual((result.status, linux["name"], linux["status"]), (1, "linux", "missing"), result)
            self.assertIn("state directory", linux["found"])

    def test_a_command_that_mends_is_printed_once(self):
        self.state.mkdir()
        self.state.chmod(0o777)
        result = self.doctor(env={"CASEMATE_MICROVM_KERNEL": "/nowhere"})
        commands = [line.partition("mend: ")[2] for line in result.text.splitlines() if " mend: " in line]
        self.assertTrue(commands, result)
        for command in commands:
            self.assertEqual(result.text.count(command), 1, result.text)

    def test_it_takes_options_only(self):
        self.assertRefused(self.doctor("linux"), "InvalidArgument", "'linux'")


@ROOT_ONLY
class Lacks(Case):
    # What is there to be covered.
    HIDDEN = [path for path in ("/proc/irq", "/proc/bus", "/proc/fs") if Path(path).is_dir()]

    def test_nothing_of_what_the_backend_needs(self):
        machine = Machine(self)
        status, found = machine.doctor()
        self.assertEqual((status, found["linux"]["status"]), (0, "ok"), found)

    def test_user_namespaces_of_which_there_may_be_none(self):
        machine = Machine(self, own_users=True)
        machine.root("sysctl -w user.max_user_namespaces=0")
        machine.expect_mended("making a user namespace", "user.max_user_namespaces")

    def test_network_namespaces_of_which_there_may_be_none(self):
        machine = Machine(self, own_users=True)
        machine.root("sysctl -w user.max_net_namespaces=0")
        machine.expect_mended("user.max_net_namespaces=15000")

    def test_user_namespaces_that_apparmor_keeps_from_ordinary_users(self):
        setting = self.write("setting", "1\n")
        machine = Machine(self, under=["/usr/bin/python3", FILTER, "apparmor", setting])
        machine.expect_mended("making a user namespace: Permission denied", "AppArmor")
        self.assertEqual(setting.read_text(), "0\n")

    def test_user_namespaces_that_are_switched_off_for_ordinary_users(self):
        setting = self.write("setting", "0\n")
        machine = Machine(self, under=["/usr/bin/python3", FILTER, "clone", setting])
        machine.expect_mended("making a user namespace: Operation not permitted", "kernel.unprivileged_userns_clone=1")
        self.assertEqual(setting.read_text(), "1\n")

    def test_namespaces_that_an_engine_filters(self):
        machine = Machine(self)
        shutil.copy(FILTER, machine.dir)
        under = ["/usr/bin/python3", machine.dir / FILTER.name, "engine"]
        machine.root("mount -t tmpfs none /run && touch /run/.containerenv")
        status, found = machine.doctor(*under)
        self.assertEqual((status, found["linux"]["status"]), (1, "missing"), found)
        self.assertIn("making a user namespace: Operation not permitted", found["linux"]["found"])
        # No command: nobody but who started the container knows the rest of the line.
        self.assertEqual(found["linux"]["fix"], None)
        self.assertIn("podman run --security-opt unmask=ALL --security-opt seccomp=unconfined", found["linux"]["found"])
        # What that option does.
        self.assertEqual(machine.doctor()[0], 0)

    def test_a_second_wall_that_is_not_there_is_said(self):
        machine = Machine(self)
        shutil.copy(FILTER, machine.dir)
        status, found = machine.doctor("/usr/bin/python3", machine.dir / FILTER.name, "refuse", "444", "95")
        self.assertEqual((status, found["linux"]["status"]), (0, "ok"), found)
        self.assertEqual(found["landlock"]["status"], "weaker", found)
        self.assertIn("lsm=", found["landlock"]["found"])

    def test_namespaces_in_a_chroot(self):
        machine = Machine(self)
        place = machine.dir / "chroot"
        machine.root(f"mkdir {place} && mount --rbind / {place}")
        status, out, _ = machine.run(f"chroot {place} {machine.become(machine.program, 'doctor')}")
        self.assertEqual(status, 1, out)
        self.assertIn("making a user namespace: Operation not permitted", out)
        self.assertIn("chroot", out)

    def test_a_whole_proc(self):
        machine = Machine(self)
        for path in self.HIDDEN[:2]:
            machine.root(f"mount -t tmpfs none {path}")
        machine.expect_mended("over parts of /proc", "umount " + " ".join(reversed(self.HIDDEN[:2])))

    def test_the_reason_is_heard_however_the_keeper_and_the_first_process_meet(self):
        """Who ends with something unread resets the connection over which he said why."""
        machine = Machine(self)
        for path in self.HIDDEN[:2]:
            machine.root(f"mount -t tmpfs none {path}")
        for _ in range(20):
            _, out, _ = machine.casemate("backends", "--json")
            self.assertIn("mounting a proc: Operation not permitted", json.loads(out)[0]["reason"])

    @unittest.skipIf(SANITIZED, "a sanitizer needs a /proc before the program begins")
    def test_any_proc(self):
        machine = Machine(self)
        machine.root("umount --lazy /proc")
        machine.expect_mended("/proc has no entry for this process")

    @unittest.skipUnless(Path("/proc/sys/vm/memfd_noexec").exists(), "this kernel runs every memory file")
    def test_programs_from_memory(self):
        machine = Machine(self, "--pid", "--fork", "--mount-proc")
        machine.root("sysctl -w vm.memfd_noexec=2")
        machine.expect_mended("vm.memfd_noexec")

    def test_a_whole_proc_is_nothing_that_root_lacks(self):
        machine = Machine(self)
        for path in self.HIDDEN[:2]:
            machine.root(f"mount -t tmpfs none {path}")
        machine.root("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys")
        said = machine.root(f"env CASEMATE_STATE_DIR={machine.dir}/state {machine.program} doctor")
        self.assertIn("ok       linux: started a sandbox", said)
        self.assertIn("ok       linux: boundary: container: ", said)
        # What is hidden there is not to be seen by a way round it, in a program's own /proc.
        (machine.dir / "program.py").write_text(
            "import os\nprint(sorted(n for n in os.listdir('/proc') if n.isdigit()), os.getuid())\n"
            "open('/proc/sys/kernel/hostname', 'w')\n")
        status, out, err = machine.run(f"env CASEMATE_STATE_DIR={machine.dir}/state {machine.program} run "
                                       f"{machine.dir}/program.py")
        self.assertEqual((status, out), (1, "['1', '2'] 1000\n"), err)
        self.assertRegex(err, "PermissionError|Read-only")

    def test_a_container_whose_engine_hides_parts_of_proc_names_the_option(self):
        machine = Machine(self)
        machine.root("mount -t tmpfs none /run && touch /run/.containerenv")
        machine.root("mount --bind /proc/sys /proc/sys")
        status, found = machine.doctor()
        self.assertEqual(status, 1)
        self.assertEqual(found["linux"]["fix"], None)
        self.assertIn("podman run --security-opt unmask=ALL", found["linux"]["found"])
        self.assertIn("docker run --security-opt systempaths=unconfined", found["linux"]["found"])
        machine.expect_refused_everywhere(found["linux"]["found"])
        # What those options do.
        machine.root("umount /proc/sys")
        self.assertEqual(machine.doctor()[0], 0)

    def test_a_range_of_user_ids(self):
        machine = Machine(self)
        changes = machine.dir / "etc"
        machine.root(f"mkdir {changes} && mount -t tmpfs none {changes} && mkdir {changes}/up {changes}/work && "
                     f"mount -t overlay none -o lowerdir=/etc,upperdir={changes}/up,workdir={changes}/work /etc")
        machine.root(f"echo doctor-test:x:{machine.user}:{machine.user}::/:/bin/sh >> /etc/passwd")
        status, found = machine.doctor()
        self.assertEqual((status, found["user ids"]["status"]), (0, "weaker"), found)
        self.assertIn("one user id", found["linux"]["found"])
        machine.root(found["user ids"]["fix"])
        status, found = machine.doctor()
        self.assertEqual((status, found["user ids"]["status"]), (0, "ok"), found)
        self.assertIn("user ids of their own", found["linux"]["found"])

    def test_the_programs_that_give_out_user_ids(self):
        machine = Machine(self)
        machine.root("mount --bind /dev/null /usr/bin/newuidmap")
        _, found = machine.doctor()
        fix = found["user ids"]["fix"]
        # No network here: a stand-in for apt-get brings what the package of that name has, and nothing for another.
        owner = subprocess.run(["dpkg", "-S", "/usr/bin/newuidmap"], capture_output=True, text=True).stdout
        self.assertEqual(fix, "apt-get update && apt-get install -y " + owner.partition(":")[0])
        (machine.dir / "apt-get").write_text(
            '#!/bin/sh\n[ "$*" = update ] || { [ "$*" = "install -y uidmap" ] && umount /usr/bin/newuidmap; }\n')
        machine.root(f"chmod 755 {machine.dir}/apt-get && PATH={machine.dir}:$PATH && {fix}")
        _, found = machine.doctor()
        self.assertNotIn("newuidmap", found["user ids"]["found"])

    def test_a_machine_without_apt_get_is_told_the_package_and_no_command(self):
        machine = Machine(self)
        for path in ("/usr/bin/newuidmap", "/usr/bin/apt-get"):
            if Path(path).exists():
                machine.root(f"mount --bind /dev/null {path}")
        found = machine.doctor()[1]["user ids"]
        self.assertEqual(found["fix"], None)
        self.assertIn("its package uidmap", found["found"])

    def test_a_range_of_user_ids_that_a_process_may_not_use(self):
        machine = Machine(self)
        changes = machine.dir / "etc"
        machine.root(f"mkdir {changes} && mount -t tmpfs none {changes} && mkdir {changes}/up {changes}/work && "
                     f"mount -t overlay none -o lowerdir=/etc,upperdir={changes}/up,workdir={changes}/work /etc")
        machine.root(f"echo doctor-test:x:{machine.user}:{machine.user}::/:/bin/sh >> /etc/passwd && "
                     "for each in subuid subgid; do echo doctor-test:2000000000:65536 >> /etc/$each; done")
        _, found = machine.doctor("setpriv", "--no-new-privs")
        self.assertEqual((found["user ids"]["status"], found["user ids"]["fix"]), ("weaker", None), found)
        self.assertRegex(found["user ids"]["found"], r"\(newgidmap: .*not permitted.*\).*NoNewPrivs")
        self.assertEqual(machine.doctor()[1]["user ids"]["status"], "ok")

    def groups_of_root(self, machine):
        said = machine.root(f"env CASEMATE_STATE_DIR={machine.dir}/state {machine.program} doctor --json")
        found = {record["name"]: record for record in json.loads(said)}
        return found["control groups"], found["linux: limits"]

    @unittest.skipUnless(Path("/sys/fs/cgroup/memory/cgroup.procs").exists(), "no control groups of version 1 here")
    def test_control_groups_that_something_is_mounted_over(self):
        machine = Machine(self)
        self.assertEqual([each["status"] for each in self.groups_of_root(machine)], ["ok", "ok"])
        machine.root("mount -t tmpfs none /sys/fs/cgroup")
        groups, limits = self.groups_of_root(machine)
        self.assertEqual((groups["status"], limits["status"]), ("weaker", "weaker"), groups)
        self.assertIn("something is mounted over /sys/fs/cgroup/memory", groups["found"])
        self.assertNotIn("this user", groups["found"])
        machine.root(groups["fix"])
        self.assertEqual([each["status"] for each in self.groups_of_root(machine)], ["ok", "ok"])

    @unittest.skipUnless(Path("/sys/fs/cgroup/memory/cgroup.procs").exists(), "no control groups of version 1 here")
    def test_control_groups_that_are_not_mounted(self):
        machine = Machine(self)
        machine.root("umount -l /sys/fs/cgroup")
        groups, _ = self.groups_of_root(machine)
        self.assertEqual(groups["status"], "weaker")
        machine.root(groups["fix"])
        self.assertEqual([each["status"] for each in self.groups_of_root(machine)], ["ok", "ok"])

    @unittest.skipUnless(Path("/sys/fs/cgroup/memory/cgroup.procs").exists(), "no control groups of version 1 here")
    def test_control_groups_that_can_only_be_read(self):
        machine = Machine(self)
        machine.root("mount -o remount,bind,ro /sys/fs/cgroup/memory")
        groups, _ = self.groups_of_root(machine)
        self.assertEqual(groups["status"], "weaker")
        machine.root(groups["fix"])
        self.assertEqual([each["status"] for each in self.groups_of_root(machine)], ["ok", "ok"])

    def test_a_place_for_its_state(self):
        machine = Machine(self)
        place = machine.dir / "closed" / "state"
        machine.root(f"mkdir -m 755 {place.parent}")
        before = ["env", f"CASEMATE_STATE_DIR={place}"]
        _, found = machine.doctor(*before)
        self.assertEqual(found["linux"]["status"], "missing", found)
        self.assertEqual(found["linux"]["fix"], f"install -d -m 700 -o {machine.user} -g {machine.user} {shlex.quote(str(place))}")
        machine.root(found["linux"]["fix"])
        self.assertEqual(machine.doctor(*before)[1]["linux"]["status"], "ok")
        machine.root(f"chmod 755 {place}")
        found = machine.doctor(*before)[1]
        self.assertEqual(found["linux"]["fix"], f"chmod 700 {shlex.quote(str(place))}")
        machine.root(found["linux"]["fix"])
        self.assertEqual(machine.doctor(*before)[1]["linux"]["status"], "ok")

    def test_an_engine_that_is_not_installed_is_named_by_its_package(self):
        machine = Machine(self)
        for tool in ("crun", "runc", "runsc"):
            for path in (f"/usr/bin/{tool}", f"/usr/sbin/{tool}", f"/usr/local/bin/{tool}"):
                if Path(path).exists():
                    machine.root(f"mount --bind /dev/null {path}")
        found = machine.doctor()[1]
        self.assertEqual(found["oci"]["fix"], "apt-get update && apt-get install -y crun", found["oci"])
        if shutil.which("crun", path="/usr/bin:/usr/sbin"):
            owner = subprocess.run(["dpkg", "-S", "/usr/bin/crun"], capture_output=True, text=True).stdout
            self.assertEqual(owner.partition(":")[0], "crun")

    def test_a_root_that_has_no_other_user_runs_nobody_as_the_machines_root(self):
        line = f"unshare --user --map-root-user {PROGRAM} doctor"
        result = self.run_argv(["sh", "-c", line])
        self.assertEqual(result.status, 1, result)
        self.assertIn("a user for programs that is not the machine's root", result.text)
        self.assertIn("run as an ordinary user", result.text)
        self.assertRegex(result.text, "(?m)^weaker   user ids: ")

    def test_the_state_directory_of_another_user_is_never_given_away(self):
        machine = Machine(self)
        place = machine.dir / "roots"
        machine.root(f"mkdir -m 700 {place}")
        _, found = machine.doctor("env", f"CASEMATE_STATE_DIR={place}")
        self.assertEqual((found["linux"]["status"], found["linux"]["fix"]), ("missing", None), found)
        self.assertIn("belongs to user 0 with mode 700", found["linux"]["found"])
        self.assertNotIn("install -d", found["linux"]["found"])


if __name__ == "__main__":
    unittest.main()
