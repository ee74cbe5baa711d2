"""The voter's bars: ours and peers, from the figures that a run has saved, as one SVG.

python -m bench voter --save && python -m bench.plot
"""

import json
from html import escape
from typing import Any

from bench.__main__ import RESULTS

WIDTH, LABEL, BAR, GAP = 760, 240, 18, 8
OURS, PEER = "#1f6f8b", "#b8b8b8"


def main() -> None:
    """Draw what was saved."""
    report = json.loads((RESULTS / "voter.json").read_text(encoding="utf-8"))
    (RESULTS / "voter.svg").write_text(drawn(report), encoding="utf-8")


def drawn(report: dict[str, Any]) -> str:
    """Draw the batches a second of everybody, the fastest first."""
    rates = {
        name: (report["figures"][f"{name}_batches_per_s"], OURS) for name in ("strong", "weak")
    }
    rates |= {name: (peer["batches_per_s"], PEER) for name, peer in report["peers"].items()}
    most = max(rate for rate, _ in rates.values())
    lines = []
    for number, (name, (rate, colour)) in enumerate(
        sorted(rates.items(), key=lambda item: -item[1][0])
    ):
        y = 40 + number * (BAR + GAP)
        length = (WIDTH - LABEL - 90) * rate / most
        who = f"Headrace, {name}" if colour == OURS else name.replace("_", " ")
        lines += [
            f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(who)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LABEL + length + 6:.1f}" y="{y + 13}">{rate:,.0f}</text>',
        ]
    height = 48 + len(rates) * (BAR + GAP)
    what = f"Votes a second, one vote a batch, on {report['machine']['cores']} cores"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="16" y="24" font-size="15">{escape(what)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
