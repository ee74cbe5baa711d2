"""Streams of one engine, side by side: a busy one does not starve a quiet one."""

import json
from pathlib import Path

from kafka import KafkaProducer
from live import START_S, Board, Parts
from waiting import until

from etl_procs import loader
from etl_procs.batch import place_of
from headrace.errors import NotRunning
from ingest import topics

FLOW = """
from etl_procs import Batch, Dataflow, Transaction, by_count

for name in ("busy_{name}", "quiet_{name}"):
    flow = Dataflow(name)
    stream = flow.stream("s", "n INTEGER NOT NULL", batches=by_count(1_000, linger_s=0.1))

    @flow.procedure(takes=stream)
    def drop(tx: Transaction, batch: Batch) -> None: ...

    globals()[name] = flow
del flow
"""
MANY = 400_000


def test_a_quiet_stream_goes_on_while_its_neighbour_has_much_to_read(
    running: Parts, tmp_path: Path
) -> None:
    name = "neighbours"
    board = Board(running, tmp_path, f"busy_{name}", text=FLOW.format(name=name), stream="s")
    flows = loader.load([board.file])
    for flow in flows.values():
        topics.ensure(running.broker, flow.streams["s"])
    producer = KafkaProducer(bootstrap_servers=running.bootstrap, linger_ms=50)
    for first in range(0, MANY, 100):
        frame = b"\x1e".join(b'{"n": %d}' % n for n in range(first, first + 100))
        producer.send(f"busy_{name}.s", frame, headers=[("frame", b"100")], partition=0)
    producer.flush()

    def positions(of: str) -> dict[int, int]:
        try:
            with board.reader.snapshot() as snapshot:
                return snapshot.positions(f"{of}_{name}", "s")
        except NotRunning:
            return {}

    with board.engine(engine__read_tuples_max="5000") as engine:
        until(lambda: bool(positions("busy")), START_S, board.log)
        producer.send(f"quiet_{name}.s", json.dumps({"n": 1}).encode(), partition=0)
        producer.flush()
        until(lambda: positions("quiet") == {0: place_of(1, 0)}, START_S, board.log)
        assert positions("busy")[0] < place_of(MANY // 100, 0), "or this proves nothing"
        assert engine.poll() is None
    producer.close()
