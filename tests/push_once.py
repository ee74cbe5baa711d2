"""A program that pushes once, for tests that kill it: push_once.py HOME URL CRASH_AT."""

import sys
from pathlib import Path

import shop

from headrace.crash import CrashPoints
from migrations import warehouse
from migrations.push import Push


def main(home: str, url: str, crash_at: str) -> None:
    store = shop.Shop(Path(home))
    push = Push(store.reader, store.core.forget, CrashPoints(crash_at), batches_max=1_000)
    with warehouse.connect(url, application="test") as connection:
        warehouse.prepare(connection, shop.flow)
        push.run(connection, shop.flow)


if __name__ == "__main__":
    main(*sys.argv[1:])
