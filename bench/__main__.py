"""The command line: `python -m bench` lists the experiments, `python -m bench NAME` runs one."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from bench.harness import Setup, data_folder
from bench.machine import machine

NAMES = (
    "voter",
    "bank",
    "windows",
    "triggers",
    "lookup",
    "recovery",
    "groups",
    "partitions",
    "ingest",
    "migrate",
    "trades",
    "tpcdi",
    "union",
    "analytics",
    "api",
)
"""Each is a module of this package, with a `run`, and a docstring whose first line tells what."""

ROUNDS = 5
QUICK_S = 35.0
"""When a quick run begins no other round, so that it ends within a minute."""

RESULTS = Path(__file__).parent / "results"
FIGURES_KEPT = 4
"""Digits that count: no machine repeats itself more exactly."""

Report = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    asked = _parser().parse_args(arguments)
    if asked.name is None:
        for name in NAMES:
            print(f"{name:<12}{summary(_module(name))}")
        return 0
    report = measure(asked.name, quick=asked.quick, rounds=asked.rounds)
    text = json.dumps(report, indent=None if asked.json else 2)
    print(text if asked.json else table(report))
    if asked.save:
        RESULTS.mkdir(exist_ok=True)
        saved = json.dumps(report, indent=2) + "\n"
        (RESULTS / f"{asked.name}.json").write_text(saved, encoding="utf-8")
    return 0


def measure(
    name: str, *, quick: bool = False, rounds: int | None = None, scale: float = 1.0
) -> Report:
    """Run one experiment, and report it with the machine that it ran on."""
    with data_folder() as folder:
        here = machine(folder)
        setup = Setup(folder, quick=quick, rounds=rounds or ROUNDS, scale=scale)
        if quick and rounds is None:
            setup = replace(setup, until=time.perf_counter() + QUICK_S)
        result = _module(name).run(setup)
    return {
        "name": name,
        "figures": _rounded(result.figures),
        "peers": _rounded(result.peers),
        "ratios": _rounded({key: median(found) for key, found in result.ratios.items()}),
        "spread": _rounded({key: (min(found), max(found)) for key, found in result.ratios.items()}),
        "settings": {"quick": quick, **result.settings},
        "machine": here,
    }


def summary(module: ModuleType) -> str:
    """Give the first line of a module's docstring."""
    return (module.__doc__ or "").strip().splitlines()[0]


def table(report: Report) -> str:
    """Write a report for a reader."""
    lines = [f"{report['name']}: {summary(_module(report['name']))}"]
    for section in ("figures", "peers", "ratios", "settings", "machine"):
        rows = list(_rows(report[section]))
        width = max((len(key) for key, _ in rows), default=0)
        lines += ["", section]
        lines += [f"  {key:<{width}}  {value}{_range(report, section, key)}" for key, value in rows]
    return "\n".join(lines)


def _rows(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _rows(value, f"{prefix}{key} ")
        elif isinstance(value, float):
            yield prefix + key, f"{value:,g}"
        else:
            yield prefix + key, str(value)


def _range(report: Report, section: str, key: str) -> str:
    if section != "ratios":
        return ""
    low, high = report["spread"][key]
    return f"  ({low} to {high})"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(of) for key, of in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(of) for of in value]
    return float(f"{value:.{FIGURES_KEPT}g}")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"bench.{name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Experiments side by side with peers, in the same run."
    )
    parser.add_argument("name", nargs="?", choices=NAMES, help="without one: list them")
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    parser.add_argument("--rounds", type=_positive, help="how often everybody has a turn")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--save", action="store_true", help="write bench/results/NAME.json, too")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
