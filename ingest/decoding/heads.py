"""Heads: what a record's headers say of its tuples, or why there are none in it.

Of a header that is there twice, the first counts. A bad one makes the whole record a dead letter.
"""

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.batch import FINISHED, MARK, REASON, SEQ, SOURCE, TUPLES_OF_A_RECORD_MAX
from etl_procs.model import Stream
from etl_procs.rules import ByInterval, ByPunctuation
from ingest import records as wire
from ingest.decoding.texts import whole

TIME, FRAME = "_time", "_frame"
RECORD = ("partition", "offset", "value")
NUMBERS = (wire.SEQ, wire.TIME, wire.FRAME, wire.OVERSIZE, wire.PUNCTUATION, wire.COMPLETE)
HEADERS = (*NUMBERS, wire.SOURCE, wire.WIRE, wire.FINISHED)

FRAME_TUPLES_MAX = TUPLES_OF_A_RECORD_MAX - 1
NO_BATCH_ID = "its header `punctuation` is no batch id: a whole number"
NO_BATCH_IDS = "its header `punctuation` means nothing: the stream is not cut by punctuation"
NO_COMPLETE = (
    f"its header `complete` is no event time: a whole number from {2 - 2**63} to {2**63 - 2}"
)
NO_COMPLETES = "its header `complete` means nothing: the stream is not cut by event time"
NO_TIME = "its header `time` is no INTEGER (64 bits, no point, no exponent)"
NO_SEQ = "its header `seq` is no number of a tuple: 0 to 2^63-1, for the last of a frame too"
NO_FRAME = f"its header `frame` is no number of tuples: 1 to {FRAME_TUPLES_MAX:,}"
NO_SOURCE = f"its header `source` is no name: 1 to {wire.SOURCE_BYTES_MAX:,} bytes of UTF-8"
NOT_PAIRED = "of its headers `source` and `seq`, one is missing"
NO_OVERSIZE = "its header `oversize` is no number of bytes"
HAS_VALUE = "its header `{}` makes it a punctuation, and it has a value"
NO_VERSION = f"its header `wire` is no version that is known here: {wire.VERSION}"


def headed(records: DataFrame, stream: Stream) -> DataFrame:
    """Give the records with what their headers say: SOURCE, SEQ, TIME, FRAME, MARK and REASON."""
    at = {name: F.array_position(F.col("headers.key"), name) for name in HEADERS}
    texts = {name: F.get("headers.value", at[name] - 1).cast("string") for name in HEADERS}
    found = records.select(
        *RECORD,
        *(F.coalesce(at[name] > 0, F.lit(False)).alias(_there(name)) for name in HEADERS),
        *(texts[name].alias(_text(name)) for name in HEADERS),
    )
    known = found.select("*", *(whole(F.col(_text(name))).alias(name) for name in NUMBERS))
    seq, frame = F.col(wire.SEQ), F.when(_marks_nothing(), F.col(wire.FRAME))
    paired = _is_source() & _is_seq() & ~_bad_frame()
    return known.select(
        *RECORD,
        F.when(paired, F.col(_text(wire.SOURCE))).alias(SOURCE),
        F.when(paired, seq).alias(SEQ),
        F.col(wire.TIME).alias(TIME),
        frame.try_cast("int").alias(FRAME),
        _mark(stream).alias(MARK),
        F.coalesce(*_reasons(stream)).alias(REASON),
    ).withColumn(MARK, F.when(F.col(REASON).isNull(), F.col(MARK)))


def _there(name: str) -> str:
    return f"_{name}_there"


def _text(name: str) -> str:
    return f"_{name}_text"


def _marks_nothing() -> Expression:
    there = [F.col(_there(name)) for name in (wire.PUNCTUATION, wire.COMPLETE, wire.FINISHED)]
    return ~(there[0] | there[1] | there[2])


def _is_source() -> Expression:
    name = F.col(_text(wire.SOURCE))
    size = F.octet_length(name)
    good = F.is_valid_utf8(name) & ~F.contains(name, F.lit("\0"))
    return F.coalesce(good & (size > 0) & (size <= wire.SOURCE_BYTES_MAX), F.lit(False))


