"""A mischievous producer: repeats, gaps, reordering, poison. All that is right is there once, and
the dead letters are exactly the rest.
"""

from collections import Counter
from pathlib import Path

from kafka import KafkaProducer
from live import Board, Parts
from mischief import FLOW, Mischief

from ingest import topics

SEED, MESSAGES = 11, 1_500


def test_dead_letters_are_exact_and_the_rest_is_right(running: Parts, tmp_path: Path) -> None:
    name = "mischief"
    board = Board(running, tmp_path, name, text=FLOW.format(name=name), stream="numbers")
    topics.ensure(running.broker, board.stream)
    mischief = Mischief(SEED)
    producer = KafkaProducer(bootstrap_servers=running.bootstrap, max_request_size=2**24)
    for message in mischief.messages(MESSAGES):
        producer.send(
            board.topic,
            message.value,
            key=b"of a tombstone" if message.value is None else None,
            partition=message.partition,
            headers=message.headers,
        )
    producer.flush()
    producer.close()
    with board.engine() as engine:
        board.until_consumed(engine)
        with board.reader.snapshot() as snapshot:
            _, rows = snapshot.query("SELECT n, size FROM seen")
            seen = Counter(rows)
        assert [row for row, times in seen.items() if times > 1] == []
        assert set(seen) == set(mischief.expected.items())
        letters = board.dead_letters()
        assert len(letters) == mischief.dead, Counter(letter.reason for letter in letters)
        assert mischief.dead > 50
        assert all(letter.reason and letter.offset is not None for letter in letters)
