"""Elements: the fields of an XML element, as texts.

Spark's from_xml takes the last of repeated elements, passes over what follows the element, and
gives nulls where a document type is declared; so expat reads it, in Python.
"""

import json
from collections.abc import Sequence
from typing import Any
from xml.parsers import expat

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from etl_procs.columns import Column, Type
from etl_procs.wire import Xml
from ingest.decoding.entries import TEXT
from ingest.decoding.texts import BROKEN, FIELDS, KEPT, MORE, NULL

DEPTH_MAX = 1_000
READ = pa.struct(
    [
        (FIELDS, pa.list_(pa.string())),
        (NULL, pa.string()),
        (BROKEN, pa.string()),
        (MORE, pa.list_(pa.string())),
        (KEPT, pa.string()),
    ]
)
Read = dict[str, Any]
"""As the names of READ; what is not there is null."""


class Refused(Exception):
    """An element is not read, for the reason that it tells."""


class Reader:
    """Reads elements of one kind."""

    def __init__(self, record: str, paths: Sequence[str], empty_is_null: Sequence[bool]) -> None:
        self._record = record
        self._columns: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            self._columns.setdefault(path, []).append(index)
        self._empty_is_null = empty_is_null

    def read(self, text: str) -> Read:
        """Give the fields of an element, or why there are none."""
        try:
            found = self._parsed(text)
        except expat.ExpatError as error:
            return {BROKEN: f"not XML: {error}"}
        except Refused as refused:
            return {BROKEN: str(refused)}
        fields: list[str | None] = [None] * len(self._empty_is_null)
        for path, indexes in self._columns.items():
            values = found.pop(path, [])
            if len(values) > 1:
                return {BROKEN: f"{path} is there {len(values)} times"}
            for index in indexes:
                empty = values == [""] and self._empty_is_null[index]
                fields[index] = None if empty or not values else values[0]
        more = {path: values[0] if len(values) == 1 else values for path, values in found.items()}
        return {FIELDS: fields} | ({MORE: list(more), KEPT: json.dumps(more)} if more else {})

    def _parsed(self, text: str) -> dict[str, list[str]]:
        """Give the texts of attributes and of elements without others in them, by their paths."""
        found: dict[str, list[str]] = {}
        path: list[str] = []
        texts: list[list[str]] = []
        leaf = False

        def start(name: str, attributes: dict[str, str]) -> None:
            nonlocal leaf
            if not texts and name != self._record:
                raise Refused(f"not an element {self._record}")
            if len(texts) == DEPTH_MAX:
                raise Refused(f"has elements within more than {DEPTH_MAX:,} others")
            if texts:
                path.append(name)
            texts.append([])
            leaf = True
            for key, value in attributes.items():
                found.setdefault("/".join([*path, f"@{key}"]), []).append(value)

        def end(_name: str) -> None:
            nonlocal leaf
            value, at = "".join(texts.pop()), "/".join(path)
            if path and leaf:
                found.setdefault(at, []).append(value)
            elif at in self._columns:
                raise Refused(f"{at} holds other elements")
            elif value.strip():  # a text between elements
                found.setdefault(at or ".", []).append(value.strip())
            leaf = False
            if path:
                path.pop()

        def refuse(*_: Any) -> None:
            raise Refused("declares a document type")

        parser = expat.ParserCreate("UTF-8")
        parser.buffer_text = True
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = lambda data: texts[-1].append(data)
        parser.StartDoctypeDeclHandler = refuse
        parser.Parse(text, True)
        return found


def elements(entries: DataFrame, format: Xml, columns: Sequence[Column]) -> DataFrame:
    """Give the fields of elements at the columns' paths."""
    reader = Reader(
        format.record,
        [format.paths.get(column.name, column.name) for column in columns],
        [column.type is not Type.TEXT for column in columns],
    )

    def read(values: pa.Array) -> pa.Array:
        texts = values.to_pylist()
        return pa.array([None if text is None else reader.read(text) for text in texts], READ)

    given = from_arrow_type(READ)
    found = arrow_udf(read, given)(F.col(TEXT))  # type: ignore[call-overload] # as its hints say
    each = [F.col("_read")[name].alias(name) for name in READ.names]
    return entries.withColumn("_read", found).select("*", *each)
