"""Headrace's load of TPC-DI: a stack of its own, its loader, and what these took."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tpcdi.flow
from bench import killing
from bench.harness import Figures
from bench.memory import Memory
from headrace import config
from headrace.errors import HeadraceError
from headrace.local import state
from headrace.local.home import Home

FLOW = Path(tpcdi.flow.__file__)
SCALE_OF_WHOLE_AUDIT = 0.3
"""Below it there are too few customers for one of the audit's checks."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A directory that was loaded and audited."""

    phases: list[dict[str, float]]
    """The rows of source and the seconds of each."""
    stages: list[dict[str, float]]
    """What each phase's seconds are made of."""
    sent: dict[str, float]
    """The seconds in which the broker had the tuples of a stream, over all phases."""
    taken: dict[str, float]
    """And those in which, after it, the core had taken them; several streams go at a time."""
    audit_s: float
    memory_mb: dict[str, float]

    @property
    def historical_s(self) -> float:
        """Tell the seconds of the first phase."""
        return self.phases[0]["seconds"]

    @property
    def historical_rows(self) -> int:
        """Tell the rows of source of the first phase."""
        return int(self.phases[0]["rows"])

    def figures(self) -> Figures:
        """Tell all of it flat."""
        found: Figures = {}
        for number, (phase, stages) in enumerate(zip(self.phases, self.stages, strict=True), 1):
            name = "historical" if number == 1 else f"increment_{number}"
            found[f"{name}_rows_per_s"] = phase["rows"] / phase["seconds"]
            found[f"{name}_s"] = phase["seconds"]
            found |= {f"{name}_{stage}_s": seconds for stage, seconds in stages.items()}
        found |= {f"send_{stream}_s": seconds for stream, seconds in sorted(self.sent.items())}
        found |= {f"take_{stream}_s": seconds for stream, seconds in sorted(self.taken.items())}
        found |= {f"memory_{part}_mb": mb for part, mb in sorted(self.memory_mb.items())}
        return found | {"audit_s": self.audit_s}


def load(folder: Path, directory: Path, scale: float) -> Loaded:
    """Load a directory into an empty warehouse; one that is not as it must be is no figure."""
    settings = {"home": str(folder / "home"), "flows": str(FLOW)}
    with _stack(settings):
        found = state.running(Home(folder / "home"))
        assert found is not None, "it is up"
        roots = {name: part.pid for name, part in found.parts.items() if part.pid is not None}
        with Memory(roots).watched() as memory:
            told = killing.run(
                killing.module("bench.tpcdi_loading", directory), config.child_environment(settings)
            )
    return _checked(json.loads(told.splitlines()[-1]), memory, scale)


def _checked(told: dict[str, Any], memory: Memory, scale: float) -> Loaded:
    assert not told["differences"], "\n".join(told["differences"])
    assert scale < SCALE_OF_WHOLE_AUDIT or not told["wrong"], "\n".join(told["wrong"])
    return Loaded(
        phases=told["phases"],
        stages=told["stages"],
        sent=told["sent"],
        taken=told["taken"],
        audit_s=told["audit_s"],
        memory_mb=memory.peaks_mb() | {"loader": told["peak_mb"]},
    )


@contextmanager
def _stack(settings: dict[str, str]) -> Iterator[None]:
    """Run all parts, and leave none."""
    environment = config.child_environment(settings)
    try:
        _headrace(environment, "up", "--detach")
        yield
    finally:
        _headrace(environment, "down")


def _headrace(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "headrace.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise HeadraceError(
            f"`headrace {' '.join(arguments)}` ended with {done.returncode}:\n{last}",
            hint="Look why: is there memory and disk enough?",
        )
