"""Elements: the fields of an XML element, as texts, read by expat."""

import json
from collections.abc import Sequence
from typing import Any
from xml.parsers import expat

import pyarrow as pa

from etl_procs.columns import Column, Type
from etl_procs.wire import Xml
from ingest.decoding.texts import Fields, More

DEPTH_MAX = 1_000
PATHS_MAX = 256 * 2**20
"""The characters of all paths of an element: they are written out, and may be much more than it."""


class Refused(Exception):
    """An element is not read, for the reason that it tells."""


class Reader:
    """Reads elements of one kind."""

    def __init__(self, format: Xml, columns: Sequence[Column]) -> None:
        self._record = format.record
        self._columns: dict[str, list[int]] = {}
        for index, column in enumerate(columns):
            path = format.paths.get(column.name, column.name)
            self._columns.setdefault(path, []).append(index)
        self._empty_is_null = [column.type is not Type.TEXT for column in columns]

    def fields(self, elements: pa.StringArray) -> Fields:
        """Give the fields of elements at the columns' paths."""
        nothing: list[str | None] = [None] * len(self._empty_is_null)
        rows, broken, more = [], {}, {}
        for row, text in enumerate(elements.to_pylist()):
            given = nothing
            if text is not None:
                try:
                    given, unknown = self._read(text)
                except expat.ExpatError as error:
                    broken[row] = f"not XML: {error}"
                except Refused as refused:
                    broken[row] = str(refused)
                else:
                    if unknown:
                        more[row] = More(list(unknown), json.dumps(unknown))
            rows.append(given)
        columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(nothing))]
        return Fields(columns, broken, more)

    def _read(self, text: str) -> tuple[list[str | None], dict[str, Any]]:
        """Give the fields of an element, and what else is in it."""
        found = self._parsed(text)
        fields: list[str | None] = [None] * len(self._empty_is_null)
        for path, indexes in self._columns.items():
            values = found.pop(path, [])
            if len(values) > 1:
                raise Refused(f"{path} is there {len(values)} times")
            for index in indexes:
                empty = values == [""] and self._empty_is_null[index]
                fields[index] = None if empty or not values else values[0]
        return fields, {p: values[0] if len(values) == 1 else values for p, values in found.items()}

    def _parsed(self, text: str) -> dict[str, list[str]]:
        """Give the texts of attributes and of elements without others in them, by their paths."""
        found: dict[str, list[str]] = {}
        path: list[str] = []
        texts: list[list[str]] = []
        leaf, written = False, 0

        def at(*last: str) -> str:
            nonlocal written
            text = "/".join([*path, *last])
            written += len(text)
            if written > PATHS_MAX:
                raise Refused("the names of its elements are too long, one within the other")
            return text

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
                found.setdefault(at(f"@{key}"), []).append(value)

        def end(_name: str) -> None:
            nonlocal leaf
            value, here = "".join(texts.pop()), at()
            if path and leaf:
                found.setdefault(here, []).append(value)
            elif here in self._columns:
                raise Refused(f"{here} holds other elements")
            elif value.strip():  # a text between elements
                found.setdefault(here or ".", []).append(value.strip())
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
