"""The API keeps to its document, whatever a program that has read it asks: schemathesis."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import Alone
from conforming import answering, asked
from fastapi.routing import iter_route_contexts
from serving import Client
from whole import whole

from api import dead_letters
from etl_procs.core import core_path
from headrace.config import Broker

EXAMPLES = 12


@pytest.fixture
def client(tmp_path: Path, warehouse_url: str, kafka: Alone) -> Iterator[Client]:
    with answering(tmp_path, warehouse_url, lambda: Broker(bootstrap=kafka.address)) as client:
        yield client


def test_no_answer_is_a_bug_and_each_is_as_the_document_tells(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    found = asked(client, examples=EXAMPLES)
    assert not found.wrong, "\n\n".join(f"{of}: {what}" for of, what in found.wrong.items())
    assert 202 in found.statuses["POST /v1/streams/{dataflow}/{stream}"]
    one = "/v1/continuous/{name}"
    assert {200, 201} <= found.statuses[f"PUT {one}"]
    known = (f"GET {one}", f"DELETE {one}", f"POST {one}/retry", f"GET {one}/result")
    for operation in (*known, "GET /v1/continuous", f"GET {one}/results"):
        assert 200 in found.statuses[operation], operation


def test_an_answer_of_another_shape_and_a_bug_are_noticed(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    monkeypatch.setattr(dead_letters, "_reasons", lambda *_: b'{"reasons": 1}')
    monkeypatch.setattr(dead_letters, "_one", lambda *_: 1 / 0)
    wrong = asked(client, examples=2).wrong
    assert wrong.keys() == {"GET /v1/dead-letters/reasons", "GET /v1/dead-letters/{id}"}


def test_every_route_is_in_the_document(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    with whole(core_path(tmp_path), []) as app:
        served = {context.path for context in iter_route_contexts(app.routes)}
        of_page = {path for path in served if path and (path == "/" or path.startswith("/page/"))}
        assert served - of_page - app.openapi()["paths"].keys() == {"/openapi.json"}
        assert len(of_page) > 1
