"""A checksum of rows in whatever order, which PostgreSQL computes as well, by what it has.

Each row has a hash, and their sum is told. One changed row is missed once in 2**32. What the hash
functions of PostgreSQL take for equal is missed always: 0.0 and -0.0, all NaNs, and two bigints or
timestamps that they fold to the same 32 bits, as 1 and 2**32. They hash the bytes of memory: the
server's are to have the lowest first, and its database is to be in UTF-8.
"""

from collections.abc import Callable, Iterator
from struct import iter_unpack
from typing import Any, LiteralString

import numpy as np
import pyarrow as pa
from psycopg import sql

from migrations import numbers

Words = np.ndarray[Any, np.dtype[np.uint32]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Places = np.ndarray[Any, np.dtype[np.int64]]

# Fields are summed within a row, and rows within a table: without the outer hash, nobody would see
# that two rows have exchanged their values of a column. With the seed 0, NULL would be 0.0.
SUM: LiteralString = (
    "coalesce(sum(hashint8extended(hash_record_extended(ROW({fields}), {seed}), {seed})), 0)"
)
COLLATED: LiteralString = '{field} COLLATE "C"'
"""A column's own collation may take different texts for equal."""
SIGNED: LiteralString = "{field}, {field} < 0"
"""The hash of a numeric leaves its sign out, and that of 0 is what NULL is here."""
SEED = 1

ROWS_AT_ONCE, BYTES_AT_ONCE = 16_384, 2**25
"""What a processor's cache holds; of long texts, what is copied if they lie in many chunks."""
FEW = 16
"""So few long texts are hashed one by one: a lone megabyte in 0.07 s, by columns in 2.6 s."""

WORD = 0xFFFF_FFFF
BLOCK = 12
BEGIN = 0x9E3779B9 + 3923095
MIX = ((0, 2, 4, 1), (1, 0, 6, 2), (2, 1, 8, 0), (0, 2, 16, 1), (1, 0, 19, 2), (2, 1, 4, 0))
FINISH = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))
REST = np.array([[0xFF] * n + [0] * (BLOCK - n) for n in range(BLOCK)], np.uint8).view(np.uint32)
"""Of a block with so many bytes left, what counts."""
STANDARD_NAN = np.uint64(0x7FF8_0000_0000_0000).view(np.float64)


