"""Decoding, in the real Spark: what is a tuple, and the reason of everything that is not."""

import gc

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from etl_procs import Dataflow, by_punctuation
from ingest.decode import decoded, gathered, warm

STREAM = Dataflow("decoding").stream(
    "votes", "phone TEXT NOT NULL, contestant INTEGER, score REAL", batches=by_punctuation()
)

NO_INTEGER = "contestant is no INTEGER (64 bits, no point, no exponent)"

GOOD = {
    b'{"phone": "1", "contestant": 2, "score": 0.5}': ("1", 2, 0.5),
    b' {"phone": "1"}\n': ("1", None, None),
    b'{"phone": "", "contestant": null, "score": 1e3, "more": [1]}': ("", None, 1000.0),
    '{"phone": "\\u00e9\U0001f600", "contestant": -9223372036854775808}'.encode(): (
        "é\U0001f600",
        -(2**63),
        None,
    ),
    b'{"phone": "1", "contestant": 9223372036854775807, "score": 3}': ("1", 2**63 - 1, 3.0),
    b'{"phone": "],[", "contestant": 1}': ("],[", 1, None),
}

BAD = {
    None: "no value: a tombstone is not a tuple",
    b"": "not JSON",
    b"   ": "not JSON",
    b"vote": "not JSON",
    b'{"phone": "1"': "not JSON",
    b'{"phone": "1"} {"phone": "2"}': "not JSON",
    b'{"phone": "1"}, {"phone": "2"}': "not JSON",
    b'{"phone": "1"}],[{"phone": "2"}': "not JSON",
    b'{"phone": "1"},{"phone": "2"}],[': "not JSON",
    b'{"phone": "1"},{"phone": "2"}]': "not JSON",
    b'{"phone": "1"},0] junk': "not JSON",
    b'{"phone": "1"},"a":2} junk': "not JSON",
    b'{"phone": "1"}} junk': "not JSON",
    b'{"phone": "1"} trailing': "not JSON",
    b"{'phone': '1'}": "not JSON",
    b'{phone: "1"}': "not JSON",
    b'{"phone": "1", "contestant": 02}': "not JSON",
    b'{"phone": "\\ud800"}': "not JSON",
    b'\xef\xbb\xbf{"phone": "1"}': "not JSON",
    b'{"phone": "\xff"}': "not UTF-8",
    b'"text"': "not a JSON object",
    b"null": "not a JSON object",
    b"[]": "not a JSON object",
    b'[{"phone": "1"}]': "not a JSON object",
    b"{}": "phone is missing",
    b'{"phone": null}': "phone is missing",
    b'{"PHONE": "1"}': "phone is missing",
    b'{"phone": 5}': "phone is no TEXT: 5",
    b'{"phone": true}': "phone is no TEXT: true",
    b'{"phone": {"a": 1}}': 'phone is no TEXT: {"a":1}',
    b'{"phone": "a\\u0000b"}': "phone holds a NUL character",
    b'{"phone": "1", "contestant": "2"}': f'{NO_INTEGER}: "2"',
    b'{"phone": "1", "contestant": 2.5}': f"{NO_INTEGER}: 2.5",
    b'{"phone": "1", "contestant": 5.0}': f"{NO_INTEGER}: 5.0",
    b'{"phone": "1", "contestant": 9223372036854775808}': (f"{NO_INTEGER}: 9223372036854775808"),
    b'{"phone": "1", "score": 1e400}': "score is larger than a REAL can be",
    b'{"phone": "1", "score": -1' + b"0" * 400 + b"}": "score is larger than a REAL can be",
    b'{"phone": "1", "score": "high"}': 'score is no REAL: "high"',
}


Header = tuple[str, bytes | None]


def decode(
    spark: SparkSession,
    values: list[bytes | None],
    headers: list[list[Header] | None] | None = None,
) -> list[dict[str, object]]:
    rows = [
        (
            0,
            offset,
            None if value is None else bytearray(value),
            None if of is None else [(k, None if v is None else bytearray(v)) for k, v in of],
        )
        for offset, (value, of) in enumerate(
            zip(values, headers or [None] * len(values), strict=True)
        )
    ]
    records = spark.createDataFrame(
        rows,
        "partition INT, offset BIGINT, value BINARY, "
        "headers ARRAY<STRUCT<key STRING, value BINARY>>",
    )
    arrived = gathered(decoded(records, STREAM).toArrow(), STREAM)
    tuples = arrived.sort_by("_place").to_pylist()
    assert [row["_value"] for row in tuples] == values
    return list(tuples)


def test_tuples_are_typed_exactly(spark: SparkSession) -> None:
    rows = decode(spark, list(GOOD))
    assert [row["_reason"] for row in rows] == [None] * len(GOOD)
    typed = [(row["phone"], row["contestant"], row["score"]) for row in rows]
    assert typed == list(GOOD.values())


def test_everything_else_has_its_reason(spark: SparkSession) -> None:
    rows = decode(spark, list(BAD))
    assert {row["_value"]: row["_reason"] for row in rows} == BAD


def test_a_reason_quotes_only_the_beginning_of_a_long_value(spark: SparkSession) -> None:
    many = b", ".join(b'"k%d": 1' % n for n in range(10_000))
    rows = decode(
        spark,
        [
            b'{"phone": "1", "contestant": "' + b"9" * 1_000_000 + b'"}',
            b'{"phone": "1", "contestant": {' + many + b"}}",
        ],
    )
    assert all(len(str(row["_reason"])) < 300 for row in rows)


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_value_whose_header_names_a_batch_is_its_punctuation(
    spark: SparkSession, value: bytes | None
) -> None:
    headers: list[list[Header] | None] = [
        [("punctuation", b"12")],
        [("source", b"a"), ("seq", b"1"), ("punctuation", b"0")],
        [("punctuation", b"7"), ("punctuation", b"8")],
        [("punctuation", b"9" * 18)],
    ]
    rows = decode(spark, [value] * len(headers), headers)
    assert [row["_mark"] for row in rows] == [12, 0, 7, 10**18 - 1]
    assert [row["_reason"] for row in rows] == [None] * len(headers)


def test_a_punctuation_that_names_no_batch_is_a_dead_letter(spark: SparkSession) -> None:
    bad = [b"", b"x", b"-1", b"+1", b"1.0", b" 1", b"9" * 19, b"\xff", None]
    rows = decode(
        spark, [b'{"phone": "1"}'] * len(bad), [[("punctuation", value)] for value in bad]
    )
    assert [row["_mark"] for row in rows] == [None] * len(bad)
    assert {row["_reason"] for row in rows} == {
        "its header `punctuation` is no batch id: a whole number"
    }


def test_other_headers_say_nothing(spark: SparkSession) -> None:
    headers: list[list[Header] | None] = [None, [], [("Punctuation", b"1")], [("key", None)]]
    rows = decode(spark, [b'{"phone": "1"}'] * 4, headers)
    assert [(row["_mark"], row["_reason"], row["phone"]) for row in rows] == [(None, None, "1")] * 4


def test_what_decoding_loads_is_not_cleaned_up_after_each_task(spark: SparkSession) -> None:
    """Spark's Python collects garbage then: with pandas in it, this took most of its time."""

    def weighed(values: pa.Array) -> pa.Array:
        return pa.array([len(gc.get_objects()) / gc.get_freeze_count()] * len(values))

    warm(spark, STREAM)
    weigh = arrow_udf(weighed, "double")  # type: ignore[call-overload] # its hints tell
    ((loose,),) = spark.range(1).select(weigh("id")).collect()
    assert loose < 0.1, "much was loaded after what was there was taken out of what is looked at"
