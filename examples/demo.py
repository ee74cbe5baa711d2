"""`make demo`: votes through Kafka, Spark and the core into PostgreSQL, and back as an answer.

Uses nothing but the command line, in a data folder of its own, and stops what it starts.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VALID, UNKNOWN, REPEATED, BROKEN = 4_000, 150, 250, 20
CONTESTANTS = 6
SEED = 2026
ARRIVE_S = 60

HERE = Path(__file__).parent
HEADRACE = [sys.executable, "-m", "headrace.cli"]
LEADERS = "SELECT name, count(*) AS votes FROM votes GROUP BY name ORDER BY votes DESC, name"


def main() -> int:
    """Run the demo; 0 only if every count adds up."""
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
            stack = Stack(Path(folder) / "home")
            with stack.up():
                return run(stack, Path(folder))
    except KeyboardInterrupt:
        print("demo: interrupted; nothing is left running", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        print(f"demo: `headrace {error.cmd[len(HEADRACE)]}` failed", file=sys.stderr)
        return int(error.returncode)


def run(stack: "Stack", folder: Path) -> int:
    """Produce, wait, and show what arrived."""
    file = folder / "votes.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in votes()))
    say(
        f"{VALID + UNKNOWN + REPEATED + BROKEN:,} votes come in: {VALID:,} valid, {UNKNOWN} for "
        f"nobody, {REPEATED} from a phone that has voted, {BROKEN} that are no JSON"
    )
    print(stack.run("produce", "votes", str(file), "--wait"))

    say("what the core has committed, in the warehouse or not")
    print(stack.run("query", LEADERS, "--freshness", "staged"))
    say("what has arrived in the warehouse")
    wait_for(lambda: stack.count("main") == VALID, "the push to bring every valid vote")
    print(stack.run("query", LEADERS, "--freshness", "main"))
    say("what was rejected, and why; and the first three of them")
    print(stack.run("dead-letters", "list", "-n", "3"))
    whole = adds_up(stack)
    tell_where_to_look()
    return 0 if whole else 1


def adds_up(stack: "Stack") -> bool:
    """Compare what arrived with what was sent."""
    arrived = dict(stack.rows(LEADERS, "main"))
    staged = dict(stack.rows(LEADERS, "staged"))
    rejected = Counter(
        json.loads(line)["reason"]
        for line in stack.run("dead-letters", "list", "--json").split("\n")
    )
    checks = {
        "every valid vote arrived once": sum(arrived.values()) == VALID,
        "staged and main agree": arrived == staged,
        "every other vote is a dead letter": rejected
        == {
            "no such contestant": UNKNOWN,
            "this phone has voted already": REPEATED,
            "not JSON": BROKEN,
        },
    }
    say("does it add up?")
    for what, holds in checks.items():
        print(f"  {'yes' if holds else 'NO '}  {what}")
    return all(checks.values())


def tell_where_to_look() -> None:
    """Name the places to go on at."""
    say("where to look next")
    print("  examples/leaderboard.py   the dataflow that ran, in 40 lines")
    print("  README.md                 a tour, with a flow of your own")
    print("  .venv/bin/headrace up     the same stack, for you; Ctrl-C stops it")


def votes() -> Iterator[bytes]:
    """Make votes in an order that is random and always the same."""
    chance = random.Random(SEED)  # noqa: S311 - votes, not secrets
    valid = [(f"555-{n:05}", chance.randint(1, CONTESTANTS)) for n in range(VALID)]
    unknown = [(f"556-{n:05}", CONTESTANTS + 1 + n) for n in range(UNKNOWN)]
    lines = [
        json.dumps({"phone": phone, "contestant": contestant}).encode()
        for phone, contestant in [*valid, *unknown, *chance.sample(valid, REPEATED)]
    ]
    lines += [b'{"phone": "555-' + str(n).encode() for n in range(BROKEN)]
    chance.shuffle(lines)
    return iter(lines)


class Stack:
    """The local stack, used by its command line."""

    def __init__(self, home: Path) -> None:
        self.shared = ["--home", str(home), "--flow", str(HERE / "leaderboard.py")]

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start the stack, and stop it whatever happens."""
        say("broker, PostgreSQL, engine and API start")
        command = [*HEADRACE, "up", "--detach", *self.shared, "--set", "push.every_ms=2000"]
        starting = subprocess.Popen(command)
        try:
            if starting.wait():
                raise subprocess.CalledProcessError(starting.returncode, command)
            yield
        finally:
            starting.wait()  # interrupted, it stops by itself what it has started
            say("all of it stops, and its data is deleted")
            subprocess.run([*HEADRACE, "down", *self.shared], check=True)

    def run(self, *arguments: str) -> str:
        """Run one command and return what it printed."""
        done = subprocess.run(
            [*HEADRACE, *arguments, *self.shared], check=True, text=True, stdout=subprocess.PIPE
        )
        return done.stdout.strip()

    def rows(self, sql: str, freshness: str) -> list[list[Any]]:
        """Ask a query and return the rows."""
        answer = json.loads(self.run("query", sql, "--freshness", freshness, "--json"))
        return list(answer["rows"])

    def count(self, freshness: str) -> object:
        """Count the votes."""
        return self.rows("SELECT count(*) FROM votes", freshness)[0][0]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + ARRIVE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"demo: waited {ARRIVE_S} s for {what}; see `headrace logs`")
        time.sleep(0.2)


def say(what: str) -> None:
    """Print a heading."""
    print(f"\n== {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
