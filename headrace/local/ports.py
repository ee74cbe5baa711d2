"""Ports: free unless configured, chosen once and remembered, so that clients keep an address."""

import errno
import json
import os
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError, HeadraceError, Refused

# Below the range from which the kernel takes ports for outgoing connections: there, a client that
# tries again and again to reach a part that is down could take the part's port for itself.
LOWEST, HIGHEST = 20_000, 32_767
ATTEMPTS_MAX = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """A port that a part needs."""

    name: str
    host: str
    port: int = 0
    """The configured one; 0: any."""


def choose(wanted: Sequence[Wanted], memory: Path) -> dict[str, int]:
    """Choose a port for each: the configured one, else the one of last time, else a free one."""
    remembered = _remembered(memory)
    chosen: dict[str, int] = {}
    for want in wanted:
        if want.port:
            _require_free(want, chosen)
            chosen[want.name] = want.port
    for want in wanted:
        if not want.port:
            chosen[want.name] = _free(want, remembered.get(want.name, 0), set(chosen.values()))
    _remember(memory, remembered | chosen)
    return chosen


def _require_free(want: Wanted, chosen: Mapping[str, int]) -> None:
    for other, port in chosen.items():
        if port == want.port:
            raise ConfigError(
                f"{other}.port and {want.name}.port are both {port}",
                hint="Give one of them another port, or 0 for a free one.",
            )
    error = _refusal(want.host, want.port)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise Refused(
            f"{want.name}.port is {want.port}, and another program listens there ({want.host})",
            hint=f"Stop that program, or set {want.name}.port to another, or to 0 for a free one.",
        )
    raise _bad_address(want, error)


def _bad_address(want: Wanted, error: OSError) -> ConfigError:
    return ConfigError(
        f"{want.name}: this machine does not let us listen on {want.host}, port {want.port}: "
        f"{error.strerror}",
        hint=f"Set {want.name}.host to an address of this machine, and {want.name}.port to a port "
        "that you may use, or to 0.",
    )


def _free(want: Wanted, last: int, others: set[int]) -> int:
    """Give the port of last time if it can be had, else a random free one."""
    draw = random.SystemRandom()
    candidates = (draw.randint(LOWEST, HIGHEST) for _ in range(ATTEMPTS_MAX))
    for port in (last, *candidates):
        if port == 0 or port in others:
            continue
        error = _refusal(want.host, port)
        if error is None:
            return port
        if error.errno != errno.EADDRINUSE:
            raise _bad_address(want, error)
    raise HeadraceError(
        f"no free port was found for {want.name} between {LOWEST} and {HIGHEST}",
        hint=f"Set {want.name}.port.",
    )


def _refusal(host: str, port: int) -> OSError | None:
    """Try to bind; give the error if it cannot be done."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            # Connections of a former listener that linger are no obstacle for the parts either.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        return error
    return None


def _remembered(memory: Path) -> dict[str, int]:
    try:
        found = json.loads(memory.read_text(encoding="utf-8"))
        return {str(name): int(port) for name, port in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}  # forgetting costs clients their address, nothing else


def _remember(memory: Path, ports: dict[str, int]) -> None:
    draft = memory.with_suffix(".new")
    draft.write_text(json.dumps(ports), encoding="utf-8")
    os.replace(draft, memory)
