"""The oracle: what the warehouse must hold, computed a second time, straight from the files.

It knows the rules and `tpcdi.schema`, and shares no code with the dataflows. All batches are
computed at once by SQL: a table of `rules/*.sql` is a paragraph of the rules. One thought carries
most of it: in the increments everything is dated by the batch, so what is current in a batch is
what is valid on its day, and history and increments are one.
"""

from tpcdi.oracle.canon import digests, export
from tpcdi.oracle.comparison import Difference, compare
from tpcdi.oracle.computation import compute

__all__ = ["Difference", "compare", "compute", "digests", "export"]
