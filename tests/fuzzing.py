"""Fuzzing the decoders: vectors, changed at random, and inputs made to hurt, many in each job."""

import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from vectoring import VECTORS, Record, record_of, run, stream_of

from etl_procs import Stream
from etl_procs.batch import MARK, NOTHING, REASON, VALUE
from etl_procs.columns import Column, Type
from etl_procs.wire import Avro

JOB_S_MAX = 900.0
"""Of one job, on a machine that is busy: a decoder that hangs takes hours."""
REASON_CHARACTERS_MAX = 400
SEED_BYTES_MAX = 10_000
"""Thousands of mutants of what is longer would not fit Spark's memory, and none is needed."""

PIECES = [
    *(b"\x1e", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\t", b" "),
    *(
        b'"',
        b"'",
        b"\\",
        b",",
        b"|",
        b"||",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b'","',
        b'""',
        b"\\u0000",
    ),
    *(
        b"<",
        b"/>",
        b"</Customer>",
        b"<Name>",
        b"&lt;",
        b"&#0;",
        b"<![CDATA[",
        b"<!--",
        b"<!DOCTYPE",
    ),
    *(
        b"0",
        b"-",
        b"+",
        b".",
        b"e",
        b"1e400",
        b"-0",
        b"9223372036854775808",
        b"NaN",
        b"null",
        b"true",
    ),
    *(
        b"\xd9\xa5",
        "\u2028".encode(),
        "\U0001f600".encode(),
        b"7193402571",
        b"\x80\x80\x80\x80\x01",
    ),
]

MANY = 100_000
NASTY = [
    b"[" * MANY,
    b'{"a":' * MANY,
    b'{"more":' + b"[" * MANY + b"]" * MANY + b"}",
    b'{"a":' + b"9" * 2**20 + b"}",
    b'{"r":0.' + b"1" * 2**20 + b"}",
    b'{"r":1e' + b"9" * 1000 + b"}",
    b'{"t":"' + b"x" * 2**20 + b'"}',
    b'{"t":"' + b"\\u0041" * MANY + b'"}',
    b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(20_000)) + b"}",
    b"1," + b'"' * 2**20 + b",x",
    b'1,"' + b'""' * 2**19 + b'",x',
    b"," * MANY,
    b"|" * 2**20,
    b"1|x|" + b"9" * 2**20,
    b"1|x|1e" + b"9" * 2**20,
    b"1|x|" + b"9" * 2**20 + b"x",
    b"1|x|" + b"9" * 2**20 + b"." + b"9" * 2**20 + b"x",
    b"+" + b"0" * 2**20 + b"1|x|1",
    b'1,"b"' + b"," * 2**20,
    '1,"\U0001f600"'.encode() + b"," * 2**20,
    b" " * 2**20,
    b"<Customer>" * MANY,
    b"<Customer " + b" ".join(b'a%d=""' % n for n in range(20_000)) + b"/>",
    b"<Customer><Name>" + b"&amp;" * MANY + b"</Name></Customer>",
    b"<Customer><Name>" + b"<![CDATA[x]]>" * MANY + b"</Name></Customer>",
    b"\xff" * 2**20,
    b"\xfe" + b"\x80" * 2**10,
]


def fuzz(spark: SparkSession, path: Path, number: int, mutants: int) -> int:
    """Decode mutants of a file's vectors, in one job; return how many tuples came out of it."""
    held = json.loads(path.read_text())
    stream = stream_of(held["stream"])
    vectors = [record_of(vector) for vector in held["records"]]
    seeds = [seed for seed in vectors if len(seed[0] or b"") < SEED_BYTES_MAX]
    chance = random.Random(f"{path.stem} {number}")  # noqa: S311 - to be the same again
    records = [mutant(chance, seeds) for _ in range(mutants)] + [(value, []) for value in NASTY]
    began = time.monotonic()
    given = run(spark, stream, records)
    assert time.monotonic() - began < JOB_S_MAX
    tuples = 0
    for record, rows in zip(records, given, strict=True):
        check(stream, record, rows)
        tuples += sum(row[MARK] is None and row[REASON] is None for row in rows)
    return tuples


def mutant(chance: random.Random, seeds: list[Record]) -> Record:
    """Change one of the records."""
    value, headers = chance.choice(seeds)
    for _ in range(chance.randint(0, 3)):
        value = _changed(chance, value or b"", chance.choice(seeds)[0] or b"")
    changed = [(key, text) for key, text in headers if chance.random() < 0.9]
    if chance.random() < 0.2:
        changed = [
            (key, text and _changed(chance, text, b"12") if chance.random() < 0.3 else text)
            for key, text in changed
        ]
    if chance.random() < 0.2:
        entries = (value or b"").count(b"\x1e") + 1
        changed.append(("frame", str(entries + (chance.random() < 0.1)).encode()))
    return value, changed


def _changed(chance: random.Random, value: bytes, other: bytes) -> bytes:
    at, to = sorted(chance.choices(range(len(value) + 1), k=2))
    match chance.randrange(6):
        case 0:
            return value[:at] + chance.choice(PIECES) + value[at:]
        case 1:
            return value[:at] + chance.choice(PIECES) + value[to:]
        case 2:
            return value[:at] + value[to:]
        case 3:
            return value[:to] + value[at:to] + value[to:]
        case 4:
            return value[:at] + chance.randbytes(chance.randint(1, 4)) + value[at:]
        case _:
            return value[:at] + other[len(other) // 2 :]


def check(stream: Stream, record: Record, rows: list[dict[str, Any]]) -> None:
    """Hold what came of one record against what must be true of every record."""
    value, _ = record
    assert rows, record
    between = b"" if isinstance(stream.wire.format, Avro) else b"\x1e"
    if len(rows) == 1:
        assert rows[0][VALUE] == value
    else:
        assert between.join(row[VALUE] for row in rows) == value
    for row in rows:
        if row[MARK] is not None:
            assert row[REASON] is None
            assert row[MARK] != NOTHING or row[VALUE] == b""
        elif row[REASON] is not None:
            assert 0 < len(row[REASON]) <= REASON_CHARACTERS_MAX
        else:
            for column in stream.columns.columns:
                assert _fits(row[column.name], column), (record, column, row)


def _fits(value: object, column: Column) -> bool:
    if value is None:
        return not column.required
    match column.type:
        case Type.INTEGER:
            return isinstance(value, int) and -(2**63) <= value < 2**63
        case Type.REAL:
            return isinstance(value, float) and math.isfinite(value)
        case Type.TEXT:
            return isinstance(value, str) and "\0" not in value
    return False  # others are not a stream's


def rounds(spark: SparkSession, first: int, times: int, mutants: int) -> Iterator[int]:
    """Fuzz every decoder so many times, each time from another seed."""
    for number in range(first, first + times):
        for path in VECTORS:
            yield fuzz(spark, path, number, mutants)
