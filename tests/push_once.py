"""A program that pushes once, for tests that kill it: push_once.py HOME URL CRASH_AT."""

import sys
from pathlib import Path

import shop

from migrations import warehouse


def main(home: str, url: str, crash_at: str) -> None:
    store = shop.Shop(Path(home))
    with warehouse.connect(url, application="test") as connection:
        warehouse.prepare(connection, shop.flow)
        store.a_push(crash_at=crash_at).run(connection, shop.flow)


if __name__ == "__main__":
    main(*sys.argv[1:])
