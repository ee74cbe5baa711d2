"""Routing: what arrives, divided among the partitions of a dataflow by key.

A key's partition never changes: it is a checksum of the key's text. What has no key goes to
partition 0, if it did not decode, or to all of them, if it is a punctuation. All partitions see
how far a stream has come, so that one that is given nothing does not stay behind.
"""

import zlib

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import FINISHED, MARK, PARTITION, PLACE, REASON, Arrived, tuples_of
from etl_procs.chunk import BEFORE_ALL, epochs_of, runs_of
from etl_procs.fitting import Part
from etl_procs.model import Stream
from etl_procs.rules import ByInterval, Value

NOBODY = -1
"""In place of a partition: nobody's tuple, and everybody's business."""


def partition_of(key: Value, partitions: int) -> int:
    """Name the partition that a key belongs to."""
    return zlib.crc32(str(key).encode("utf-8", "surrogatepass")) % partitions


def own(stream: Stream, part: Part, partition: int, partitions: int) -> Part:
    """Keep those tuples of a stream that belong to a partition."""
    if partitions == 1:
        return part
    key, tuples = stream.columns.names.index(stream.key), tuples_of(part)
    return [values for values in tuples if partition_of(values[key], partitions) == partition]


def routed(arrived: Arrived, partitions: int) -> list[Arrived]:
    """Divide what has arrived, for each partition its part."""
    stream, table = arrived.stream, arrived.tuples
    if partitions == 1:
        return [arrived]
    table = table.sort_by([(PARTITION, "ascending"), (PLACE, "ascending")]).combine_chunks()
    read = {
        partition: table[PLACE][end - 1].as_py() + 1
        for partition, _, end in runs_of(table[PARTITION])
    }
    through = read | dict(arrived.through)
    owners = _owners(table, stream.key, partitions)
    if isinstance(stream.batches, ByInterval):
        table = _with_time_as_marks(table, stream.batches)
    return [
        Arrived(stream, _part(table, pc.equal(owners, partition)), through)
        for partition in range(partitions)
    ]


def _owners(table: pa.Table, key: str, partitions: int) -> pa.Array:
    keys = table[key].combine_chunks().dictionary_encode()
    owner_of = pa.array([partition_of(k, partitions) for k in keys.dictionary.to_pylist()])
    owners = owner_of.cast(pa.int64()).take(keys.indices)
    owners = pc.if_else(table[REASON].is_valid(), 0, owners)
    return pc.if_else(table[MARK].is_valid(), NOBODY, owners)


def _with_time_as_marks(table: pa.Table, rule: ByInterval) -> pa.Table:
    """Mark the first and the last record of each interval, for those whose tuples they are not:
    the first one ends the interval before, and past the last one they need not read again.
    """
    given = table[MARK].combine_chunks()
    finished = pc.coalesce(pc.equal(given, FINISHED), False)
    epochs = pc.coalesce(pc.if_else(finished, BEFORE_ALL, given), epochs_of(table, rule))
    marks: list[pa.Array] = []
    for _, start, end in runs_of(table[PARTITION]):
        reached = pc.cumulative_max(epochs.slice(start, end - start))
        rises = pc.greater(reached.slice(1), reached.slice(0, end - start - 1))
        yes = pa.array([True])
        is_first, is_last = pa.concat_arrays([yes, rises]), pa.concat_arrays([rises, yes])
        marks.append(pc.if_else(pc.or_(is_first, is_last), reached, None))
    at = table.schema.get_field_index(MARK)
    told = pa.chunked_array(marks, pa.int64()).combine_chunks()
    told = pc.if_else(finished, FINISHED, pc.min_element_wise(told, FINISHED - 1, skip_nulls=False))
    return table.set_column(at, table.schema.field(MARK), told)


def _part(table: pa.Table, own: pa.ChunkedArray) -> pa.Table:
    """Keep one partition's own tuples, without marks, and the marks of the others."""
    at = table.schema.get_field_index(MARK)
    marks = pc.if_else(own, pa.scalar(None, pa.int64()), table[MARK])
    own_or_mark = pc.or_(own, marks.is_valid())
    return table.set_column(at, table.schema.field(MARK), marks).filter(own_or_mark)
