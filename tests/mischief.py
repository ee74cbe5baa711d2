"""A producer's mischief: what it sends, and what must become of it, by a seed."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

FLOW = """
from etl_procs import Batch, Dataflow, Transaction, by_count

flow = Dataflow("{name}")
numbers = flow.stream(
    "numbers", "n INTEGER NOT NULL, note TEXT, weight REAL", batches=by_count(500, linger_s=0.2)
)
seen = flow.table("seen", "n INTEGER NOT NULL, size INTEGER NOT NULL")


@flow.procedure(takes=numbers, writes=seen)
def keep(tx: Transaction, batch: Batch) -> None:
    rows = [(n, len(note or "")) for n, note, _ in batch.tuples]
    tx.executemany("INSERT INTO seen VALUES (?, ?)", rows)
"""
"""It has no key: what comes twice is seen twice."""

POISON = [
    b"",
    b"{",
    b"\xff\xfe",
    b"null",
    b"[1]",
    b'{"n": "1"}',
    b'{"n": 1.5}',
    b'{"n": null}',
    b'{"note": "no n"}',
    b'{"n": 9223372036854775808}',
    b'{"n": 1, "n": "2"}',
    b'{"n": 1, "weight": "heavy"}',
    b'{"n": 1, "note": 7}',
    b'{"n": 1} {"n": 2}',
    b'{"n": 1, "note": "\\u0000"}',
]

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True)
class Message:
    """A record, and what becomes of it if it is the first with its numbers."""

    partition: int
    value: bytes | None
    headers: Headers
    numbers: tuple[int | None, ...] = ()
    """The number of each entry in its source; none of a plain record."""
    tuples: tuple[int | None, ...] = ()
    """The n of each entry; None where it is a dead letter."""


@dataclass
class Mischief:
    """Makes messages for two partitions, and counts what must come of them."""

    seed: int
    expected: dict[int, int] = field(default_factory=dict)
    """n -> the length of its note."""
    dead: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - of a test
        self._n = 0
        self._numbers = {f"source-{i}": self._random.randrange(5) for i in range(4)}
        self._seen: set[tuple[str, int | None]] = set()

    def messages(self, count: int) -> Iterator[Message]:
        """Make so many, with repeats and in about their order."""
        pick, sent = self._random, list[Message]()
        late: list[Message] = []
        for _ in range(count):
            message = self._message()
            if message.numbers[:1] != (None,) and pick.random() < 0.05:
                late.append(message)
            else:
                sent.append(message)
            if len(late) > 3:
                sent.append(late.pop(0))
            if sent and pick.random() < 0.1:
                again = pick.choice(sent[-10:])
                if again.numbers and again.numbers[0] is not None:
                    sent.append(again)
        for message in [*sent, *late]:
            self._count(message)
            yield message

    def _count(self, message: Message) -> None:
        source = dict(message.headers).get("source", b"").decode()
        for number, n in zip(message.numbers, message.tuples, strict=True):
            if number is not None and (source, number) in self._seen:
                continue
            if number is not None:
                self._seen.add((source, number))
            if n is None:
                self.dead += 1
            else:
                self.expected[n] = self._sizes[n]

    _sizes: dict[int, int] = field(default_factory=dict)

    def _message(self) -> Message:
        pick = self._random
        source = pick.choice(list(self._numbers))
        partition = list(self._numbers).index(source) % 2
        kind = pick.random()
        if kind < 0.1:
            value, n = self._entry()
            return Message(partition, value, [], (None,), (n,))
        if kind < 0.12:
            return self._misheaded(partition)
        if kind < 0.125:
            return Message(partition, None, [], (None,), (None,))
        first = self._next(source, 1 + (pick.random() < 0.1) * pick.randrange(9))
        headers = [("source", source.encode()), ("seq", b"%d" % first)]
        if kind < 0.5:
            value, n = self._entry()
            return Message(partition, value, headers, (first,), (n,))
        size = pick.randrange(1, 40)
        self._numbers[source] = first + size - 1
        entries = [self._entry() for _ in range(size)]
        headers.append(("frame", b"%d" % size))
        return Message(
            partition,
            b"\x1e".join(value for value, _ in entries),
            headers,
            tuple(first + i for i, (value, _) in enumerate(entries) if value),
            tuple(n for value, n in entries if value),
        )

    def _next(self, source: str, step: int) -> int:
        self._numbers[source] += step
        return self._numbers[source]

    def _misheaded(self, partition: int) -> Message:
        value, _ = self._entry(poisoned=False)
        wrong: Headers = self._random.choice(
            [
                [("seq", b"7")],
                [("source", b"me")],
                [("source", b"me"), ("seq", b"-1")],
                [("source", b"me"), ("seq", b"one")],
                [("frame", b"2")],
                [("frame", b"0")],
                [("wire", b"2")],
                [("oversize", b"9000000")],
                [("punctuation", b"3")],
            ]
        )
        return Message(partition, value, wrong, (None,), (None,))

    def _entry(self, *, poisoned: bool = True) -> tuple[bytes, int | None]:
        pick = self._random
        if poisoned and pick.random() < 0.01:
            return pick.choice(POISON[1:]), None
        self._n += 1
        size = 300_000 if pick.random() < 0.0005 else pick.randrange(20)
        self._sizes[self._n] = size
        document = {"n": self._n, "note": "é" * size, "weight": pick.random(), "more": [1, {}]}
        return json.dumps(document, ensure_ascii=pick.random() < 0.5).encode(), self._n
