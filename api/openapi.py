"""The OpenAPI document: what every operation has, told once for all of them.

Routes say what is their own: their words, parameters, bodies, answers, and which problems they may
answer with. Here stand what a problem is, what the front adds to each answer, and the tags.
"""

import json
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from api.problem import MEDIA_TYPE, problems

Document = dict[str, Any]

ABOUT = """\
One answer over what is staged and what has arrived, and all that feeds it.

Every error is a `Problem` (RFC 9457), 404, 405, 422 and 500 included. Every answer has the header
`X-Request-Id`. Where a key is needed, it is shown as `Authorization: Bearer KEY`; each operation
names the scope that it needs. GET, PUT and DELETE may be repeated; so may a POST that says how.
"""

TAGS = {
    "queries": "SQL over what is staged, what has arrived and what is merged, as one table.",
    "tables": "What can be asked for in SQL.",
    "subscriptions": "Committed batches, told as they come.",
    "continuous queries": "Queries that are answered at each batch, and brought where they matter.",
    "streams": "Tuples put into border streams.",
    "calls": "One transaction each, between the batches.",
    "flows": "Dataflows as they are declared, and how far they have come.",
    "lookups": "From what lookups are answered, and how well.",
    "dead letters": "What could not be processed, and what becomes of it.",
    "migrations": "What moves rows to warehouses, asked for by id; and the warehouses.",
    "the API": "Whether it lives, is ready, and its figures.",
}

PATHS = {
    "dataflow": "The dataflow's name.",
    "stream": "The stream's name.",
    "table": "The table's name: that of an outlet.",
    "name": "Its name.",
    "id": "Its id.",
}
"""What names in paths are, where a route does not say it better."""

HEADERS: Document = {
    "X-Request-Id": {
        "description": "The id of the request: the one it was sent with, or one that was made.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "After so many seconds it may be asked again.",
        "schema": {"type": "string"},
    },
    "WWW-Authenticate": {
        "description": "What kind of key is wanted, and what is wrong with the one shown.",
        "schema": {"type": "string"},
    },
}
WITH_RETRY, WITH_CHALLENGE = ("429", "503"), ("401", "403")

BODY_TOO_LARGE, BUG = 413, 500

EXAMPLES = Path(__file__).with_name("examples.json")
"""By the names of the schemas that they are of."""

OF_SEVERAL = re.compile(r"\b(?:[a-z_]+__)+([a-z]+)__([A-Z][A-Za-z]+)\b")


class WrongOut(BaseModel):
    """One thing that is wrong with a request."""

    at: str = Field(description="Where: body, path, query or header, and the names within.")
    what: str


class Problem(BaseModel):
    """Why a request was not answered as asked (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Always about:blank: `code` tells what it is.")
    title: str = Field(description="The status in words.")
    status: int
    code: str = Field(description="What happened, for programs.")
    detail: str = Field(description="What happened, to what.")
    hint: str = Field("", description="What to do next.")
    request_id: str = Field("", description="As in the header X-Request-Id, and in the log.")
    line: int = Field(0, description="Of SQL: where.")
    column: int = Field(0, description="Of SQL: where.")
    errors: list[WrongOut] = Field([], description="Of 422: all that is wrong.")


class Described(FastAPI):
    """An application that describes itself whole."""

    def openapi(self) -> Document:
        """Give the document; it is made once."""
        if not self.openapi_schema:
            self.openapi_schema = whole(super().openapi())
        return self.openapi_schema


def operation_id(route: APIRoute) -> str:
    """Name an operation as its function is: short, and good for a client's method."""
    return route.name


def whole(made: Document) -> Document:
    """Add to FastAPI's document what every operation has."""
    document: Document = json.loads(OF_SEVERAL.sub(_shorter, json.dumps(made)))
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    components = document["components"]
    schemas = components["schemas"]
    for of_fastapi in ("HTTPValidationError", "ValidationError"):
        schemas.pop(of_fastapi, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs") | {"Problem": problem}
    components["headers"] = HEADERS
    for name, examples in json.loads(EXAMPLES.read_text()).items():
        if name in schemas:
            schemas[name]["examples"] = examples
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation)
    return document


def _shorter(found: re.Match[str]) -> str:
    """Shorten the name of a schema that several modules have, as api__calls__ColumnOut."""
    return found[1].title() + found[2]


def _complete(operation: Document) -> None:
    summary, _, more = operation["description"].partition("\n\n")
    operation["summary"] = " ".join(summary.split()).removesuffix(".")
    operation["description"] = more or summary
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] in PATHS:
            parameter.setdefault("description", PATHS[parameter["name"]])
    answers = operation["responses"]
    also = [BUG, *([BODY_TOO_LARGE] if "requestBody" in operation else [])]
    for status, answer in problems(*also).items():
        answers.setdefault(str(status), answer)
    for status, answer in answers.items():
        if int(status) == 422 or MEDIA_TYPE in answer.get("content", ()):
            answer["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        names = ["X-Request-Id"]
        names += ["Retry-After"] * (status in WITH_RETRY)
        names += ["WWW-Authenticate"] * (status in WITH_CHALLENGE)
        told = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
        answer["headers"] = {**answer.get("headers", {}), **told}
    operation["responses"] = dict(sorted(answers.items()))
