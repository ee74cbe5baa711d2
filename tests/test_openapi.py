"""The OpenAPI document: it is valid, and every operation tells all that a client needs."""

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema_rs import Draft202012Validator
from openapi_spec_validator import validate
from shop import flow
from whole import whole

from api.openapi import TAGS
from etl_procs.core import core_path

Operation = dict[str, Any]
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "core").mkdir()
    with whole(core_path(home), [flow]) as app:
        yield app


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(app.openapi()))
    return made


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, Operation]:
    return {
        f"{method.upper()} {path}": operation
        for path, of in document["paths"].items()
        for method, operation in of.items()
    }


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1")


def test_each_operation_has_a_summary_a_description_a_tag_and_a_name_of_its_own(
    operations: dict[str, Operation],
) -> None:
    assert len(operations) > 25
    for of, operation in operations.items():
        assert " " in operation["summary"], of
        assert len(operation["summary"]) < 120, of
        assert not operation["summary"].endswith("."), of
        assert operation["description"], of
        assert len(operation["tags"]) == 1, of
    assert {operation["tags"][0] for operation in operations.values()} <= TAGS.keys()
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)


def test_each_tag_is_described(document: dict[str, Any]) -> None:
    assert {tag["name"]: tag["description"] for tag in document["tags"]} == TAGS


def test_each_parameter_has_a_description_and_a_schema(operations: dict[str, Operation]) -> None:
    for of, operation in operations.items():
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (of, parameter["name"])
            assert parameter["schema"], (of, parameter["name"])


def test_each_answer_has_a_schema_and_the_id_of_the_request(
    operations: dict[str, Operation],
) -> None:
    for of, operation in operations.items():
        assert any(status < "300" for status in operation["responses"]), of
        for status, answer in operation["responses"].items():
            assert answer["description"], (of, status)
            assert "X-Request-Id" in answer["headers"], (of, status)
            assert answer["content"], (of, status)
            for type_, content in answer["content"].items():
                assert content.get("schema"), (of, status, type_)


def test_each_refusal_is_a_problem_and_nothing_else(operations: dict[str, Operation]) -> None:
    for of, operation in operations.items():
        refusals = {s: a for s, a in operation["responses"].items() if s >= "400"}
        if of != "GET /readyz":
            assert all(
                a["content"] == {"application/problem+json": PROBLEM} for a in refusals.values()
            ), of
        assert "500" in refusals, of
        assert all(HTTPStatus(int(status)) for status in refusals)


def test_each_operation_tells_the_problems_that_it_can_have(
    operations: dict[str, Operation],
) -> None:
    for of, operation in operations.items():
        told = operation["responses"].keys()
        if "security" in operation:
            assert {"401", "403", "429", "431"} <= told, of
        if "requestBody" in operation:
            assert {"413", "422"} <= told, of
        if any(has_bounds(parameter) for parameter in operation.get("parameters", ())):
            assert "422" in told, of
        for status, answer in operation["responses"].items():
            assert (status in ("429", "503")) == ("Retry-After" in answer["headers"]), of


def has_bounds(parameter: dict[str, Any]) -> bool:
    """Tell whether a value can be wrong."""
    schema = parameter["schema"]
    return schema.get("type") != "string" or "pattern" in schema or "maxLength" in schema


def test_each_body_has_an_example_that_it_would_take(
    document: dict[str, Any], operations: dict[str, Operation]
) -> None:
    seen = 0
    for of, operation in operations.items():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if content["schema"] == {"type": "string"} or "format" in content["schema"]:
                continue  # lines and documents of whatever the stream declares
            found = examples(document, content)
            assert found, of
            for one in found:
                assert_fits(document, content["schema"], one)
            seen += len(found)
    assert seen >= 6


def test_each_example_of_a_schema_fits_it(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    with_examples = {name for name, schema in schemas.items() if "examples" in schema}
    for name in with_examples:
        for one in schemas[name]["examples"]:
            assert_fits(document, {"$ref": f"#/components/schemas/{name}"}, one)
    assert {
        *(
            "Problem",
            "QueryIn",
            "QueryOut",
            "MigrationIn",
            "MigrationOut",
            "WarehouseOut",
            "PlanOut",
        ),
        *("DataflowOut", "OutletOut", "LookupOut", "DeadLetterOut", "LettersIn", "ReasonsOut"),
    } <= with_examples


def test_each_answer_has_an_example(
    document: dict[str, Any], operations: dict[str, Operation]
) -> None:
    lacking = {
        json.dumps(content["schema"])
        for operation in operations.values()
        for status, answer in operation["responses"].items()
        for type_, content in answer.get("content", {}).items()
        if status.startswith("2") and type_ == "application/json"
        if "$ref" in json.dumps(content["schema"]) and not shown(document, content)
    }
    assert lacking == set()


def shown(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    """Find examples of an answer, or of the parts that it lists."""
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    parts = document["components"]["schemas"].get(name, {}).get("properties", {}).values()
    lists = [{"schema": part["items"]} for part in parts if part.get("type") == "array"]
    return [one for of in (content, *lists) for one in examples(document, of)]


def examples(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    found = [one["value"] for one in content.get("examples", {}).values()]
    schema = content["schema"]
    for part in (schema, *schema.get("anyOf", ())):
        if "$ref" in part:
            part = document["components"]["schemas"][part["$ref"].rpartition("/")[2]]
        found += part.get("examples", [])
    return found


def assert_fits(document: dict[str, Any], schema: dict[str, Any], one: object) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(one)


def test_who_needs_a_key_says_so_and_which(
    document: dict[str, Any], operations: dict[str, Operation]
) -> None:
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    free = {of for of, operation in operations.items() if "security" not in operation}
    assert free == {"GET /livez", "GET /readyz"}


def test_schemas_have_plain_names_and_all_are_used(document: dict[str, Any]) -> None:
    names = document["components"]["schemas"].keys()
    assert not [name for name in names if not re.fullmatch(r"[A-Z][A-Za-z]*", name)]
    text = json.dumps(document)
    assert not [name for name in names if f'"#/components/schemas/{name}"' not in text]
