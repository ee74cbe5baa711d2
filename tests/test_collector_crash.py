"""The collector killed, doubled, interrupted, and with a broker that is away: nothing is lost."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import Alone, a_broker, data_folder
from collecting import Landed, Place, line, place
from waiting import until

from headrace.errors import Exit

TUPLES = 100_000


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


@pytest.mark.parametrize("route", ["Route.SOURCE", "Route.SPREAD", "'k'"])
def test_a_collector_that_is_killed_again_and_again_loses_nothing(
    kafka: Alone, tmp_path: Path, route: str
) -> None:
    at = place(tmp_path, f"killed_{hash(route) % 10**6}", kafka.address, wire=f"route={route}")
    file = at.lines(TUPLES)
    kills = 0
    for delay_s in (0.0, 0.05, 0.1, 0.2, 0.4):
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
    file = at.lines(2 * TUPLES)
    process = at.spawn(file)
    until(lambda: _has(at, 0), 60, lambda: "nothing sent")
    kafka.freeze()
    try:
        time.sleep(5)  # as long as the broker is away
    finally:
        kafka.thaw()
    kafka.kill()
    kafka.start()
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error.decode()
    assert b"the broker does not answer: waiting, 3 s of 300" in error
    assert b"the broker answers again" in error
    check(at.landed(), 2 * TUPLES)


def test_a_broker_that_is_away_at_the_start_is_waited_for_and_said_to_be(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "late", kafka.address)
    other = place(_made(tmp_path / "other"), "later", kafka.address)
    kafka.kill()
    files, finished = at.spawn(at.lines(10)), other.spawn("--finished")
    said = [process.stderr.readline() for process in (files, finished) if process.stderr]
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
    file = at.lines(TUPLES)
    process = at.spawn(file, "--follow", collect__wait_s="5")
    until(lambda: _has(at, 0), 60, lambda: "nothing sent")
    kafka.freeze()
    try:
        with file.open("a") as more:
            more.writelines(f"{line(n)}\n" for n in range(TUPLES + 1, TUPLES + 51))
        _, error = process.communicate(timeout=60)
    finally:
        kafka.thaw()
    assert process.returncode == Exit.NOT_RUNNING, error.decode()
    assert b"has acknowledged nothing of limited.lines for 5 s" in error
    assert b"tuples are safe in limited.lines" in error
    assert b"Run the same command again: it goes on there." in error
    with file.open("a") as more:
        more.writelines(f"{line(n)}\n" for n in range(TUPLES + 51, TUPLES + 101))
    follower = at.spawn(file, "--follow")
    until(
        lambda: max(n or 0 for r in at.landed() for n, _ in r.tuples) == TUPLES + 100,
        60,
        lambda: "it does not go on",
    )
    follower.send_signal(signal.SIGINT)
    _, error = follower.communicate(timeout=30)
    assert follower.returncode == 130, error.decode()
    check(at.landed(), TUPLES + 100)


def test_ctrl_c_says_how_much_is_safe(kafka: Alone, tmp_path: Path) -> None:
    at = place(tmp_path, "interrupted", kafka.address)
    process = at.spawn(at.lines(100), "--follow")
    until(lambda: _has(at, 0), 60, lambda: "nothing sent")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted: 100 tuples are safe in interrupted.lines" in error
