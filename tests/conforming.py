"""Requests that a program made from the OpenAPI document, and what is wrong with their answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import schemathesis
import shop
import till
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CheckFunction
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import KEY, Client, served
from trial import Trial
from waiting import until
from whole import no_broker, whole

from etl_procs.core import core_path
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints
from migrations.warehouse import DEFAULT

CHECKS: list[CheckFunction] = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]

STREAM = {"dataflow": "shop", "stream": "orders"}
ASKED = {"sql": "SELECT s.*, count(*) OVER () FROM sales AS s", "freshness": "staged"}
STANDING = {"sql": "SELECT count(*) FROM sales"}
KEPT = {"name": "kept"}
KNOWN: dict[str, dict[str, Any]] = {
    "/v1/query": {"body": ASKED},
    "/v1/query/explain": {"body": ASKED},
    "/v1/calls/{dataflow}/{name}": {
        "path_parameters": {"dataflow": "till", "name": "put"},
        "body": {"cents": 1, "share": 0.5},
    },
    "PUT /v1/continuous/{name}": {"path_parameters": {"name": "made"}, "body": STANDING},
    "GET /v1/continuous/{name}": {"path_parameters": KEPT},
    "DELETE /v1/continuous/{name}": {"path_parameters": {"name": "dropped"}},
    "/v1/continuous/{name}/retry": {"path_parameters": KEPT},
    "/v1/continuous/{name}/result": {"path_parameters": KEPT},
    "/v1/continuous/{name}/results": {"path_parameters": KEPT, "query": {"limit": 1}},
    "/v1/dead-letters/{id}": {"path_parameters": {"id": 1}},
    "/v1/dead-letters/replay": {"body": {"ids": [1], "where_possible": True}},
    "/v1/flows/{dataflow}": {"path_parameters": {"dataflow": "till"}},
    "/v1/migrations/{id}": {"path_parameters": {"id": "first"}},
    "/v1/streams/{dataflow}/{stream}": {"path_parameters": STREAM},
    "/v1/streams/{dataflow}/{stream}/batches": {"path_parameters": STREAM},
    "/v1/streams/{dataflow}/{stream}/published": {"path_parameters": STREAM},
    "/v1/tables/{dataflow}/{table}/batches": {
        "path_parameters": {"dataflow": "shop", "table": "sales"}
    },
    "/v1/tables/{dataflow}/{table}/trace": {
        "path_parameters": {"dataflow": "shop", "table": "sales"}
    },
    "/v1/warehouses/{name}": {"path_parameters": {"name": "default"}},
    "/v1/warehouses/{name}/plan": {"path_parameters": {"name": "default"}},
}
"""What is there, of what a program would hardly hit upon: of a path, or of one method of it."""


@contextmanager
def answering(
    home: Path, url: str, broker: Callable[[], config.Broker] = no_broker
) -> Iterator[Client]:
    """Serve an API that has something to tell of everything."""
    path = core_path(home)
    flows = (shop.flow, till.flow)
    with closing(Trial(path, *flows)) as trial:
        with closing(Origin(path, config.Core(), CrashPoints())) as origin:
            for flow in flows:
                origin.feed(flow.name, [DEFAULT])
        trial.run(shop.orders, [(1, 1.5, "a"), (2, -1.0, None)])
        trial.end(till.sold, [("pen", None), ("ink", 3)])
        trial.run(till.returned, [])
        with whole(path, flows, url, broker=broker) as app, served(app) as client:
            client.send("PUT", "/v1/migrations/first", json.dumps({"kind": "pull"}))
            until(lambda: _has_ended(client), 30, lambda: "the pull has not ended")
            for name in ("kept", "dropped"):
                reply = client.send("PUT", f"/v1/continuous/{name}", json.dumps(STANDING))
                assert reply.status == 201, reply.body
            trial.run(shop.orders, [(3, 2.5, "b")])
            yield client


def _has_ended(client: Client) -> bool:
    found = client.send("GET", "/v1/migrations/first").document
    assert found["state"] != "failed", found
    return bool(found["state"] == "succeeded")


class Found(NamedTuple):
    """How the operations were answered."""

    wrong: dict[str, str]
    """Where a status, a type or a shape is not as the document tells, or a 5xx."""
    statuses: dict[str, set[int]]


def asked(client: Client, *, examples: int, number: int = 0) -> Found:
    """Ask for each operation, rightly and wrongly."""
    document = client.send("GET", "/openapi.json").document
    schema: Any = schemathesis.openapi.from_dict(document)
    wrong: dict[str, str] = {}
    statuses: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        known = KNOWN.get(operation.label, KNOWN.get(operation.path))
        ways: list[tuple[GenerationMode, dict[str, Any]]]
        ways = [(GenerationMode.POSITIVE, {}), (GenerationMode.NEGATIVE, {})]
        ways += [(GenerationMode.POSITIVE, known)] if known else []
        answered = statuses.setdefault(operation.label, set())
        for mode, given_ in ways:
            cases = operation.as_strategy(generation_mode=mode, **given_)
            try:
                answered |= _ask(cases, client, examples, number)
            except (AssertionError, FailureGroup) as error:
                wrong[operation.label] = str(error)
    return Found(wrong, statuses)


def _ask(cases: Any, client: Client, examples: int, number: int) -> set[int]:
    statuses = set()

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Any) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"http://127.0.0.1:{client.port}"
        answer = case.call(base_url=url, headers=headers, timeout=30)
        statuses.add(answer.status_code)
        assert answer.status_code < 500, answer.text
        case.validate_response(answer, checks=CHECKS, headers=headers)

    with suppress(Unsatisfiable):  # nothing can be wrong with what has no parameters
        ask()
    return statuses
