"""What --python-sandbox takes from a process besides the namespaces that the server starts it in."""

import ctypes
import os
import platform
import struct

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2

# Instructions of a filter. See linux/bpf_common.h and linux/seccomp.h.
_LOAD, _IF_EQUAL, _IF_GREATER, _RETURN = 0x20, 0x15, 0x25, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16  # offsets in struct seccomp_data

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

_IO_URING_SETUP = 425
# By machine: the constant of its system calls, and the numbers of socket and prlimit64.
_MACHINES = {"x86_64": (0xC000003E, 41, 302), "aarch64": (0xC00000B7, 198, 261)}

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_VERSION = 1  # the flag that asks for the version
_WITH_SCOPES = 6  # the first version that has them
_SCOPE_SIGNAL = 2


def _call(function, *arguments):
    """Calls a function of the C library whose arguments have the size of registers."""
    function.restype = ctypes.c_long
    return function(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def give_up_privileges():
    """Keeps this process and its children from new privileges, such as those of programs with the set-user-ID bit, from the sockets that
    a network namespace does not contain, such as those to the host of a virtual machine, and from setting limits of other processes."""
    libc = _libc()
    if _call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses PR_SET_NO_NEW_PRIVS, which --python-sandbox needs")
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return
    code = _filter(*machine)
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(text))
    if _call(libc.prctl, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses a filter of system calls (seccomp), which --python-sandbox needs")


def _filter(architecture, socket, prlimit):
    """Returns a filter of system calls as instructions of 8 bytes: the operation, how many to leave out if its condition holds and if it
    does not, and an operand."""
    def refuse(errno):
        return _RETURN, 0, 0, _ERROR | errno

    return b"".join(struct.pack("HBBI", *i) for i in (
        (_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, architecture), refuse(_EPERM),  # other architectures number calls otherwise
        (_LOAD, 0, 0, _NUMBER),
        (_IF_GREATER, 0, 1, 0x3FFFFFFF), refuse(_ENOSYS),  # x32
        (_IF_EQUAL, 0, 1, _IO_URING_SETUP), refuse(_ENOSYS),  # it makes sockets, too
        (_IF_EQUAL, 4, 0, socket),
        (_IF_EQUAL, 0, 2, prlimit), (_LOAD, 0, 0, _FIRST), (_IF_EQUAL, 0, 7, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST), (_IF_EQUAL, 5, 0, _AF_UNIX), (_IF_EQUAL, 4, 0, _AF_INET), (_IF_EQUAL, 3, 0, _AF_INET6), (_IF_EQUAL, 2, 0, _AF_NETLINK),
        refuse(_EAFNOSUPPORT), refuse(_EPERM), (_RETURN, 0, 0, _ALLOW),
    ))


def confine():
    """Keeps this process and its children from sending signals to all others, among them the server and the workers of other models, and
    from looking into them. The kernel has this since Linux 6.12, where Landlock is on; elsewhere it does nothing."""
    libc = _libc()
    if _call(libc.syscall, _LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION) < _WITH_SCOPES:
        return
    rules = struct.pack("QQQ", 0, 0, _SCOPE_SIGNAL)  # the first two would limit files and ports
    descriptor = _call(libc.syscall, _LANDLOCK_CREATE, ctypes.c_char_p(rules), len(rules), 0)
    if descriptor < 0 or _call(libc.syscall, _LANDLOCK_RESTRICT, descriptor, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the scope of signals (Landlock), which --python-sandbox needs")
    os.close(descriptor)
