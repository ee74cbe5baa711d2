"""Bars: ours and peers, from the figures that a run has saved, as one SVG for each experiment.

python -m bench voter --save && python -m bench.plot
"""

import json
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from bench.__main__ import RESULTS
from bench.consumers import READING
from bench.migrate_peers import HEADRACE, PEERS, PUSH_ALONE
from bench.tpcdi_loading import STAGES
from bench.trades import RATE
from bench.union import SHAPES_LARGE

WIDTH, LABEL, BAR, GAP = 760, 240, 18, 8
OURS, PEER = "#1f6f8b", "#b8b8b8"
EXACT_BELOW = 100
UNION_PLANS = {
    "ship": ("shipped", PEER),
    "split": ("divided", OURS),
    "warehouse": ("the warehouse alone", OURS),
}
STEPS_SHOWN = 12

Report = dict[str, Any]
Bars = dict[str, tuple[float, str]]
"""Of each, its rate and its colour."""
Groups = dict[str, Bars]
"""Each with its heading, which may be empty; the longest bar of each is as long as the others'."""


def main() -> None:
    """Draw what was saved."""
    for name, (what, groups) in PLOTS.items():
        saved = RESULTS / f"{name}.json"
        if not saved.exists():
            continue
        report = json.loads(saved.read_text(encoding="utf-8"))
        title = f"{what}, on {report['machine']['cores']} cores"
        note = report["settings"].get("results", "")
        (RESULTS / f"{name}.svg").write_text(drawn(title, groups(report), note), encoding="utf-8")


def voter(report: Report) -> Groups:
    """Give the batches a second of everybody."""
    bars = {
        f"Headrace, {name}": (report["figures"][f"{name}_batches_per_s"], OURS)
        for name in ("strong", "weak")
    } | {
        name.replace("_", " "): (peer["batches_per_s"], PEER)
        for name, peer in report["peers"].items()
    }
    return {"": fastest_first(bars)}


def migrate(report: Report) -> Groups:
    """Give the changes a second of who moves changes."""
    peers = report["peers"]
    ours = {"Headrace, pushed": PUSH_ALONE, "Headrace, and merged": HEADRACE}
    others = [name for name in (*PEERS, READING) if name in peers]
    bars = {label: (peers[name]["rows_per_s"], OURS) for label, name in ours.items()} | {
        name.replace("_", " "): (peers[name]["rows_per_s"], PEER) for name in others
    }
    return {"": fastest_first(bars)}


def trades(report: Report) -> Groups:
    """Give the trades a second of all ways, for each size of a batch."""
    ways = {"four procedures": report["figures"], **report["peers"]}
    return {
        f"batches of {int(key.removeprefix(f'{RATE}at_')):,}": {
            name.replace("_", " "): (of[key], PEER if "client" in name else OURS)
            for name, of in ways.items()
        }
        for key in report["figures"]
    }


def tpcdi(report: Report) -> Groups:
    """Give the seconds of the historical load, ours and the peer's, by all that they are of."""
    figures, (peer,) = report["figures"], report["peers"].values()
    took = {
        "by stage": {name: figures[f"historical_{name}_s"] for name in STAGES},
        "by source, sent and taken": {
            name: figures[f"sent_{name}_s"] + taken for name, taken in _of(figures, "taken_")
        },
        "by part, of its CPUs": dict(_of(figures, "cpu_")),
    }
    of_peer = {
        f"by step, the {STEPS_SHOWN} longest": dict(_longest(_of(peer, "step_"))[:STEPS_SHOWN]),
        "by part, of its CPUs": dict(_of(peer, "cpu_")),
    }
    return {
        f"{who}: {how}": {name: (seconds, colour) for name, seconds in _longest(bars.items())}
        for who, colour, groups in (
            (f"Headrace, {figures['historical_s']:,.1f} s", OURS, took),
            (f"ELT in PostgreSQL, {peer['historical_s']:,.1f} s", PEER, of_peer),
        )
        for how, bars in groups.items()
    }


def union(report: Report) -> Groups:
    """Give the milliseconds of both plans, by the share that is staged, of the largest table."""
    size = max(report["settings"]["sizes"])
    groups: Groups = {}
    for shape in SHAPES_LARGE:
        bars = {
            f"{key.split('_at_')[1].split('_')[0]} % staged, {UNION_PLANS[plan][0]}": (
                took,
                UNION_PLANS[plan][1],
            )
            for key, took in report["figures"].items()
            for plan in UNION_PLANS
            if key.startswith(f"{shape}_of_{size}_at_") and key.endswith(f"_{plan}_ms")
        }
        groups[f"{report['settings']['shapes'][shape]}, {size:,} rows"] = bars
    return groups


def analytics(report: Report) -> Groups:
    """Give the milliseconds of each query, ours and the peers'."""
    peers = report["peers"].items()
    return {
        key.removesuffix("_ms").replace("_", " "): {
            "Headrace, 1 % staged": (took, OURS),
            **{f"{who.replace('_', ' ')}, all merged": (of[key], PEER) for who, of in peers},
        }
        for key, took in report["figures"].items()
    }


def _of(figures: Mapping[str, float], kind: str) -> Iterable[tuple[str, float]]:
    """Give the seconds of a kind by what they are of."""
    return (
        (key.removeprefix(kind).removesuffix("_s"), seconds)
        for key, seconds in figures.items()
        if key.startswith(kind)
    )


def _longest(seconds: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(seconds, key=lambda item: -item[1])


PLOTS: dict[str, tuple[str, Callable[[Report], Groups]]] = {
    "voter": ("Votes a second, one vote a batch", voter),
    "migrate": ("Changes a second (peers: read from Kafka, too)", migrate),
    "trades": ("TPC-DI's trades a second into DimTrade, by the trades of a batch", trades),
    "tpcdi": ("Where the seconds of TPC-DI's historical load go", tpcdi),
    "union": ("Milliseconds of a query over what is staged and what is merged", union),
    "analytics": ("Milliseconds of analytic queries over TPC-DI's warehouse", analytics),
}


def fastest_first(bars: Bars) -> Bars:
    """Order bars by their rates."""
    return dict(sorted(bars.items(), key=lambda item: -item[1][0]))


def drawn(title: str, groups: Groups, note: str = "") -> str:
    """Draw groups of bars, one below the other; a note stands below the title."""
    lines, y = [], 40
    if note:
        lines.append(f'<text x="16" y="44">{escape(note)}</text>')
        y += BAR + GAP
    for heading, bars in groups.items():
        if heading:
            lines.append(f'<text x="16" y="{y + 13}" font-weight="bold">{escape(heading)}</text>')
            y += BAR + GAP
        most = max(rate for rate, _ in bars.values())
        for who, (rate, colour) in bars.items():
            length = (WIDTH - LABEL - 90) * rate / most
            shown = f"{rate:,.0f}" if rate >= EXACT_BELOW else f"{rate:,.1f}"
            lines += [
                f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(who)}</text>',
                f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
                f'<text x="{LABEL + length + 6:.1f}" y="{y + 13}">{shown}</text>',
            ]
            y += BAR + GAP
    height = y + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="16" y="24" font-size="15">{escape(title)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