def _is_seq() -> Expression:
    tuples = F.greatest(
        F.lit(1), F.least(F.coalesce(wire.FRAME, F.lit(1)), F.lit(FRAME_TUPLES_MAX))
    )
    seq = F.col(wire.SEQ)
    return F.coalesce(
        (seq >= 0) & (seq <= F.lit(2**63 - 1) - tuples + 1) & ~_signed(wire.SEQ), F.lit(False)
    )


def _signed(name: str) -> Expression:
    return F.col(_text(name)) < "0"


def _mark(stream: Stream) -> Expression:
    """Tell what a record ends, where it says so in a way that the stream knows."""
    mark = F.when(F.col(_there(wire.FINISHED)), F.lit(FINISHED))
    rule = stream.batches
    if isinstance(rule, ByPunctuation):
        good = F.col(wire.PUNCTUATION).isNotNull() & ~_bad_batch_id()
        mark = F.when(good, F.col(wire.PUNCTUATION)).otherwise(mark)
    if isinstance(rule, ByInterval):
        at, length = F.col(wire.COMPLETE), F.lit(rule.length)
        floor = F.call_function("div", at, length) - F.when(
            (at < 0) & (F.pmod(at, length) != 0), 1
        ).otherwise(0)
        good = at.isNotNull() & ~_bad_complete()
        mark = F.when(good, floor).otherwise(mark)
    return mark


def _bad_version() -> Expression:
    return F.col(_there(wire.WIRE)) & ~F.col(_text(wire.WIRE)).eqNullSafe(F.lit(wire.VERSION))


def _bad_batch_id() -> Expression:
    number = F.col(wire.PUNCTUATION)
    return number.isNull() | (number >= 10**18) | _signed(wire.PUNCTUATION)


def _bad_complete() -> Expression:
    number = F.col(wire.COMPLETE)
    return number.isNull() | (number >= FINISHED) | (number <= -FINISHED)


def _bad_frame() -> Expression:
    number = F.col(wire.FRAME)
    good = number.between(1, FRAME_TUPLES_MAX) & ~_signed(wire.FRAME)
    return F.col(_there(wire.FRAME)) & _marks_nothing() & ~F.coalesce(good, F.lit(False))


def _reasons(stream: Stream) -> list[Expression]:
    """List what may be bad, the most telling first."""
    source, seq = F.col(_there(wire.SOURCE)), F.col(_there(wire.SEQ))
    oversize = F.col(wire.OVERSIZE)
    too_long = F.concat(
        F.lit("a tuple of "),
        F.col(_text(wire.OVERSIZE)),
        F.lit(f" bytes, more than {wire.TUPLE_BYTES_MAX:,}; this is its beginning"),
    )
    return [
        F.when(_bad_version(), F.lit(NO_VERSION)),
        *_reasons_of_marks(stream),
        F.when(source != seq, F.lit(NOT_PAIRED)),
        F.when(source & ~_is_source(), F.lit(NO_SOURCE)),
        F.when(seq & ~_is_seq(), F.lit(NO_SEQ)),
        F.when(F.col(_there(wire.TIME)) & F.col(wire.TIME).isNull(), F.lit(NO_TIME)),
        F.when(
            F.col(_there(wire.OVERSIZE)),
            F.when((oversize >= 0) & ~_signed(wire.OVERSIZE), too_long).otherwise(
                F.lit(NO_OVERSIZE)
            ),
        ),
        F.when(_bad_frame(), F.lit(NO_FRAME)),
    ]


def _reasons_of_marks(stream: Stream) -> list[Expression]:
    punctuation, complete = F.col(_there(wire.PUNCTUATION)), F.col(_there(wire.COMPLETE))
    by_punctuation = isinstance(stream.batches, ByPunctuation)
    by_interval = isinstance(stream.batches, ByInterval)
    has_value = F.octet_length("value") > 0
    return [
        F.when(punctuation & _bad_batch_id(), F.lit(NO_BATCH_ID))
        if by_punctuation
        else F.when(punctuation, F.lit(NO_BATCH_IDS)),
        F.when(complete & _bad_complete(), F.lit(NO_COMPLETE))
        if by_interval
        else F.when(complete, F.lit(NO_COMPLETES)),
        *(
            F.when(F.col(_there(name)) & has_value, F.lit(HAS_VALUE.format(name)))
            for name in (wire.PUNCTUATION, wire.COMPLETE, wire.FINISHED)
        ),
    ]
