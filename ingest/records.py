"""Records: what the parts of a Kafka record mean; docs/wire-format.md is written after it."""

SOURCE = "source"
"""Header: who sends the tuple, in UTF-8. It goes with `seq`."""
SEQ = "seq"
"""Header: the number of the tuple in its source; of a frame, that of its first tuple."""
TIME = "time"
"""Header: the event time of the tuple, or of all tuples of a frame."""
FRAME = "frame"
"""Header: the value is a frame of so many tuples."""
PUNCTUATION = "punctuation"
"""Header: the record is no tuple, but ends a batch: that of this id."""
COMPLETE = "complete"
"""Header: the record is no tuple, but says that its partition has all up to an event time."""
FINISHED = "finished"
"""Header: the record is no tuple, but says that nothing more comes in its partition."""
OVERSIZE = "oversize"
"""Header: the value is only the beginning of a tuple that has so many bytes: too many."""
WIRE = "wire"
"""Header: the version of this format; without it, it is 1."""

VERSION = "1"
SEPARATOR = b"\x1e"
"""Stands between the tuples of a frame: no JSON, XML or line of text has it."""
SOURCE_BYTES_MAX = 1_000
TUPLE_BYTES_MAX = 8 * 2**20
OVERSIZE_BYTES_KEPT = 64 * 2**10
FRAME_BYTES = 64 * 2**10
"""A frame is sent when it has so many bytes, or FRAME_TUPLES."""
FRAME_TUPLES = 1_000
