"""The last thing that runs before a part's program: it ties the part's life to its parent's.

    leash.py PARENT_PID ORPHAN_SIGNAL root|user PROGRAM [ARGUMENT ...]

Run as a script of its own, by a bare interpreter, because code between fork and exec must not run
in a process that has threads. Standard library only; it does not know Headrace.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
UNPRIVILEGED_ID = 1000

NO_NAMESPACE = 77
PARENT_GONE = 78
NO_PROGRAM = 127


def become_unprivileged() -> None:
    """Enter a user namespace in which this process is an ordinary user.

    PostgreSQL refuses to run as root. Here it sees uid 1000, while its files stay owned by who
    started it: no other account, no change of owner, no parent folder to be opened.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{UNPRIVILEGED_ID} {uid} 1"),
        ("gid_map", f"{UNPRIVILEGED_ID} {gid} 1"),
    ):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as target:
            target.write(text)


def die_with_parent(parent: int, orphan_signal: int) -> None:
    """Have the kernel signal this process when its parent dies (only Linux can)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, orphan_signal, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        sys.exit(PARENT_GONE)


def main(parent: str, orphan_signal: str, user: str, *program: str) -> None:
    """Become the program."""
    if user == "user":
        try:
            become_unprivileged()
        except (OSError, AttributeError) as error:
            print(f"no user namespace: {error}", file=sys.stderr)  # noqa: T201
            sys.exit(NO_NAMESPACE)
    die_with_parent(int(parent), int(orphan_signal))  # last: a change of credentials undoes it
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # what is ignored would stay ignored in the program
    try:
        os.execvp(program[0], program)  # noqa: S606
    except OSError as error:
        print(f"{program[0]} does not start: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(NO_PROGRAM)


if __name__ == "__main__":
    main(*sys.argv[1:])
