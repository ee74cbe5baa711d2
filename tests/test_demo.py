"""Both halves of `make demo` run as they stand, only smaller, and print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tpcdi import DERIVED, audit

ROOT = Path(__file__).parent.parent

VOTES, SCALE = 2_000, 0.2
"""Two are removed; and there are customers enough for all checks."""

STACK = ("broker", "postgres", "engine", "api")


def shown(example: str, *arguments: object) -> str:
    """Run an example as the Makefile does, and give what it has printed, in the order of time."""
    done = subprocess.run(
        [sys.executable, f"examples/{example}", *map(str, arguments)],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    stopping = done.stdout.partition("== all of it stops, and its data is deleted")[2]
    assert all(re.search(rf"^{part} +stopping$", stopping, re.MULTILINE) for part in STACK)
    return done.stdout


def test_the_makefile_has_both_halves() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    assert re.findall(r"examples/(\w+)\.py", recipe) == ["demo", "brokerage"]


@pytest.mark.slow  # what is shown there has tests of its own
def test_the_votes_come_out_as_the_rules_say() -> None:
    told = shown("demo.py", VOTES)
    assert f"{VOTES:,} votes come in" in told
    verdicts = told.partition("== does it come out as the rules say?")[2].partition("==")[0]
    assert len(re.findall(r"^  yes  ", verdicts, re.MULTILINE)) == 6
    assert "NO" not in verdicts
    for freshness in ("staged", "main"):
        assert re.search(rf"^as of voter batch \d+ \({freshness}, by \w+\)$", told, re.MULTILINE)
    pulls = re.findall(r"^demo-1: succeeded, (\d+) rows, asked (\S+)$", told, re.MULTILINE)
    assert len(pulls) == 2
    assert len(set(pulls)) == 1


def test_the_brokerage_is_audited_streams_on_and_is_asked() -> None:
    told = shown("brokerage.py", SCALE)
    verdicts = re.findall(r"^(Data visibility .*|[A-Z].*): (OK)$", told, re.MULTILINE)
    assert [name for name, _ in verdicts] == list(audit.NAMES)
    assert "\nthe oracle has the same rows\n" in told
    assert f"\n{len(audit.NAMES)} of {len(audit.NAMES)} checks are OK\n" in told
    answers = told.partition("== the days go on")[2].split("\n== ")[1:4]
    for answer in answers:
        *_, as_of, took = answer.strip().splitlines()
        assert re.fullmatch(r"as of tpcdi batch \d+ \(staged, by \w+\)", as_of), answer
        assert re.fullmatch(r"in \d+\.\d s", took), answer
        assert re.search(r"^-[- ]+\n *\S", answer, re.MULTILINE), "there are rows"
    for batch in (1, 2, 3):
        assert re.search(rf"^phase {batch}: [\d,]+ rows in \S+ s, \S+ rows/s$", told, re.MULTILINE)
    assert re.search(r"^1 day complete, .*; readable after .* ms \(p50\), ", told, re.MULTILINE)
    assert told.count(DERIVED) >= 3  # of what is generated, loaded and streamed
