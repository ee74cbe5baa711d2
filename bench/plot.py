"""Bars: ours and peers, from the figures that a run has saved, as one SVG for each experiment.

python -m bench voter --save && python -m bench.plot
"""

import json
from collections.abc import Callable
from html import escape
from typing import Any

from bench.__main__ import RESULTS
from bench.migrate_consumers import READING
from bench.migrate_peers import HEADRACE, PEERS, PUSH_ALONE

WIDTH, LABEL, BAR, GAP = 760, 240, 18, 8
OURS, PEER = "#1f6f8b", "#b8b8b8"

Report = dict[str, Any]
Bars = dict[str, tuple[float, str]]
"""Of each, its rate and its colour."""


def main() -> None:
    """Draw what was saved."""
    for name, (what, bars) in PLOTS.items():
        report = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        title = f"{what}, on {report['machine']['cores']} cores"
        (RESULTS / f"{name}.svg").write_text(drawn(title, bars(report)), encoding="utf-8")


def voter(report: Report) -> Bars:
    """Give the batches a second of everybody."""
    return {
        f"Headrace, {name}": (report["figures"][f"{name}_batches_per_s"], OURS)
        for name in ("strong", "weak")
    } | {
        name.replace("_", " "): (peer["batches_per_s"], PEER)
        for name, peer in report["peers"].items()
    }


def migrate(report: Report) -> Bars:
    """Give the changes a second of who moves changes."""
    peers = report["peers"]
    ours = {"Headrace, pushed": PUSH_ALONE, "Headrace, and merged": HEADRACE}
    others = [name for name in (*PEERS, READING) if name in peers]
    return {label: (peers[name]["rows_per_s"], OURS) for label, name in ours.items()} | {
        name.replace("_", " "): (peers[name]["rows_per_s"], PEER) for name in others
    }


PLOTS: dict[str, tuple[str, Callable[[Report], Bars]]] = {
    "voter": ("Votes a second, one vote a batch", voter),
    "migrate": ("Changes a second (peers: read from Kafka, too)", migrate),
}


def drawn(title: str, bars: Bars) -> str:
    """Draw the rates of everybody, the fastest first."""
    most = max(rate for rate, _ in bars.values())
    lines = []
    for number, (who, (rate, colour)) in enumerate(
        sorted(bars.items(), key=lambda item: -item[1][0])
    ):
        y = 40 + number * (BAR + GAP)
        length = (WIDTH - LABEL - 90) * rate / most
        lines += [
            f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(who)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LABEL + length + 6:.1f}" y="{y + 13}">{rate:,.0f}</text>',
        ]
    height = 48 + len(bars) * (BAR + GAP)
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
