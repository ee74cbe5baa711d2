"""Batch rules: how a border stream is cut into atomic batches. Extents: what a window holds.

All of them are values; `intake.py` cuts by the rules, and `windows.py` slides by the extents.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.errors import DefinitionError

if TYPE_CHECKING:
    from etl_procs.model import Stream

Value = int | float | str | None


class OnTimeout(Enum):
    """What becomes of a batch whose end does not come in time. Each is said aloud in the log."""

    WAIT = "wait"
    """It stays open; the dataflow stands still, and says so."""
    CLOSE = "close"
    """It is closed with what is there; what comes after belongs to a later batch."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A batch whose end did not come in time: what a user's function fills."""

    stream: str
    batch: int
    rows: Sequence[Mapping[str, Value]]
    """What did arrive."""


class Late(Enum):
    """What becomes of a tuple whose interval its partition has passed already."""

    NEXT = "next"
    """It belongs to the batch that is open."""
    DEAD = "dead"
    """It is a dead letter."""


Fill = Callable[[Missing], Iterable[Mapping[str, Value]]]
"""Gives the rows to add to a batch before it is closed."""


@dataclass(frozen=True, slots=True)
class ByCount:
    """Cut batches of `tuples`; close one short when its first tuple has waited `linger_s`.

    Without `linger_s`, a topic of one partition is always cut in the same places.
    """

    tuples: int
    _: KW_ONLY
    linger_s: float | None = None

    def __post_init__(self) -> None:
        _at_least_one("by_count", tuples=self.tuples)
        _positive("by_count", linger_s=self.linger_s)


@dataclass(frozen=True, slots=True)
class ByInterval:
    """Cut one batch for each interval of `length` of an INTEGER column of event times.

    An interval ends when every partition of the topic has brought a later event time. What is
    `late` comes after a later interval of its partition: it belongs to that one's batch, or is a
    dead letter, or goes to another stream of the dataflow, as a correction, with that batch's id.
    """

    column: str
    length: int
    _: KW_ONLY
    timeout_s: float | None = None
    on_timeout: OnTimeout | Fill = OnTimeout.WAIT
    late: "Late | Stream" = Late.NEXT

    def __post_init__(self) -> None:
        _at_least_one("by_interval", length=self.length)
        _check_timeout("by_interval", self.timeout_s, self.on_timeout)


@dataclass(frozen=True, slots=True)
class ByPunctuation:
    """Cut where the producers say: a record with the header `punctuation: 1`, 2, 3 and so on.

    A batch ends when every partition of the topic has brought its punctuation or a later one.
    """

    _: KW_ONLY
    timeout_s: float | None = None
    on_timeout: OnTimeout | Fill = OnTimeout.WAIT

    def __post_init__(self) -> None:
        _check_timeout("by_punctuation", self.timeout_s, self.on_timeout)


Rule = ByCount | ByInterval | ByPunctuation
by_count, by_interval, by_punctuation = ByCount, ByInterval, ByPunctuation


def rule_of(streams: Iterable["Stream"]) -> str:
    """Say by what a dataflow's epochs are counted: they mean nothing under another rule."""
    for rule in (stream.batches for stream in streams):
        if isinstance(rule, ByInterval):
            return f"interval {rule.length}"
        if isinstance(rule, ByPunctuation):
            return "punctuation"
    return "count"


@dataclass(frozen=True, slots=True)
class LastTuples:
    """Hold the last `size` tuples; new ones are seen once `slide` of them are there."""

    size: int
    _: KW_ONLY
    slide: int = 1

    def __post_init__(self) -> None:
        _at_least_one("last_tuples", size=self.size, slide=self.slide)


@dataclass(frozen=True, slots=True)
class LastBatches:
    """Hold the tuples of the last `size` batches; new ones are seen every `slide` batches."""

    size: int
    _: KW_ONLY
    slide: int = 1

    def __post_init__(self) -> None:
        _at_least_one("last_batches", size=self.size, slide=self.slide)


@dataclass(frozen=True, slots=True)
class LastInterval:
    """Hold the tuples whose INTEGER `column` lies in the `size` before the last multiple of
    `slide` that event time has reached.
    """

    column: str
    size: int
    _: KW_ONLY
    slide: int

    def __post_init__(self) -> None:
        _at_least_one("last_interval", size=self.size, slide=self.slide)


Extent = LastTuples | LastBatches | LastInterval
last_tuples, last_batches, last_interval = LastTuples, LastBatches, LastInterval


def _at_least_one(of: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise DefinitionError(
                f"{of}: {name} is {number!r}", hint=f"Give {name} as a whole number from 1 on."
            )


def _check_timeout(of: str, timeout_s: float | None, on_timeout: object) -> None:
    _positive(of, timeout_s=timeout_s)
    if not isinstance(on_timeout, OnTimeout) and not callable(on_timeout):
        raise DefinitionError(
            f"{of}: on_timeout is {on_timeout!r}",
            hint="Give OnTimeout.WAIT, OnTimeout.CLOSE, or a function that fills the batch.",
        )


def _positive(of: str, **seconds: float | None) -> None:
    for name, value in seconds.items():
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise DefinitionError(
                f"{of}: {name} is {value!r}", hint=f"Give {name} in seconds, more than 0; or none."
            )
