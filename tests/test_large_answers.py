"""An answer of more rows than there is memory for them, of which all are staged."""

import json
from dataclasses import replace
from pathlib import Path

import every
from serving import Client, serving
from shop import HERE, Warehoused, island_over

from headrace import config
from migrations import layout, warehouse

TEXT, EACH, BATCHES = "x" * 8_000, 500, 75
MEMORY_MB = 400
"""What a worker may take: it has more than half as much before it is asked anything."""
LARGE_MB = 8_192
"""An eighth of it is more than all that is staged."""


def test_more_that_is_staged_than_there_is_memory_for_is_streamed(
    tmp_path: Path, warehouse_url: str
) -> None:
    store = Warehoused(tmp_path, every.flow)
    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, every.flow)
    every.GIVEN.clear()
    for first in range(0, EACH * BATCHES, EACH):
        rows = [((id, 1, None, TEXT, *[None] * 5), False) for id in range(first, first + EACH)]
        store.run(every.numbers, *every.batches([rows]))
    limits = config.Api(query_workers=1, query_memory_mb_max=MEMORY_MB, query_rows_max=10**9)
    with serving(island_over(warehouse_url, store.reader, every.flow), limits=limits) as client:
        for table, plan in (
            ("facts", "ship"), ("facts", "split"), ("states", "split"), ("states", "ship"),
        ):  # fmt: skip
            asked = {"sql": f"SELECT id, t FROM {table}", "plan": plan}
            reply = client.send(
                "POST", "/v1/query", json.dumps(asked), Accept="application/x-ndjson"
            )
            assert reply.status == 200, (table, plan, reply.body[:500])
            head, *found, end = reply.body.splitlines()
            assert json.loads(head)["plan"] == plan
            assert len(found) == EACH * BATCHES
            assert "error" not in json.loads(end)
        assert "would be brought here" in why_not_gathered(client)
    limits = replace(limits, query_memory_mb_max=LARGE_MB)
    with serving(island_over(warehouse_url, store.reader, every.flow), limits=limits) as client:
        assert why_not_gathered(client) == ""
    store.close()


def why_not_gathered(client: Client) -> str:
    sql = "SELECT x.t, y.t FROM facts x JOIN states y ON x.id = y.id"
    told = client.send("POST", "/v1/query/explain", json.dumps({"sql": sql})).document
    (gather,) = (one for one in told["candidates"] if one["plan"] == "gather")
    return str(gather["why_not"])
