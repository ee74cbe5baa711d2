"""A program that writes while others ask: it feeds a core, pushes what it stages, and merges.

    python -m bench.api_meanwhile FOLDER URL FIRST

says when it has begun, goes on after the batches and the row FIRST until its input ends, and then
prints what it has done.
"""

import json
import math
import sys
import threading
import time
from pathlib import Path

from bench.bare import GROUP_BATCHES
from bench.migrate_ours import moving
from bench.ours import Ours, arrivals
from bench.union_table import BATCHES, parts, union
from headrace import config

EACH, EVERY_S = 500, 0.05
"""Rows of a batch in each table, and how often one comes."""
MERGE_EVERY_S = 2.0


def main(folder: Path, url: str, first: int) -> dict[str, float]:
    """Write until told to end."""
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    batches = pushes = merges = 0
    merged_at = -math.inf
    with Ours(folder, union, "strong", group=GROUP_BATCHES) as ours, moving(folder, url) as move:
        print("begun", flush=True)
        began = time.monotonic()
        while not ended.wait(EVERY_S):
            row = (first + batches * EACH, EACH)
            ours.feed(arrivals(parts, [row], first_offset=BATCHES + batches))
            batches += 1
            pushes += move.push_once(union, config.Push().batches_max).rows > 0
            if time.monotonic() - merged_at > MERGE_EVERY_S:
                move.merge(union)
                merges += 1
                merged_at = time.monotonic()
    seconds = time.monotonic() - began
    return {
        "meanwhile_rows_per_s": 2 * EACH * batches / seconds,
        "meanwhile_pushes": pushes,
        "meanwhile_merges": merges,
    }


if __name__ == "__main__":
    where, warehouse, start = sys.argv[1:]
    print(json.dumps(main(Path(where), warehouse, int(start))))
