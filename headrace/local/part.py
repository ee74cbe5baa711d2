"""What a part of the local stack is: a program, how to see that it is ready, how to stop it."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.errors import Exit

PROBE_TIMEOUT_S = 2.0

Probe = Callable[[int], None]
"""Called with the pid of the part's process; raises anything until the part is ready."""


def nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part, as declared; the supervisor knows no more about it."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    address: str
    probe: Probe
    prepare: Callable[[], None] = nothing
    """Brings the part's files into order; called before every start."""
    after: tuple[str, ...] = ()
    """The parts that must have been ready before this one is started."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 20.0
    orphan_signal: signal.Signals = signal.SIGKILL
    """What the kernel sends when the supervisor is gone."""
    not_as_root: bool = False
    """The program refuses to run as root: see leash.py."""
    final_exits: frozenset[Exit] = frozenset()
    """Exit codes that another start would not change."""


def reachable(host: str) -> str:
    """Give the host that a client on this machine uses to reach a listener on `host`."""
    return "127.0.0.1" if host in ("", "0.0.0.0", "*") else host  # noqa: S104 - read, not bound
