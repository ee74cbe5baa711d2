"""The transactional streaming core: dataflows of stored procedures over embedded state.

Owns the model (what a user declares), the core (where it runs) and its ledger.
May import the kernel, nothing else of Headrace.
"""

from etl_procs.batch import Batch, Row
from etl_procs.model import Dataflow, Outlet, Procedure, Stream, Table
from etl_procs.transaction import Transaction

__all__ = ["Batch", "Dataflow", "Outlet", "Procedure", "Row", "Stream", "Table", "Transaction"]
