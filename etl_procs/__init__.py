"""The transactional streaming core: dataflows of stored procedures over embedded state.

Owns the model (what a user declares), the core (where it runs) and its ledger.
May import the kernel, nothing else of Headrace.
"""

from etl_procs.batch import Batch, Row
from etl_procs.dataflow import Dataflow
from etl_procs.errors import GivenUp
from etl_procs.model import (
    Aggregate,
    Call,
    Foreign,
    Lookup,
    Outlet,
    Procedure,
    Strategy,
    Stream,
    Table,
    Trigger,
    Window,
)
from etl_procs.rules import (
    Late,
    Missing,
    OnTimeout,
    by_count,
    by_interval,
    by_punctuation,
    last_batches,
    last_interval,
    last_tuples,
)
from etl_procs.transaction import Transaction
from etl_procs.trial import Trial
from etl_procs.wire import (
    Changed,
    Clean,
    Mean,
    Route,
    Unknown,
    Wire,
    avro,
    delimited,
    fixed_width,
    xml,
)

__all__ = [
    "Aggregate",
    "Batch",
    "Call",
    "Changed",
    "Clean",
    "Dataflow",
    "Foreign",
    "GivenUp",
    "Late",
    "Lookup",
    "Mean",
    "Missing",
    "OnTimeout",
    "Outlet",
    "Procedure",
    "Route",
    "Row",
    "Strategy",
    "Stream",
    "Table",
    "Transaction",
    "Trial",
    "Trigger",
    "Unknown",
    "Window",
    "Wire",
    "avro",
    "by_count",
    "by_interval",
    "by_punctuation",
    "delimited",
    "fixed_width",
    "last_batches",
    "last_interval",
    "last_tuples",
    "xml",
]
