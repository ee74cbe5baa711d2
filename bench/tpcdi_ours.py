"""Headrace's load of TPC-DI: a stack of its own, its loader and its stream, and what these took."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tpcdi.flow
from bench import killing
from bench.harness import Figures
from bench.usage import Usage
from headrace import config
from headrace.cli.tpcdi_parts import Stack
from headrace.errors import HeadraceError
from headrace.local import state
from headrace.local.home import Home
from tpcdi import oracle

FLOW = Path(tpcdi.flow.__file__)
SCALE_OF_WHOLE_AUDIT = 0.3
FAILS_BELOW = "DimCustomer LocalTaxRate"
"""The check that wants more customers than there are at a smaller scale."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A directory that was loaded and audited, as the loader told of it."""

    told: Mapping[str, Any]
    cpu_s: Figures
    """Of each part, while the historical phase was loaded."""

    @property
    def historical_s(self) -> float:
        """Tell the seconds of the first phase."""
        return float(self.told["phases"][0]["seconds"])

    @property
    def historical_rows(self) -> int:
        """Tell the rows of source of the first phase."""
        return int(self.told["phases"][0]["rows"])

    def figures(self) -> Figures:
        """Tell all of it flat; several streams are sent and taken at a time."""
        told = self.told
        found: Figures = {}
        for number, (phase, stages) in enumerate(
            zip(told["phases"], told["stages"], strict=True), 1
        ):
            name = "historical" if number == 1 else f"increment_{number}"
            ends = "_counted" if number == 1 else ""
            found[f"{name}{ends}_rows_per_s"] = phase["rows"] / phase["seconds"]
            found[f"{name}_s"] = phase["seconds"]
            found |= {f"{name}_{stage}_s": seconds for stage, seconds in stages.items()}
        for how in ("sent", "taken"):
            found |= {f"{how}_{stream}_s": s for stream, s in sorted(told[how].items())}
        cpu_s = {**self.cpu_s, "loader": told["cpu_s"]}
        found |= {f"cpu_{part}_s": seconds for part, seconds in sorted(cpu_s.items())}
        audited_s = self.historical_s + told["audit_s"]
        return found | {
            "historical_rows_per_s": self.historical_rows / audited_s,
            "audit_s": told["audit_s"],
            "memory_loader_mb": told["peak_mb"],
        }


class Ours:
    """A stack that runs."""

    def __init__(self, settings: Mapping[str, str], usage: Usage) -> None:
        self._settings = settings
        self._usage = usage

    def load(self, directory: Path, scale: float) -> Loaded:
        """Load a directory; a warehouse that is not as the audit wants it is no figure."""
        environment = config.child_environment(self._settings)
        told = json.loads(
            killing.run(killing.module("bench.tpcdi_loading", directory), environment).splitlines()[
                -1
            ]
        )
        may_fail = {FAILS_BELOW} if scale < SCALE_OF_WHOLE_AUDIT else set()
        assert told["wrong"].keys() <= may_fail, told["wrong"]
        return Loaded(told, self._usage.cpu_s(*told["historical"]))

    def compare(self, directory: Path) -> None:
        """Compare the warehouse with the oracle: one that is wrong is no figure."""
        parts = Stack(config.load(self._settings, environment={}).config)
        with parts.warehouse() as warehouse, oracle.compute(directory) as computed:
            differences = oracle.compare(warehouse, computed)
        assert not differences, "\n".join(map(str, differences))

    def merge(self) -> float:
        """Bring what was loaded into main; tell the seconds."""
        began = time.perf_counter()
        _headrace(self._settings, "migrate", "merge")
        return time.perf_counter() - began

    def stream(self, directory: Path, rate: int, seconds: int) -> Figures:
        """Go on as a live stream, and tell how fresh the warehouse was."""
        options = ["--rate", str(rate), "--seconds", str(seconds), "--json"]
        told = json.loads(_headrace(self._settings, "tpcdi", "stream", str(directory), *options))
        fresh = told["freshness"]
        return {
            f"stream_rows_per_s_at_{rate}": told["rows_per_s"],
            f"stream_other_s_at_{rate}": told["other_seconds"],
            f"freshness_ms_p50_at_{rate}": fresh["p50_ms"],
            f"freshness_ms_p99_at_{rate}": fresh["p99_ms"],
        }

    def memory(self) -> Figures:
        """Tell the most memory that each part has had."""
        return {f"memory_{part}_mb": mb for part, mb in sorted(self._usage.peaks_mb().items())}


@contextmanager
def stack(folder: Path) -> Iterator[Ours]:
    """Run all parts with an empty warehouse, and leave none."""
    settings = {"home": str(folder / "home"), "flows": str(FLOW)}
    try:
        _headrace(settings, "up", "--detach")
        found = state.running(Home(folder / "home"))
        assert found is not None, "it is up"
        roots = {name: part.pid for name, part in found.parts.items() if part.pid is not None}
        with Usage(roots).watched() as usage:
            yield Ours(settings, usage)
    finally:
        _headrace(settings, "down")


def _headrace(settings: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "headrace.cli", *arguments]
    environment = config.child_environment(settings)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise HeadraceError(
            f"`headrace {' '.join(arguments)}` ended with {done.returncode}:\n{last}",
            hint="Look why: is there memory and disk enough?",
        )
    return done.stdout
