"""The door: whoever wants to write comes in next, before those who write all the time."""

import fcntl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from etl_procs import store
from etl_procs.errors import Locked
from etl_procs.store import Door

PATIENCE_S = 30.0


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[list[Door]]:
    made = [Door(tmp_path / "core.db") for _ in range(3)]
    yield made
    for each in made:
        each.close()


def is_held(lock: int) -> bool:
    """Whether somebody else holds a lock."""
    if not store._taken(lock):
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def test_who_writes_without_a_pause_lets_the_one_who_waits_come_in_first(doors: list[Door]) -> None:
    eager, patient, watching = doors
    order: list[str] = []

    def write() -> None:
        with patient.writing():
            order.append("patient")

    waiting = threading.Thread(target=write)
    with eager.writing():
        order.append("eager")
        waiting.start()
        until(lambda: is_held(watching._door), PATIENCE_S, lambda: "nobody waits at the door")
    for _ in range(3):
        with eager.writing():
            order.append("eager")
    waiting.join(PATIENCE_S)
    assert order == ["eager", "patient", "eager", "eager", "eager"]


def test_two_are_never_in_at_once(doors: list[Door]) -> None:
    inside: list[int] = []
    most: list[int] = []

    def write(own: Door) -> None:
        for _ in range(50):
            with own.writing():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=write, args=(own,)) for own in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(most) == 150
    assert max(most) == 1


def test_who_waits_too_long_is_told_and_stands_in_nobodys_way(
    doors: list[Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, waiting, third = doors
    monkeypatch.setattr(store, "WAIT_S", 0.0)

    def try_to_write() -> None:
        with waiting.writing():
            pass

    with holder.writing(), pytest.raises(Locked, match="another process has held the core's write"):
        try_to_write()
    with third.writing():
        pass


def test_an_error_inside_opens_the_door_again(doors: list[Door]) -> None:
    def fail() -> None:
        with doors[0].writing():
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError):
        fail()
    with doors[1].writing():
        pass
