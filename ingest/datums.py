"""Datums: the records of an Avro object container file, as the declared schema writes them.

Memory is bounded by the blocks of the file, whose size its writer chose.
"""

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from fastavro.schema import to_parsing_canonical_form

from etl_procs.schema import parsed
from etl_procs.wire import Avro
from headrace.errors import HeadraceError
from ingest.runs import Bookmark, Found, Run, kept, portioned
from ingest.source import Damaged, Source

BLOCK_BYTES_MAX = 64 * 2**20


def datums(format_: Avro, source: Source, at: Bookmark) -> Iterator[Run]:
    """Give the records of a file, from the number of a bookmark on."""
    return portioned(at.number, _found(format_, source, at.number))


def _found(format_: Avro, source: Source, first: int) -> Iterator[Found]:
    content, count = _Content(source), 0
    try:
        if not content.more():
            return
        blocks = fastavro.block_reader(content)  # type: ignore[arg-type]
        recoder = _Recoder(blocks.writer_schema, json.loads(format_.schema))
        end = content.tell()
        for block in blocks:
            end = block.offset + block.size
            if count + block.num_records < first:
                count += block.num_records
                continue
            for _ in range(block.num_records):
                raw = recoder.raw(block.bytes_)  # type: ignore[attr-defined]
                count += 1
                if count >= first:
                    yield Found(kept(raw), len(raw), end)
        if content.tell() != end:
            raise EOFError("a block is cut off")
    except HeadraceError:
        raise
    except Exception as error:  # the library raises whatever damaged bytes lead it to
        raise Damaged(
            f"not to be read as the declared schema, or damaged, after its record {count:,} "
            f"(byte {content.tell():,}): {type(error).__name__}: {error}",
            hint="What was whole before it was given. Get the file again, or declare its schema.",
        ) from error


class _Recoder:
    """Makes of a datum as it was written one as it is declared."""

    def __init__(self, written: Any, declared: Any) -> None:
        self._written, self._declared = parsed(written), parsed(declared)
        self._is_same = to_parsing_canonical_form(self._written) == to_parsing_canonical_form(
            self._declared
        )

    def raw(self, content: io.BytesIO) -> bytes:
        """Take the next datum."""
        begin = content.tell()
        declared = None if self._is_same else self._declared
        value = fastavro.schemaless_reader(content, self._written, declared, return_named_type=True)
        if content.tell() == begin:
            raise ValueError("a record without bytes")  # a block may claim any number of them
        if self._is_same:
            return bytes(content.getbuffer()[begin : content.tell()])
        made = io.BytesIO()
        fastavro.schemaless_writer(made, self._declared, value)
        return made.getvalue()


class _Content:
    """A source as the library reads it: forward, and exactly so many bytes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begun = b""

    def more(self) -> bool:
        """Tell whether there is anything."""
        self._begun = self._source.read(1)
        return bool(self._begun)

    def tell(self) -> int:
        """Tell how much was taken."""
        return self._source.position - len(self._begun)

    def read(self, size: int) -> bytes:
        """Take so many bytes, or those that are left."""
        if not 0 <= size <= BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {size:,} bytes, of at most {BLOCK_BYTES_MAX:,}")
        taken, self._begun = bytearray(self._begun[:size]), self._begun[size:]
        while len(taken) < size and (more := self._source.read(size - len(taken))):
            taken += more
        return bytes(taken)
