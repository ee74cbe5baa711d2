"""The collector killed, doubled, interrupted, and with a broker that is away: nothing is lost."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import Alone, a_broker, data_folder
from collecting import Landed, Place, line, place
from waiting import until

from headrace.errors import Exit

TUPLES = 30_000
DELAYS_S = (0.0, 0.1, 0.3)
"""How long after something has landed the collector is killed."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with a_broker(data_folder(tmp_path_factory.mktemp("broker") / "home")) as broker:
        yield broker


def check(found: list[Landed], last: int) -> int:
    """Check what has to hold of one source, whatever happened; tell how many came again.

    Each number is there, with its own bytes, in one partition, and in rising order without a gap
    but for repeats.
    """
    where: dict[int, int] = {}
    highest: dict[int, int] = {}
    repeats = 0
    for record in found:
        for number, raw in record.tuples:
            assert number is not None
            assert raw == line(number).encode()
            assert where.setdefault(number, record.partition) == record.partition
            if number <= highest.get(record.partition, 0):
                repeats += 1
            highest[record.partition] = max(number, highest.get(record.partition, 0))
    assert sorted(where) == list(range(1, last + 1))
    # Rising without a gap: when a number came first, all before it of its partition were there.
    seen: dict[int, list[int]] = {}
    for record in found:
        lane = seen.setdefault(record.partition, [])
        lane += [n for n, _ in record.tuples if n is not None and (not lane or n > lane[-1])]
    for partition, lane in seen.items():
        assert lane == [n for n in sorted(where) if where[n] == partition]
    return repeats


def run(at: Place, *arguments: object, **more: str) -> tuple[int, str, str]:
    process = at.spawn(*arguments, **more)
    out, error = process.communicate(timeout=120)
    return process.returncode, out.decode(), error.decode()


@pytest.mark.parametrize(
    "route",
    [
        "'k'",
        pytest.param("Route.SOURCE", marks=pytest.mark.slow),
        pytest.param("Route.SPREAD", marks=pytest.mark.slow),
    ],
)
def test_a_collector_that_is_killed_again_and_again_loses_nothing(
    kafka: Alone, tmp_path: Path, route: str
) -> None:
    at = place(tmp_path, f"killed_{hash(route) % 10**6}", kafka.address, wire=f"route={route}")
    file = at.lines(TUPLES)
    kills = 0
    for delay_s in DELAYS_S:
        process = at.spawn(file)
        before = at.count() if kills else 0
        until(lambda: process.poll() is not None or _has(at, before), 60, lambda: "nothing sent")  # noqa: B023
        time.sleep(delay_s)  # the moment of the kill is the case of the test
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    code, out, error = run(at, file)
    assert code == 0, error
    assert kills
    check(at.landed(), TUPLES)
    before = at.count()
    code, out, error = run(at, file)
    assert (code, at.count()) == (0, before), "all was sent, and is passed over"
    assert "; 1 of 1 files had been sent before" in out


def _waiting(process: "subprocess.Popen[bytes]") -> bytes:
    """Return when it has said that it waits, and what it said."""
    assert process.stderr is not None
    return next(line for line in process.stderr if b"waiting" in line)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _has(at: Place, more_than: int) -> bool:
    try:
        return at.count() > more_than
    except Exception:  # noqa: BLE001 - the topic is not there yet
        return False


def test_two_collectors_on_one_source_send_the_same_numbers_to_the_same_places(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "twice", kafka.address)
    file = at.lines(TUPLES)
    both = [at.spawn(file), at.spawn(file)]
    for process in both:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()
    found = at.landed()
    assert len({record.headers["source"] for record in found}) == 1
    check(found, TUPLES)


def test_a_broker_that_is_frozen_and_one_that_dies_are_waited_for_and_said_to_be(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "waited", kafka.address)
    file = at.lines(10)
    process = at.spawn(file, "--follow")
    until(lambda: _has(at, 0), 60, lambda: "nothing sent")
    kafka.freeze()
    try:
        _append(file, 11, 1_000)
        said = _waiting(process)
    finally:
        kafka.thaw()
    until(lambda: _highest(at) == 1_000, 60, lambda: "it does not go on")
    kafka.kill()
    _append(file, 1_001, 2_000)
    kafka.start()
    until(lambda: _highest(at) == 2_000, 60, lambda: "it does not go on")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED, error.decode()
    assert re.search(rb"the broker does not answer: waiting, \d+ s of 300", said)
    assert b"the broker answers again" in error
    check(at.landed(), 2_000)


def _append(file: Path, first: int, last: int) -> None:
    with file.open("a") as more:
        more.writelines(f"{line(n)}\n" for n in range(first, last + 1))


def _highest(at: Place) -> int:
    return max(n or 0 for record in at.landed() for n, _ in record.tuples)


def test_a_broker_that_is_away_at_the_start_is_waited_for_and_said_to_be(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "late", kafka.address)
    other = place(_made(tmp_path / "other"), "later", kafka.address)
    kafka.kill()
    files, finished = at.spawn(at.lines(10)), other.spawn("--finished")
    said = [_waiting(process) for process in (files, finished)]
    kafka.start()
    for process, first in zip((files, finished), said, strict=True):
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()
        assert re.match(rb"the broker at \S+ does not answer: .*: waiting, \d+ s of 300", first)
        assert b"the broker answers again" in error
    check(at.landed(), 10)
    assert [record.headers for record in other.landed()] == [{"finished": "1"}] * 2


def test_a_broker_that_is_never_there_is_given_up_at_the_limit(tmp_path: Path) -> None:
    at = place(tmp_path, "nowhere", "127.0.0.1:1")
    code, _, error = run(at, at.lines(1), collect__wait_s="4")
    assert code == Exit.NOT_RUNNING
    assert "the broker has acknowledged nothing of nowhere.lines for" in error


def test_a_broker_that_stays_away_is_given_up_at_the_limit_and_it_goes_on_later(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "limited", kafka.address)
    file = at.lines(100)
    process = at.spawn(file, "--follow", collect__wait_s="4")
    until(lambda: _has(at, 0), 60, lambda: "nothing sent")
    kafka.freeze()
    try:
        _append(file, 101, 150)
        _, error = process.communicate(timeout=60)
    finally:
        kafka.thaw()
    assert process.returncode == Exit.NOT_RUNNING, error.decode()
    assert re.search(rb"has acknowledged nothing of limited\.lines for \d s", error)
    assert b"tuples are safe in limited.lines" in error
    assert b"Run the same command again: it goes on there." in error
    _append(file, 151, 200)
    follower = at.spawn(file, "--follow")
    until(lambda: _highest(at) == 200, 60, lambda: "it does not go on")
    follower.send_signal(signal.SIGINT)
    _, error = follower.communicate(timeout=30)
    assert follower.returncode == Exit.INTERRUPTED, error.decode()
    check(at.landed(), 200)


def test_ctrl_c_says_how_much_is_safe(kafka: Alone, tmp_path: Path) -> None:
    at = place(tmp_path, "interrupted", kafka.address)
    process = at.spawn(at.lines(100), "--follow")
    until(lambda: _has(at, 0), 60, lambda: "nothing sent")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted: 100 tuples are safe in interrupted.lines" in error
