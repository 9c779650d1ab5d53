"""Runs a command under what others put in the way of user namespaces:

    outer_filter.py engine COMMAND...           the filter of a container's engine: no new namespaces
    outer_filter.py refuse CALL ERRNO COMMAND...  a kernel or an older filter without one system call, by number
    outer_filter.py clone SETTING COMMAND...     Debian's switch: SETTING stands for
        /proc/sys/kernel/unprivileged_userns_clone, and with 0 in it nobody makes a user namespace
    outer_filter.py apparmor SETTING COMMAND...  Ubuntu's restriction. SETTING is a file that stands for
        /proc/sys/kernel/apparmor_restrict_unprivileged_userns: with 1 in it nobody but root of the
        machine makes a user namespace, and whatever opens that name finds the file.
"""

import array
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
# What stands in the way: the setting's name, what it says then, and what a refused program hears.
WALLS = {"apparmor": (b"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", errno.EACCES),
         "clone": (b"/proc/sys/kernel/unprivileged_userns_clone", "0", errno.EPERM)}
CLONE_NEWUSER = 0x10000000
OPENAT, NEWFSTATAT, READLINK, UNSHARE, CLONE, CLONE3, MOUNT = 257, 262, 89, 272, 56, 435, 165  # x86-64
ALLOW, NOTIFY, ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
RECEIVE, SEND, ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103


def statement(code, value, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, value)


LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06


def install(rules, flags):
    """rules: [(call, mask of the first argument or None, what to return)]; the rest is allowed."""
    code = b""
    for call, mask, answer in rules:
        code += statement(LOAD, 0) + statement(EQUAL, call, no=3 if mask else 1)
        if mask:
            code += statement(LOAD, 16) + statement(ANY_BIT, mask, no=1)
        code += statement(RETURN, answer)
    code += statement(RETURN, ALLOW)
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(text))
    LIBC.prctl(38, 1, 0, 0, 0) if os.geteuid() != 0 else None  # PR_SET_NO_NEW_PRIVS
    result = LIBC.syscall(317, 1, flags, program)
    if result < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return result


def engine(argv):
    install([(UNSHARE, CLONE_NEWUSER, ERRNO | errno.EPERM), (CLONE, CLONE_NEWUSER, ERRNO | errno.EPERM),
             (CLONE3, None, ERRNO | errno.ENOSYS), (MOUNT, None, ERRNO | errno.EPERM)], 0)
    os.execvp(argv[0], argv)


def text_in(pid, address, size):
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), size, address)
    except OSError:
        return b""


def answer(listener, wall, setting):
    """One system call of somebody's; False when nobody is left."""
    notice = bytearray(80)
    try:
        fcntl.ioctl(listener, RECEIVE, notice)
    except OSError as error:
        return error.errno == errno.EINTR
    identity, pid, _, call, _, _, *arguments = struct.unpack("QIIiIQ6Q", notice)
    error, go_on = 0, 1
    name, refuses, refusal = wall
    if call == UNSHARE:
        with open(setting) as file:
            if file.read().strip() == refuses:
                error, go_on = -refusal, 0
    elif text_in(pid, arguments[0 if call == READLINK else 1], len(name) + 1) == name + b"\0":
        if call == OPENAT:
            found = os.open(setting, arguments[2] & ~os.O_CREAT)
            try:
                fcntl.ioctl(listener, ADD_DESCRIPTOR, struct.pack("QIIII", identity, 2, found, 0, os.O_CLOEXEC))
            except OSError:
                pass  # it was killed meanwhile
            os.close(found)
            return True
        go_on = 0
        if call == READLINK:
            error = -errno.EINVAL  # no link
        else:
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                os.pwrite(memory.fileno(), struct.pack("24xI116x", 0o100644), arguments[2])
    try:
        fcntl.ioctl(listener, SEND, struct.pack("QqiI", identity, 0, error, go_on))
    except OSError:
        pass
    return True


def behind(wall, setting, argv):
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        listener = install([(UNSHARE, CLONE_NEWUSER, NOTIFY), (OPENAT, None, NOTIFY), (NEWFSTATAT, None, NOTIFY),
                            (READLINK, None, NOTIFY)], 8)
        theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
        LIBC.close(listener)
        os.execv(argv[0], argv)
    _, control, _, _ = ours.recvmsg(1, 64)
    listener = array.array("i", control[0][2])[0]
    # Until the last of them has ended, the ones that outlive the command included.
    while answer(listener, wall, setting):
        pass
    os.waitpid(child, 0)


if __name__ == "__main__":
    if sys.argv[1] == "refuse":
        install([(int(sys.argv[2]), None, ERRNO | int(sys.argv[3]))], 0)
        os.execvp(sys.argv[4], sys.argv[4:])
    if sys.argv[1] == "engine":
        engine(sys.argv[2:])
    behind(WALLS[sys.argv[1]], sys.argv[2], sys.argv[3:])