def of(table: pa.Table) -> int:
    """Sum the hashes of a table's rows, as PostgreSQL does by `expression`."""
    at_once = min(max(BYTES_AT_ONCE * table.num_rows // max(table.nbytes, 1), 1), ROWS_AT_ONCE)
    return sum(
        _sum(batch)
        for first in range(0, table.num_rows, at_once)
        for batch in table.slice(first, at_once).combine_chunks().to_batches()
    )


def expression(schema: pa.Schema) -> sql.Composed:
    """Write an aggregate over the columns of a schema, in its order: a numeric without fraction."""
    fields = sql.SQL(", ").join(map(_field, schema))
    return sql.SQL(SUM).format(fields=fields, seed=sql.Literal(SEED))


def _field(column: pa.Field) -> sql.Composable:
    name = sql.Identifier(column.name)
    if pa.types.is_decimal(column.type):
        return sql.SQL(SIGNED).format(field=name)
    return sql.SQL(COLLATED).format(field=name) if column.type == pa.string() else name


def _sum(batch: pa.RecordBatch) -> int:
    rows = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        for hashes in _hashes(numbers.since_2000(column)):
            if nulls is not None:
                hashes[nulls] = 0
            rows *= np.uint64(31)
            rows += hashes
    signed = _of_bigints(rows).view(np.int64)
    return (int((signed >> 32).sum()) << 32) + int((signed & WORD).sum())


def _hashes(column: pa.Array) -> Iterator[Hashes]:
    """Give the hashes of a column, and of what goes along with it."""
    if pa.types.is_decimal(column.type):
        yield from _numeric(numbers.decimals(column))
    else:
        yield HASHED[column.type](column)


def _bigint(column: pa.Array) -> Hashes:
    return _of_bigints(_values(column, np.uint64))


def _of_bigints(values: Hashes) -> Hashes:
    """Fold each to 32 bits, so that one that fits into them is hashed as an integer is."""
    halves = values.view(np.int32).reshape(-1, 2)
    folded = halves[:, 0] ^ halves[:, 1] ^ (halves[:, 1] >> 31)
    return _of_integers(folded.view(np.uint32))


def _integer(column: pa.Array) -> Hashes:
    return _of_integers(_values(column, np.uint32))


def _boolean(column: pa.Array) -> Hashes:
    return _of_booleans(_values(column.cast(pa.uint8()), np.uint8))


def _of_booleans(values: Bytes) -> Hashes:
    """Hash each as an integer is: there are but two of them."""
    hashes: Hashes = _of_integers(np.arange(2, dtype=np.uint32))[values]
    return hashes


def _of_integers(values: Words) -> Hashes:
    state = _begun_alike(4, len(values))
    state[0] += values
    return _finished(state)


def _double(column: pa.Array) -> Hashes:
    values = _values(column, np.float64)
    standard = np.where(np.isnan(values), STANDARD_NAN, values)
    state = _begun_alike(8, len(values))
    state[:2] += standard.view(np.uint32).reshape(-1, 2).T
    hashes = _finished(state)
    hashes[values == 0] = SEED
    return hashes


def _text(column: pa.Array) -> Hashes:
    _, ends, content = column.buffers()
    ends = np.frombuffer(ends, np.int32, column.offset + len(column) + 1)[column.offset :]
    data = np.frombuffer(content, np.uint8)
    return _of_bytes(data, ends[:-1].astype(np.int64), np.diff(ends))


def _numeric(held: numbers.Decimals) -> Iterator[Hashes]:
    """Hash the digits from the first that is not 0 to the last, and the weight; then the sign."""
    count = len(held.digits)
    first, end = np.zeros((2, len(held.negative)), np.int64)
    for at, digit in enumerate(held.digits):
        np.copyto(end, at + 1, where=digit > 0)
    for at, digit in reversed(list(enumerate(held.digits))):
        np.copyto(first, at, where=digit > 0)
    digits = np.stack(held.digits, axis=1, dtype=np.int16, casting="unsafe")
    places = np.arange(0, digits.size, count) + first
    hashes = _of_bytes(digits.view(np.uint8).ravel(), 2 * places, 2 * (end - first))
    hashes ^= (held.weight - first).view(np.uint64)
    hashes[end == 0] = SEED - 1
    yield hashes
    yield _of_booleans(held.negative.view(np.uint8))


def _of_bytes(data: Bytes, at: Places, lengths: np.ndarray[Any, Any]) -> Hashes:
    """Hash so many bytes at each place."""
    state = _begun(lengths.astype(np.uint32))
    blocks = lengths // BLOCK
    _take_blocks(state, data, at, blocks)
    rest = _last_blocks(data, at + BLOCK * blocks) & REST[lengths - BLOCK * blocks]
    rest[:, 2] <<= 8
    state += rest.T
    return _finished(state)


HASHED: dict[pa.DataType, Callable[[pa.Array], Hashes]] = {
    pa.int64(): _bigint,
    pa.int32(): _integer,
    pa.bool_(): _boolean,
    pa.float64(): _double,
    pa.string(): _text,
}


def _values(column: pa.Array, kind: type[np.generic]) -> np.ndarray[Any, Any]:
    """View a column's values; where it is NULL, there is anything."""
    return np.frombuffer(column.buffers()[1], kind, column.offset + len(column))[column.offset :]


def _take_blocks(state: Words, data: Bytes, at: Places, blocks: Places) -> None:
    """Mix the whole blocks of texts in, the first of each, the second of each that has one, ..."""
    rows = np.flatnonzero(blocks)
    at, blocks, mixed = at[rows], blocks[rows], state.take(rows, axis=1)
    done = 0
    while rows.size > FEW:
        mixed += _read(data, at).T
        _mix(mixed)
        at += BLOCK
        done += 1
        more = blocks > done
        if not more.all():
            state[:, rows[~more]] = mixed[:, ~more]
            rows, at, blocks = rows[more], at[more], blocks[more]
            mixed = mixed.compress(more, axis=1)
    ends = at + BLOCK * (blocks - done)
    for row, words, first, end in zip(rows, mixed.T, at, ends, strict=True):
        state[:, row] = _mixed_alone(words, data[first:end].data)


def _last_blocks(data: Bytes, at: Places) -> Words:
    """Read a block at each place, where some reach beyond the data."""
    beyond = at > len(data) - BLOCK
    if not beyond.any():
        return _read(data, at)
    end = np.concatenate([data[-BLOCK:], np.zeros(BLOCK, np.uint8)])
    blocks = np.empty((len(at), BLOCK // 4), np.uint32)
    blocks[~beyond] = _read(data, at[~beyond])
    blocks[beyond] = _read(end, at[beyond] - max(len(data) - BLOCK, 0))
    return blocks


def _read(data: Bytes, at: Places) -> Words:
    """Read a block at each place, wherever it lies: Arrow aligns no text."""
    everywhere = np.ndarray(max(len(data) - BLOCK + 1, 0), f"V{BLOCK}", data, strides=(1,))
    return everywhere[at].view(np.uint32).reshape(-1, BLOCK // 4)


def _begun(lengths: Words) -> Words:
    """Begin with each length: three words for each value, which is Bob Jenkins' hash of 2006."""
    state = np.empty((3, len(lengths)), np.uint32)
    state[:] = lengths + np.uint32(BEGIN)
    state[1] += np.uint32(SEED)
    _mix(state)
    return state


def _begun_alike(length: int, count: int) -> Words:
    return np.repeat(_begun(np.array([length], np.uint32)), count, axis=1)


def _mix(state: Words) -> None:
    spare = np.empty_like(state[0])
    for to, by, bits, next_ in MIX:
        state[to] -= state[by]
        _turn(np.bitwise_xor, state[to], state[by], bits, spare)
        state[by] += state[next_]


def _mixed_alone(state: Words, blocks: memoryview) -> tuple[int, int, int]:
    """Mix the blocks of one text in. What is turned has no more than 32 bits; the rest may."""
    a, b, c = map(int, state)
    for x, y, z in iter_unpack("<3I", blocks):
        a, b, c = a + x, b + y, (c + z) & WORD
        a = (a - c ^ (c << 4 | c >> 28)) & WORD
        c += b
        b = (b - a ^ (a << 6 | a >> 26)) & WORD
        a += c
        c = (c - b ^ (b << 8 | b >> 24)) & WORD
        b += a
        a = (a - c ^ (c << 16 | c >> 16)) & WORD
        c += b
        b = (b - a ^ (a << 19 | a >> 13)) & WORD
        a += c
        c = (c - b ^ (b << 4 | b >> 28)) & WORD
        b += a
    return a & WORD, b & WORD, c


def _finished(state: Words) -> Hashes:
    spare = np.empty_like(state[0])
    for to, by, bits in FINISH:
        state[to] ^= state[by]
        _turn(np.subtract, state[to], state[by], bits, spare)
    return np.ascontiguousarray(state[:0:-1].T).view(np.uint64)[:, 0]


def _turn(apply: np.ufunc, to: Words, by: Words, bits: int, spare: Words) -> None:
    """Apply a rotated value in two steps: what either shift leaves has no bit of the other's."""
    apply(to, np.left_shift(by, bits, out=spare), out=to)
    apply(to, np.right_shift(by, 32 - bits, out=spare), out=to)
