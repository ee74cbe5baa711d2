"""`make picture`: the status page of a stack that runs the voter under load, as docs/status-*.png.

It is the demo's stack, with as many votes as keep it at work, queries and migrations meanwhile.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from browsing import Browser, browsing

from bench.voter_show import votes
from examples.demo import HEADRACE, HERE, Stack, lines, show, wait_for

VOTES = 400_000
LOOKS_S = 25
"""So long the page looks on before it is taken: the small charts show a while."""
WIDTH, HEIGHT = 1200, 880
QUERIES = (
    "SELECT total, contestant, votes FROM removed ORDER BY total DESC LIMIT 10",
    "SELECT count(*), max(votes) FROM removed",
    "SELECT contestant, votes, rank() OVER (ORDER BY votes DESC) AS place FROM removed",
)
DOCS = Path(__file__).parent.parent / "docs"


def main() -> int:
    """Take the pictures."""
    return show(run, HERE / "voter.py", "push.every_ms=2000")


def run(stack: Stack, folder: Path) -> int:
    """Keep the stack at work, and take its page in light and dark."""
    made, _ = votes(VOTES)
    file = folder / "votes.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in lines(made)))
    producing = subprocess.Popen([*HEADRACE, "produce", "votes", str(file), *stack.shared])
    try:
        wait_for(lambda: stack.reached("arrived") > 0, "the engine's first push")
        address = json.loads(stack.run("status", "--json"))["parts"]["api"]["address"]
        key = (Path(stack.shared[1]) / "secrets" / "api.key").read_text().strip()
        with browsing(folder / "browser") as browser:
            browser.size(WIDTH, HEIGHT)
            browser.prefers("light")
            browser.go(f"http://{address.removeprefix('http://')}/")
            browser.until("document.activeElement.id === 'key'")
            browser.type(key)
            browser.press("Enter")
            look_on(stack, browser)
            for scheme in ("light", "dark"):
                browser.prefers(scheme)
                browser.picture(DOCS / f"status-{scheme}.png")
    finally:
        producing.kill()
        producing.wait()
    return 0


def look_on(stack: Stack, browser: Browser) -> None:
    """Ask, pull and merge for as long as the page looks on."""
    stack.migrate("pull", "--id", "nightly-1")
    until = time.monotonic() + LOOKS_S
    while time.monotonic() < until:
        for sql in QUERIES:
            stack.rows(sql, "staged")
    stack.migrate("merge", "--id", "merge-1")
    browser.until("document.querySelectorAll('#migrations tbody tr').length >= 2")


if __name__ == "__main__":
    sys.exit(main())
